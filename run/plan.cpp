#include "run/plan.h"

#include <algorithm>
#include <optional>

#include "core/base/format.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "model/flops.h"
#include "model/io/model_folder.h"
#include "model/quantized_model.h"
#include "posttrain/rl/replica_backend.h"
#include "rollout/kv/kv_storage.h"
#include "run/start.h"
#include "train/stage.h"
#include "train/trainer.h"

namespace hone {
namespace {

// The share of the machine's measured FLOP/s that a training step reaches. Large GEMMs reach more, norms and attention
// less.
constexpr double expected_mfu = 0.4;

// A sample with every column that an objective may read. The meta device does not read the numbers.
Sample longest_sample(int64_t length) {
  const size_t n = static_cast<size_t>(length);
  Sample out;
  out.tokens.assign(n, 0);
  for (const Column column : all_columns()) out.columns.assign(column, column.size(1, n), 0);
  set_mask(out);
  return out;
}

// Bytes of the keys and values of all tokens in the KV cache.
int64_t kv_cache_bytes(Context& context, const EngineConfig& engine, const ModelShape& shape, DType dtype) {
  return static_cast<int64_t>(
      KvStorage(context, shape, dtype, engine.kv_block_size, engine.kv_cache_tokens / engine.kv_block_size).bytes());
}

// Plans a stage by a dry run of one step on the meta device, which takes the memory of any other device.
// adapted: an earlier stage trained adapters, so the reference keeps those.
Json plan_stage(const Recipe& recipe, const StageSpec& spec, const ModelShape& shape, const Tokenizer* tokenizer,
                bool adapted) {
  const PlannedStep step = spec.stage->planned_step(shape, tokenizer);
  const std::unique_ptr<Device> device = devices().at("meta")(0);
  Context context(*device);
  context.plan_for(device_kind(recipe.device));
  context.set_numerics(numerics_of(recipe.numerics));
  const std::unique_ptr<Model> model = start_model(recipe);
  if (const LoraConfig lora = start_lora(recipe); lora.r > 0 && spec.stage->trains_adapters()) model->add_lora(lora);
  model->allocate(context, model_dtype(recipe.dtype, context.target()), true);
  Trainer trainer(context, *model, *step.trainer);
  const int64_t length = shape.max_positions > 0 ? std::min(step.length, shape.max_positions) : step.length;
  const Sample sample = longest_sample(length);
  const std::vector<const Sample*> batch(static_cast<size_t>(step.sequences), &sample);
  trainer.step(batch, *step.objective, 0);
  const bool shares_device = step.rollout && recipe.rollout.shares_learner_device();
  const int64_t kv_bytes =
      shares_device ? kv_cache_bytes(context, recipe.rollout, shape, recipe.rollout.kv_dtype(model->dtype())) : 0;
  int64_t draft_bytes = 0;
  if (const std::string& folder = recipe.rollout.speculative.model; shares_device && !folder.empty()) {
    const std::unique_ptr<Model> draft = read_model_folder(expand_path(folder));
    draft->allocate(context, model->dtype(), false);
    draft_bytes = static_cast<int64_t>(draft->flat_values().bytes()) +
                  kv_cache_bytes(context, recipe.rollout, draft->shape(), draft->dtype());
  }
  int64_t quantized_bytes = 0;
  if (const std::string& format = recipe.rollout.quantization; shares_device && format != "none")
    quantized_bytes = static_cast<int64_t>(QuantizedModel(context, *model, quant_formats().at(format)).bytes());
  const ModelFlops plan = count_flops(*model, length);
  const int64_t weights = static_cast<int64_t>(model->flat_values().bytes()),
                gradients = static_cast<int64_t>(model->flat_grads().bytes());
  const TrainerMemory memory = trainer.memory();
  int64_t reference = step.reference ? weights : 0;
  if (model->lora() && step.reference) {
    reference = 0;
    if (adapted)
      for (const Param* param : model->adapter_params()) reference += static_cast<int64_t>(param->value.bytes());
  }
  // For workers: the version that they load, and the next one.
  const int64_t worker_versions = step.rollout && !recipe.rollout.pool.workers.empty() ? 2 : 0;
  int64_t weight_copies =
      (step.max_versions_in_flight + worker_versions) * static_cast<int64_t>(model->trainable_values().bytes());
  if (step.max_versions_in_flight > 0 && shares_device) weight_copies += weights;
  const int64_t scratch = static_cast<int64_t>(context.scratch().peak_bytes()),
                tokens = step.updates * step.sequences * length;
  Json bytes = JsonObject{{"weights", weights},
                          {"gradients", gradients},
                          {"optimizer", memory.optimizer},
                          {"activations", memory.activations},
                          {"scratch", scratch},
                          {"critic", memory.critic},
                          {"reference", reference},
                          {"kv_cache", kv_bytes},
                          {"draft_model", draft_bytes},
                          {"rollout_weights", quantized_bytes},
                          {"weight_copies", weight_copies}};
  int64_t total = 0;
  for (const auto& [name, value] : bytes.as_object()) total += value.as_int();
  bytes.set("total", total);
  return JsonObject{
      {"name", spec.name},
      {"kind", spec.kind()},
      {"steps", spec.stage->steps()},
      {"tokens_per_step", tokens},
      {"train_flops_per_token", plan.train_flops_per_token},
      {"flops", plan.train_flops_per_token * static_cast<double>(tokens) * static_cast<double>(spec.stage->steps())},
      {"trained_params", plan.trained_params},
      {"memory", bytes}};
}

std::string size_text(double bytes) {
  return bytes >= 1e9 ? format_text("%.2f GB", bytes * 1e-9) : format_text("%.1f MB", bytes * 1e-6);
}

std::string time_text(double seconds) {
  if (seconds < 120) return format_text("%.0f s", seconds);
  return seconds < 7200 ? format_text("%.0f min", seconds / 60) : format_text("%.1f h", seconds / 3600);
}

}  // namespace

void add_times(Json& plan, double flops_per_second) {
  const double rate = expected_mfu * flops_per_second;
  plan.set("flops_per_second", rate);
  JsonArray stages = plan.at("stages").as_array();
  for (Json& stage : stages) stage.set("seconds", stage.at("flops").as_double() / rate);
  plan.set("stages", std::move(stages));
}

Json plan_recipe(const Recipe& recipe) {
  const std::unique_ptr<Model> model = start_model(recipe);
  const ModelFlops plan = count_flops(*model, model->shape().max_positions);
  JsonArray stages;
  bool adapted = starts_from_adapter(recipe);
  std::optional<Tokenizer> tokenizer = start_tokenizer(recipe);
  for (const StageSpec& spec : recipe.stage) {
    if (spec.stage->vocab_size() > 0) tokenizer.reset();
    if (!spec.stage->trains()) continue;
    stages.push_back(plan_stage(recipe, spec, model->shape(), tokenizer ? &*tokenizer : nullptr, adapted));
    adapted = adapted || (spec.stage->hands_model_on() && spec.stage->trains_adapters() && start_lora(recipe).r > 0);
  }
  return JsonObject{{"params", plan.params},
                    {"embedding_params", plan.embedding_params},
                    {"forward_flops_per_token", plan.forward_flops_per_token},
                    {"stages", stages}};
}

std::string plan_text(const Json& plan) {
  std::string out = format_text("%lld parameters (%lld of them embeddings), %.3g FLOPs a token forward\n",
                                static_cast<long long>(plan.at("params").as_int()),
                                static_cast<long long>(plan.at("embedding_params").as_int()),
                                plan.at("forward_flops_per_token").as_double());
  for (const Json& stage : plan.at("stages").as_array()) {
    const auto tokens = static_cast<long long>(stage.at("tokens_per_step").as_int());
    if (const int64_t steps = stage.at("steps").as_int(); steps > 0)
      out +=
          format_text("%s: %lld steps of at most %lld tokens, %.3g FLOPs in all", stage.at("name").as_string().c_str(),
                      static_cast<long long>(steps), tokens, stage.at("flops").as_double());
    else
      out += format_text("%s: steps of at most %lld tokens, as many as num_train_epochs makes of the corpus",
                         stage.at("name").as_string().c_str(), tokens);
    if (const int64_t trained = stage.at("trained_params").as_int(); trained != plan.at("params").as_int())
      out += format_text(", %lld parameters trained", static_cast<long long>(trained));
    if (const Json* seconds = stage.find("seconds")) out += ", about " + time_text(seconds->as_double());
    out += "; memory";
    for (const auto& [name, bytes] : stage.at("memory").as_object())
      if (bytes.as_int() > 0) out += " " + name + " " + size_text(bytes.as_double()) + ",";
    out.back() = '\n';
  }
  if (const Json* rate = plan.find("flops_per_second"))
    out += format_text(
        "Times are estimates for updates of full length at %.3g FLOP/s, %.0f%% of this machine's measured arithmetic; "
        "sampling and evaluation are "
        "not counted.\n",
        rate->as_double(), 100 * expected_mfu);
  return out;
}

}  // namespace hone
