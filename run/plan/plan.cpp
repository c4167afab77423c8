#include "run/plan/plan.h"

#include <algorithm>
#include <cstdlib>

#include "core/base/format.h"
#include "core/config/byte_size.h"
#include "model/flops.h"
#include "run/plan/rank_plan.h"
#include "run/plan/stage_memory.h"
#include "run/recipe/start.h"
#include "train/parallel/exchange_stream.h"

namespace hone {
namespace {

Json exchanges_json(const ExchangeCounts& counts) {
  Json out = JsonObject{};
  for (const auto& [what, bytes] : counts)
    out.set(what, JsonObject{{"calls", bytes.calls}, {"sent_bytes", bytes.sent}, {"received_bytes", bytes.received}});
  return out;
}

// Plans a stage by dry runs on the meta device, which take the memory of any other device.
Json plan_stage(const Recipe& recipe, const PlannedStage& planned, const RankLayout& layout) {
  const StageSpec& spec = recipe.stage[planned.index];
  const StepWork work = plan_work(recipe, planned, layout);
  StageMemory largest;
  JsonArray ranks;
  for (int r = 0; r < layout.ranks; ++r) {
    const StageMemory memory = measure_stage_memory(recipe, planned, layout, r);
    const RankWork& own = work.ranks[static_cast<size_t>(r)];
    ranks.push_back(JsonObject{{"rank", r},
                               {"memory", memory.bytes},
                               {"micro_batches", own.micro_batches},
                               {"tokens", own.tokens},
                               {"sent_bytes", own.sent()},
                               {"received_bytes", own.received()},
                               {"exchanges", exchanges_json(own.exchanged)}});
    if (r == 0 || memory.bytes.at("total").as_int() > largest.bytes.at("total").as_int()) largest = memory;
  }
  const double per_token = largest.flops.train_flops_per_token;
  const int64_t tokens = planned.step.updates * planned.step.sequences * planned.length, steps = spec.stage->steps();
  return JsonObject{{"name", spec.name},
                    {"kind", spec.kind()},
                    {"steps", steps},
                    {"tokens_per_step", tokens},
                    {"train_flops_per_token", per_token},
                    {"flops", per_token * static_cast<double>(tokens) * static_cast<double>(steps)},
                    {"trained_params", largest.flops.trained_params},
                    {"memory", largest.bytes},
                    {"kv_bytes_per_token", largest.kv_bytes_per_token},
                    {"kv_window_tokens", largest.kv_window_tokens},
                    {"updates", planned.step.updates},
                    {"micro_batches", work.micro_batches},
                    {"rounds", work.rounds},
                    {"largest_micro_batch", work.largest_micro_batch},
                    {"tokens_in_turn", work.tokens_in_turn},
                    {"ranks", ranks}};
}

std::string time_text(double seconds) {
  if (seconds < 1) return format_text("%.3g ms", seconds * 1e3);
  if (seconds < 120) return format_text("%.3g s", seconds);
  return seconds < 7200 ? format_text("%.0f min", seconds / 60) : format_text("%.1f h", seconds / 3600);
}

// Seconds of a step. passes: over these tokens. beside: gradients are exchanged while backward passes run; the time
// beyond theirs counts.
Json step_seconds(const Json& stage, const Json& rank, double tokens, const DeviceRates& rates, bool beside) {
  const auto number = [](const Json& from, const char* name) { return from.at(name).as_double(); };
  const Json& memory = rank.at("memory");
  // An update reads and writes the states and the gradients, which the next step sets to zero.
  const double moved = 2 * (number(memory, "optimizer") + number(memory, "gradients")) * number(stage, "updates");
  const double passes = number(stage, "train_flops_per_token") * tokens / rates.flops,
               update = moved / rates.memory_bandwidth,
               all = std::max(number(rank, "sent_bytes"), number(rank, "received_bytes")) / rates.link_bandwidth;
  double exchange = all;
  if (const Json* gradients = rank.at("exchanges").find("gradients"); gradients && beside) {
    constexpr double backward_share = 2.0 / 3;  // of the passes
    const double own = std::max(number(*gradients, "sent_bytes"), number(*gradients, "received_bytes"));
    exchange -= std::min(own / rates.link_bandwidth, backward_share * passes);
  }
  return JsonObject{
      {"passes", passes}, {"update", update}, {"exchange", exchange}, {"total", passes + update + exchange}};
}

std::string memory_line(const Json& memory) {
  std::string out = "memory";
  for (const auto& [name, bytes] : memory.as_object())
    if (const int64_t count = bytes.as_int(); count != 0)
      out += concat(" ", name, count < 0 ? " -" : " ", byte_size_text(std::abs(count)), ",");
  out.pop_back();
  return out;
}

// What a rank does and needs in a step, without its number.
std::string rank_line(const Json& rank) {
  const Json& memory = rank.at("memory");
  const auto size = [](const Json& from, const char* name) { return byte_size_text(from.at(name).as_int()); };
  std::string out = format_text(
      " %13lld %10s %10s %10s %10s %10s %10s", static_cast<long long>(rank.at("micro_batches").as_int()),
      size(memory, "total").c_str(), size(memory, "gradients").c_str(), size(memory, "optimizer").c_str(),
      size(memory, "gradient_buffers").c_str(), size(rank, "sent_bytes").c_str(), size(rank, "received_bytes").c_str());
  if (const Json* seconds = rank.find("step_seconds"))
    for (const char* part : {"passes", "update", "exchange"})
      out += format_text(" %10s", time_text(seconds->at(part).as_double()).c_str());
  return out + "\n";
}

// The keys and values of the stage's engine, as its log line says.
std::string kv_text(const Json& stage) {
  const auto count = [&](const char* name) { return static_cast<long long>(stage.at(name).as_int()); };
  if (count("kv_bytes_per_token") == 0) return "";
  std::string out = format_text("; the KV cache takes %lld bytes a token", count("kv_bytes_per_token"));
  if (const long long bound = count("kv_window_tokens"); bound > 0)
    out += format_text(", and layers with a window keep at most %lld tokens of a decoding sequence", bound);
  return out;
}

// A line per rank. Neighbors with equal lines share one: "1-6".
std::string rank_table(const Json& stage, int64_t zero) {
  const JsonArray& ranks = stage.at("ranks").as_array();
  const auto count = [&](const char* name) { return static_cast<long long>(stage.at(name).as_int()); };
  std::string out =
      format_text("  %zu ranks, zero %lld: a step has %lld micro-batches of at most %lld tokens in %lld %s\n",
                  ranks.size(), static_cast<long long>(zero), count("micro_batches"), count("largest_micro_batch"),
                  count("rounds"), count("rounds") == 1 ? "round" : "rounds");
  out += format_text("  %5s %13s %10s %10s %10s %10s %10s %10s", "rank", "micro-batches", "memory", "gradients",
                     "optimizer", "buffers", "sent", "received");
  if (stage.find("step_seconds")) out += format_text(" %10s %10s %10s", "passes", "update", "exchange");
  out += '\n';
  for (size_t first = 0, next = 0; first < ranks.size(); first = next) {
    const std::string line = rank_line(ranks[first]);
    for (next = first + 1; next < ranks.size() && rank_line(ranks[next]) == line;) ++next;
    out += format_text("  %5s", (next == first + 1 ? concat(first) : concat(first, "-", next - 1)).c_str()) + line;
  }
  return out;
}

std::string stage_text(const Json& plan, const Json& stage) {
  const std::string name = stage.at("name").as_string();
  const auto tokens = static_cast<long long>(stage.at("tokens_per_step").as_int());
  std::string out;
  if (const int64_t steps = stage.at("steps").as_int(); steps > 0)
    out = format_text("%s: %lld steps of at most %lld tokens, %.3g FLOPs in all", name.c_str(),
                      static_cast<long long>(steps), tokens, stage.at("flops").as_double());
  else
    out = format_text("%s: steps of at most %lld tokens, as many as num_train_epochs makes of the corpus", name.c_str(),
                      tokens);
  if (const int64_t trained = stage.at("trained_params").as_int(); trained != plan.at("params").as_int())
    out += format_text(", %lld parameters trained", static_cast<long long>(trained));
  if (const Json* seconds = stage.find("seconds")) out += ", about " + time_text(seconds->as_double());
  if (const Json* step = stage.find("step_seconds"))
    out += format_text(" (%s a step)", time_text(step->at("total").as_double()).c_str());
  const bool several = stage.at("ranks").as_array().size() > 1;
  out += concat("; ", several ? "the largest rank's " : "", memory_line(stage.at("memory")), kv_text(stage), "\n");
  if (several) out += rank_table(stage, plan.at("layout").at("zero").as_int());
  return out;
}

std::string rates_text(const Json& rates) {
  return format_text(
      "Times are estimates for updates of full length at %.3g FLOP/s, %.3g GB/s of memory and %.3g GB/s between ranks "
      "each way, for each rank (%s). Sampling, evaluation and the launches of small kernels are not counted.\n",
      rates.at("flops_per_second").as_double(), rates.at("memory_bytes_per_second").as_double() * 1e-9,
      rates.at("link_bytes_per_second").as_double() * 1e-9, rates.at("source").as_string().c_str());
}

}  // namespace

void add_times(Json& plan, const DeviceRates& rates) {
  plan.set("rates", rates.json());
  const bool beside = plan.at("layout").at("exchanges_beside_backward").as_bool();
  JsonArray stages = plan.at("stages").as_array();
  for (Json& stage : stages) {
    JsonArray ranks = stage.at("ranks").as_array();
    Json slowest;
    for (Json& rank : ranks) {
      const double own = rank.at("tokens").as_double();
      const Json step = step_seconds(stage, rank, stage.at("tokens_in_turn").as_double(), rates, beside);
      if (slowest.is_null() || step.at("total").as_double() > slowest.at("total").as_double()) slowest = step;
      rank.set("step_seconds", step_seconds(stage, rank, own, rates, beside));
    }
    stage.set("ranks", std::move(ranks));
    stage.set("seconds", slowest.at("total").as_double() * stage.at("steps").as_double());
    stage.set("step_seconds", std::move(slowest));
  }
  plan.set("stages", std::move(stages));
}

// Parameters that a token uses: of experts those of its choices.
static int64_t active_params(Model& model) {
  double out = 0;
  for (const Param* param : model.params()) out += static_cast<double>(param->num_elements()) * param->active_share;
  return static_cast<int64_t>(out + 0.5);
}

// What the model's layers keep of a token in a KV cache, whether a stage has one or not.
static JsonArray kv_groups_json(const Model& model) {
  JsonArray out;
  for (const KvGroupShape& group : model.kv_groups())
    out.push_back(JsonObject{{"planes", group.planes},
                             {"num_kv_heads", group.num_kv_heads},
                             {"key_dim", group.key_dim},
                             {"value_dim", group.value_dim},
                             {"window", group.window}});
  return out;
}

Json plan_recipe(const Recipe& recipe, size_t ranks) {
  const std::unique_ptr<Model> model = start_model(recipe);
  const ModelFlops plan = count_flops(*model, model->shape().max_positions);
  const RankLayout layout = layout_of(recipe, ranks);
  // ZeRO-1 exchanges when the passes are done.
  const bool beside = layout.zero > 1 && ExchangeStream::runs_beside(device_kind(recipe.device.kind));
  JsonArray stages;
  for (const PlannedStage& planned : planned_stages(recipe)) stages.push_back(plan_stage(recipe, planned, layout));
  return JsonObject{{"params", plan.params},
                    {"embedding_params", plan.embedding_params},
                    {"active_params", active_params(*model)},
                    {"forward_flops_per_token", plan.forward_flops_per_token},
                    {"kv_groups", kv_groups_json(*model)},
                    {"layout", JsonObject{{"ranks", layout.ranks},
                                          {"zero", layout.zero},
                                          {"micro_batch_multiple", layout.micro_batch_multiple},
                                          {"exchanges_beside_backward", beside}}},
                    {"stages", stages}};
}

std::string plan_text(const Json& plan) {
  const auto count = [&](const char* key) { return static_cast<long long>(plan.at(key).as_int()); };
  std::string out =
      format_text("%lld parameters (%lld of them embeddings), ", count("params"), count("embedding_params"));
  if (count("active_params") < count("params")) out += format_text("%lld active, ", count("active_params"));
  out += format_text("%.3g FLOPs a token forward\n", plan.at("forward_flops_per_token").as_double());
  for (const Json& stage : plan.at("stages").as_array()) out += stage_text(plan, stage);
  if (const Json* rates = plan.find("rates")) out += rates_text(*rates);
  return out;
}

}  // namespace hone
