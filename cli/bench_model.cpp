#include "cli/bench_model.h"

#include <algorithm>
#include <functional>
#include <map>

#include "core/config.h"
#include "core/file.h"
#include "core/json.h"
#include "core/model/plan.h"
#include "core/rng.h"
#include "core/stopwatch.h"
#include "kernels/cast.h"
#include "kernels/op_times.h"
#include "pretrain/trainer.h"
#include "rollout/engine.h"

namespace hone {
namespace {

// A llama's keys, which the other families read as well; widths of heads are the shapes' own.
Json config_of(const char* family, int64_t width, int64_t mlp, int64_t blocks, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t vocabulary,
               double eps, int64_t positions) {
  return JsonObject{{"model_type", family},        {"hidden_size", width},         {"intermediate_size", mlp},
                    {"num_hidden_layers", blocks}, {"num_attention_heads", heads}, {"num_key_value_heads", kv_heads},
                    {"head_dim", head_dim},        {"vocab_size", vocabulary},     {"max_position_embeddings", positions},
                    {"rms_norm_eps", eps},         {"initializer_range", 0.02},    {"hidden_act", "silu"},
                    {"tie_word_embeddings", true}};
}

// Tied heads throughout, so that each has the parameters that other programs' benchmarks of the same name count.
const std::map<std::string, Json>& shapes() {
  static const std::map<std::string, Json> all{{"llama-124m", config_of("llama", 768, 2048, 12, 12, 12, 64, 50257, 1e-5, 4096)},
                                               {"smollm-135m", config_of("llama", 576, 1536, 30, 9, 3, 64, 49152, 1e-5, 4096)},
                                               {"quickstart", config_of("llama", 128, 384, 4, 4, 4, 32, 288, 1e-5, 4096)},
                                               {"gpt124m", config_of("llama", 768, 2048, 12, 12, 12, 64, 50304, 1e-6, 32768)},
                                               {"qwen2.5-0.5b", config_of("qwen2", 896, 4864, 24, 14, 2, 64, 151936, 1e-6, 32768)},
                                               {"qwen2.5-1.5b", config_of("qwen2", 1536, 8960, 28, 12, 2, 128, 151936, 1e-6, 32768)},
                                               {"qwen3-0.6b", config_of("qwen3", 1024, 3072, 28, 16, 8, 128, 151936, 1e-6, 32768)},
                                               {"llama3-8b", config_of("llama", 4096, 14336, 32, 32, 8, 128, 128256, 1e-6, 32768)}};
  return all;
}

// Random weights that are quick to make: one piece of draws on the host, over and over on the device.
void fill_weights(Context& context, Model& model) {
  if (context.kind() != DeviceKind::cuda) return model.initialise(context, 1);
  constexpr int64_t piece_size = (int64_t{1} << 20) - 64;  // no multiple of a row
  constexpr double uniform_std = 0.28867513459481287;      // of [0, 1)
  const ScratchScope scope(context);
  const Tensor f32 = context.scratch().take(DType::f32, {piece_size}), piece = context.scratch().take(model.dtype(), {piece_size});
  Rng rng(1, 0);
  std::vector<float> host(static_cast<size_t>(piece_size));
  for (float& x : host) x = static_cast<float>((rng.uniform() - 0.5) * 0.02 / uniform_std);
  context.copy(f32, host_view(std::span(host)));
  cast(context, piece, f32);
  for (const Param* param : model.params()) {
    const Tensor flat = param->value.view({param->value.size()});
    for (int64_t at = 0; at < flat.size(); at += piece_size) {
      const int64_t count = std::min(piece_size, flat.size() - at);
      if (param->init_std > 0) {
        context.copy(flat.rows(at, count), piece.rows(0, count));
        continue;
      }
      const ScratchScope inner(context);
      const Tensor constant = context.scratch().take(DType::f32, {count});
      const std::vector<float> same(static_cast<size_t>(count), static_cast<float>(param->init_value));
      context.copy(constant, host_view(std::span(same)));
      cast(context, flat.rows(at, count), constant);
    }
  }
}

double median_seconds(int64_t repeats, const std::function<void()>& run) {
  run();
  std::vector<double> times;
  for (int64_t i = 0; i < repeats; ++i) {
    const Stopwatch watch;
    run();
    times.push_back(watch.seconds());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

std::vector<int32_t> random_tokens(int64_t count, int64_t vocabulary, uint64_t stream) {
  Rng rng(1, stream);
  std::vector<int32_t> out(static_cast<size_t>(count));
  for (int32_t& id : out) id = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocabulary)));
  return out;
}

double as_double(int64_t count) { return static_cast<double>(count); }

// A sequence's first token is not trained on, which the count of FLOPs passes over.
void train(Context& context, Model& model, const ModelBench& options, Json& out) {
  int64_t micro_batch = options.micro_batch_tokens;
  if (micro_batch == 0) micro_batch = context.kind() == DeviceKind::cuda ? 8192 : 2048;
  const std::string keys = concat("micro_batch_tokens = ", std::max(micro_batch, options.tokens), "\nrecompute = \"", options.recompute,
                                  "\"\nmoments = \"", options.moments, "\"\n");
  const auto config = Config::from_text(keys, "bench").as<TrainerConfig>();
  Trainer trainer(context, model, config);
  std::vector<Sample> samples(static_cast<size_t>(options.batch));
  std::vector<const Sample*> batch;
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].tokens = random_tokens(options.tokens, model.shape().vocab_size, i);
    samples[i].mask.assign(samples[i].tokens.size(), 1.0f);
    samples[i].mask[0] = 0;
    batch.push_back(&samples[i]);
  }
  const std::unique_ptr<Objective> objective = objectives().at("sft")();
  trainer.step(batch, *objective, 1e-4);  // takes memory
  StepReport report;
  const double seconds = median_seconds(options.repeats, [&] { report = trainer.step(batch, *objective, 1e-4); });
  if (options.profile) {
    const OpTimes times;
    trainer.step(batch, *objective, 1e-4);
    JsonArray rows;
    for (const OpTime& op : times.read(context)) rows.push_back(JsonObject{{"op", op.name}, {"calls", op.calls}, {"seconds", op.seconds}});
    out.set("ops", std::move(rows));
  }
  const double tokens = as_double(options.batch * options.tokens), rate = tokens / seconds;
  const ModelPlan plan = plan_model(model, options.tokens);
  out.set("seconds", seconds);
  out.set("tokens_per_second", rate);
  out.set("flops_per_second", rate * plan.train_flops_per_token);
  out.set("loss", report.loss);
  out.set("micro_batch_tokens", config.micro_batch_tokens);
  out.set("recompute", options.recompute);
  out.set("moments", options.moments);
  out.set("flops_per_token", plan.causal_train_flops_per_token);
  for (const auto& [name, value] : {std::pair{"data", report.times.data},
                                    {"forward", report.times.forward},
                                    {"head", report.times.head},
                                    {"backward", report.times.backward},
                                    {"optimizer", report.times.optimizer}})
    out.set(concat("time/", name), value);
  out.set("bench", "train"), out.set("model", options.shape), out.set("B", options.batch), out.set("T", options.tokens);
  out.set("tok_s", rate);
  out.set("model_tflops", rate * plan.causal_train_flops_per_token * 1e-12);
  out.set("mfu_989", rate * plan.causal_train_flops_per_token / 989e12);
  out.set("peak_gb", as_double(static_cast<int64_t>(context.device().peak_bytes())) * 1e-9);
}

void prefill(Context& context, Model& model, const ModelBench& options, Json& out) {
  const std::vector<int32_t> prompt = random_tokens(options.tokens, model.shape().vocab_size, 0);
  Engine engine(context, model, nullptr, {.max_batch_tokens = options.tokens, .prefix_caching = false});
  const double seconds = median_seconds(options.repeats, [&] { engine.generate({{prompt, 1, 0, {.max_tokens = 1, .stop = {}, .stop_ids = {}}}}); });
  const double rate = as_double(options.tokens) / seconds;
  out.set("seconds", seconds);
  out.set("tokens_per_second", rate);
  out.set("flops_per_second", rate * plan_model(model, options.tokens).forward_flops_per_token);
}

// A step reads every weight once (the embedding as the head), and the keys and values of each sequence.
void decode(Context& context, Model& model, const ModelBench& options, Json& out) {
  const int64_t steps = context.kind() == DeviceKind::cuda ? 160 : 32;
  Engine engine(context, model, nullptr,
                {.kv_cache_tokens = options.batch * (options.tokens + steps + 64),
                 .max_batch_tokens = std::max<int64_t>(8192, options.batch),
                 .max_sequences = std::max<int64_t>(256, options.batch)});
  for (int64_t b = 0; b < options.batch; ++b)
    engine.submit({random_tokens(options.tokens, model.shape().vocab_size, static_cast<uint64_t>(b)),
                   1,
                   static_cast<uint64_t>(b),
                   {.max_tokens = steps, .ignore_eos = true, .stop = {}, .stop_ids = {}}},
                  [](uint64_t, const std::vector<Reply>&) {});
  while (engine.stats().generated_tokens < options.batch) engine.step();
  std::vector<double> times;  // of a pass that gives every sequence a token
  for (bool more = true; more;) {
    const Stopwatch watch;
    const int64_t before = engine.stats().generated_tokens;
    more = engine.step();
    const int64_t drawn = engine.stats().generated_tokens - before;
    if (drawn > 0 && drawn % options.batch == 0) times.push_back(watch.seconds() * as_double(options.batch) / as_double(drawn));
  }
  std::sort(times.begin(), times.end());
  const double seconds = times.at(times.size() / 2), rate = as_double(options.batch) / seconds;
  const ModelShape& shape = model.shape();
  const ModelPlan plan = plan_model(model, options.tokens);
  const auto width = static_cast<double>(size_of(model.dtype()));
  const double weights = plan.multiplied_params * width,
               cached =
                   2.0 * as_double(shape.num_blocks * shape.num_kv_heads * shape.head_dim * options.batch) * as_double(options.tokens + steps / 2);
  out.set("seconds", seconds);
  out.set("tokens_per_second", rate);
  out.set("bytes_per_second", (weights + cached * width) / seconds);
  // Of a GPU with 4.3 TB/s and 790 TFLOP/s: all bytes once; and what of each part takes longer, its bytes or its products.
  constexpr double bandwidth = 4.3e12, arithmetic = 790e12;
  const double floor = (weights + cached * width) / bandwidth;
  const double groups = as_double(shape.num_heads / shape.num_kv_heads);
  const double parts = std::max(weights / bandwidth, 2 * plan.multiplied_params * as_double(options.batch) / arithmetic) +
                       std::max(cached * width / bandwidth, 2 * cached * groups / arithmetic);
  out.set("bench", "decode"), out.set("model", options.shape), out.set("B", options.batch), out.set("ctx", options.tokens);
  out.set("tok_s", rate);
  out.set("ms", seconds * 1e3);
  out.set("floor_ms", floor * 1e3);
  out.set("roofline", floor / seconds);
  out.set("parts_ms", parts * 1e3);
  out.set("parts_roofline", parts / seconds);
  out.set("peak_gb", as_double(static_cast<int64_t>(context.device().peak_bytes())) * 1e-9);
}

}  // namespace

std::vector<std::string> model_bench_shapes() {
  std::vector<std::string> out;
  for (const auto& [name, config] : shapes()) out.push_back(name);
  return out;
}

Json bench_model(const std::string& what, Context& context, const ModelBench& options) {
  const auto known = shapes().find(options.shape);
  HONE_CHECK(known != shapes().end() || std::filesystem::exists(options.shape), "bench: unknown shape '", options.shape,
             "'; known: ", join(model_bench_shapes()), ", or a config.json");
  const std::unique_ptr<Model> model =
      make_model(known != shapes().end() ? known->second : parse_json(read_file(options.shape), options.shape), options.shape);
  HONE_CHECK(options.tokens + 2 < model->shape().max_positions, "bench: ", options.tokens, " tokens, the shape has ", model->shape().max_positions,
             " positions");
  HONE_CHECK(what != "train" || options.tokens >= 2, "bench: a training sequence has at least 2 tokens");
  context.set_numerics(numerics_of(options.numerics));
  context.device().reset_peak();
  model->allocate(context, model_dtype(options.dtype, context.kind()), what == "train");
  fill_weights(context, *model);
  Json out = JsonObject{{"what", what},
                        {"shape", options.shape},
                        {"params", model->num_params()},
                        {"batch", options.batch},
                        {"tokens", options.tokens},
                        {"device", std::string(name_of(context.kind()))},
                        {"dtype", std::string(name_of(model->dtype()))},
                        {"numerics", options.numerics}};
  const auto bench = what == "train" ? train : what == "prefill" ? prefill : decode;
  bench(context, *model, options, out);
  return out;
}

}  // namespace hone
