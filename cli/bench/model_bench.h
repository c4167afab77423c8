#pragma once
// Speeds of whole models, on random weights unless they are given, beside what the machine's limits allow and what
// other programs measured. One file a bench, which joins with one line:
//   [[maybe_unused]] const bool added = model_benches().add("prefill", {.run = prefill});
#include <functional>
#include <string>
#include <vector>

#include "cli/bench/op_bench.h"
#include "core/io/json.h"
#include "model/model.h"
#include "rollout/engine.h"
#include "train/trainer.h"

namespace hone {

struct ModelBenchOptions {
  std::string shape =
      "llama-124m";  // a name of model_bench_shapes(), a config.json, or a model's folder, whose weights count then
  int64_t batch = 1, tokens = 256;  // sequences and their length (training), prompt (prefill), context (decoding)
  int64_t repeats = 5;              // the median counts
  std::string dtype = "auto", numerics = "exact";
  std::string comparison;  // JSON Lines of other programs' benchmarks; empty: none
  // Of rollout and grpo.
  int64_t prompts = 0;                                                 // 0: 256, and 16 of grpo
  int64_t prompt_tokens = 128, new_tokens = 256, num_generations = 0;  // num_generations 0: 1, and 16 of grpo
  std::vector<std::string> engine;                                     // key=value of a recipe's [rollout]
  // Of training and grpo.
  int64_t micro_batch_tokens = 0;  // 0: 8192 on cuda, 2048 elsewhere; or as many as a sequence has
  std::string recompute = "none", moments = "f32";
  bool profile = false;  // of training: one step more, with the time of each op in it
};

struct ModelBench {
  // Adds its figures to the row, tokens_per_second and seconds among them, and returns them in a line for people. A
  // share of the limits that is not flops_per_second or bytes_per_second over the machine's is its own to add
  // ("share").
  using Run = std::string (*)(Context&, Model&, const ModelBenchOptions&, const MachineLimits&, Json& row);
  Run run = nullptr;
  int64_t (*length)(const ModelBenchOptions&) = [](const ModelBenchOptions& o) {
    return o.tokens;
  };                                 // of a sequence, which must fit the model
  bool trains = false;               // the model has gradients
  std::vector<std::string> peers{};  // what other programs call their bench of the same (cli/bench/peer.h)
};
Registry<ModelBench>& model_benches();

struct ModelBenchResult {
  Json row;  // {what, shape, params, tokens_per_second, seconds, share, ...; peers where other programs measured the
             // same}
  std::string text;
};
ModelBenchResult bench_model(const std::string& what, Context& context, const ModelBenchOptions& options);

// What benches share.
double median_seconds(int64_t repeats, const std::function<void()>& run);  // after one more
std::vector<int32_t> random_tokens(int64_t count, int64_t vocabulary, uint64_t stream);
double peak_gigabytes(const Context& context);
// A trainer's settings as the options have them, for sequences of so many tokens.
TrainerConfig bench_trainer(const Context& context, const ModelBenchOptions& options, int64_t length);
// An engine that runs so many sequences of so many tokens at once, but for what options.engine says.
EngineConfig bench_engine(const ModelBenchOptions& options, int64_t sequences, int64_t length);

}  // namespace hone
