#include "cli/bench_model.h"

#include <algorithm>
#include <functional>
#include <map>

#include "core/file.h"
#include "core/json.h"
#include "core/model/plan.h"
#include "core/rng.h"
#include "core/stopwatch.h"
#include "pretrain/trainer.h"
#include "rollout/engine.h"

namespace hone {
namespace {

Json llama_config(int64_t width, int64_t mlp, int64_t blocks, int64_t heads, int64_t kv_heads, int64_t vocabulary) {
  return JsonObject{{"model_type", "llama"},        {"hidden_size", width},
                    {"intermediate_size", mlp},     {"num_hidden_layers", blocks},
                    {"num_attention_heads", heads}, {"num_key_value_heads", kv_heads},
                    {"vocab_size", vocabulary},     {"max_position_embeddings", 4096},
                    {"rms_norm_eps", 1e-5},         {"initializer_range", 0.02},
                    {"hidden_act", "silu"},         {"tie_word_embeddings", true}};
}

const std::map<std::string, Json>& shapes() {
  static const std::map<std::string, Json> all{{"llama-124m", llama_config(768, 2048, 12, 12, 12, 50257)},
                                               {"smollm-135m", llama_config(576, 1536, 30, 9, 3, 49152)},
                                               {"quickstart", llama_config(128, 384, 4, 4, 4, 288)}};
  return all;
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

struct Measured {
  double seconds = 0, tokens = 0, flops = 0, bytes = 0;
};

Measured train(Context& context, Model& model, const ModelBench& options) {
  TrainerConfig config;
  config.micro_batch_tokens = std::max<int64_t>(options.tokens, 2048);
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
  const double tokens = static_cast<double>(options.batch * options.tokens);
  return {median_seconds(options.repeats, [&] { trainer.step(batch, *objective, 1e-4); }), tokens,
          tokens * plan_model(model, options.tokens).train_flops_per_token, 0};
}

Measured prefill(Context& context, Model& model, const ModelBench& options) {
  const std::vector<int32_t> prompt = random_tokens(options.tokens, model.shape().vocab_size, 0);
  Engine engine(context, model, nullptr, {.max_batch_tokens = options.tokens});
  const double seconds = median_seconds(options.repeats, [&] { engine.generate({{prompt, 1, 0, {.max_tokens = 1, .stop = {}, .stop_ids = {}}}}); });
  const double tokens = static_cast<double>(options.tokens);
  return {seconds, tokens, tokens * plan_model(model, options.tokens).forward_flops_per_token, 0};
}

// A step reads every weight once (the embedding as the head), and the keys and values of each sequence.
Measured decode(Context& context, Model& model, const ModelBench& options) {
  constexpr int64_t steps = 32;
  Engine engine(context, model, nullptr,
                {.kv_cache_tokens = options.batch * (options.tokens + 16 * (steps + 2)), .max_batch_tokens = std::max<int64_t>(2048, options.batch)});
  std::vector<double> times;
  for (int64_t b = 0; b < options.batch; ++b)
    engine.submit({random_tokens(options.tokens, model.shape().vocab_size, static_cast<uint64_t>(b)),
                   1,
                   static_cast<uint64_t>(b),
                   {.max_tokens = steps, .ignore_eos = true, .stop = {}, .stop_ids = {}}},
                  [](uint64_t, std::vector<Reply>) {});
  while (engine.stats().prompt_tokens < options.batch * options.tokens) engine.step();
  for (bool more = true; more;) {
    const Stopwatch watch;
    const int64_t before = engine.stats().generated_tokens;
    more = engine.step();
    if (engine.stats().generated_tokens - before == options.batch) times.push_back(watch.seconds());
  }
  std::sort(times.begin(), times.end());
  const ModelShape& shape = model.shape();
  const double kv =
      2.0 * static_cast<double>(shape.num_blocks * shape.num_kv_heads * shape.head_dim * options.batch * options.tokens) * sizeof(float);
  return {times.at(times.size() / 2), static_cast<double>(options.batch), 0, static_cast<double>(model.num_params()) * sizeof(float) + kv};
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
  model->allocate(context, DType::f32, what == "train");
  model->initialise(context, 1);
  const Measured m = what == "train"     ? train(context, *model, options)
                     : what == "prefill" ? prefill(context, *model, options)
                                         : decode(context, *model, options);
  Json out = JsonObject{{"what", what},
                        {"shape", options.shape},
                        {"params", model->num_params()},
                        {"batch", options.batch},
                        {"tokens", options.tokens},
                        {"seconds", m.seconds},
                        {"tokens_per_second", m.tokens / m.seconds}};
  if (m.flops > 0) out.set("flops_per_second", m.flops / m.seconds);
  if (m.bytes > 0) out.set("bytes_per_second", m.bytes / m.seconds);
  return out;
}

}  // namespace hone
