#pragma once
// Speed of models, compared with the machine's limits and with the figures of other programs. Weights are random unless
// a folder with weights is given. Each bench is one file, which adds itself with one line:
//   [[maybe_unused]] const bool added = model_benches().add("prefill", {.run = prefill});
#include <functional>
#include <string>
#include <vector>

#include "cli/bench/op_bench.h"
#include "core/comm/ranks.h"
#include "core/io/json.h"
#include "model/model.h"
#include "rollout/engine.h"
#include "train/trainer.h"

namespace hone {

struct ModelBenchOptions {
  std::string shape = "llama-124m";  // a name of known_shapes(), a config.json, or a folder with weights
  int64_t batch = 1, tokens = 256;   // sequences; tokens of a sequence (train), prompt (prefill), context (decode)
  int64_t repeats = 5;               // the result is the median
  std::string dtype = "auto", numerics = "exact";
  std::string comparison;  // JSON Lines with the figures of other programs (cli/bench/peer.h); empty: none
  // rollout and grpo
  int64_t prompts = 0;                                                 // 0: 256; 16 for grpo
  int64_t prompt_tokens = 128, new_tokens = 256, num_generations = 0;  // num_generations 0: 1; 16 for grpo
  std::vector<std::string> engine;                                     // key=value pairs of [rollout]
  std::string tokenizer, json_schema;  // rollout: also with structured output; json_schema: text, empty = built in
  // train and grpo
  int64_t micro_batch_tokens = 0;  // 0: 8192 on cuda, else 2048; at least one sequence
  std::string recompute = "none", optimizer = "adamw", moments = "f32";
  bool profile = false;  // train: one more step that measures the time of each op
  Ranks ranks = {};      // train: the ranks that call together, each with its own context
  int64_t zero = 2;      // their ZeRO stage
};

struct ModelBench {
  // Adds its figures to the row and returns them as a line of text. Required: tokens_per_second and seconds. The share
  // of the limits follows from flops_per_second or bytes_per_second, unless the bench sets "share" itself.
  using Run = std::string (*)(Context&, Model&, const ModelBenchOptions&, const MachineLimits&, Json& row);
  Run run = nullptr;
  int64_t (*length)(const ModelBenchOptions&) = [](const ModelBenchOptions& o) {
    return o.tokens;
  };                                 // tokens of a sequence, which must fit the model
  bool trains = false;               // the model has gradients
  std::vector<std::string> peers{};  // names of the same bench in other programs (cli/bench/peer.h)
};
Registry<ModelBench>& model_benches();

struct ModelBenchResult {
  Json row;  // {what, shape, params, tokens_per_second, seconds, share, ...}; with a comparison also peers
  std::string text;
};
ModelBenchResult bench_model(const std::string& what, Context& context, const ModelBenchOptions& options);
// The bench "train" on ranks with these devices. The batch is that of all ranks.
ModelBenchResult bench_train_ranks(const std::vector<std::string>& devices, const ModelBenchOptions& options);

// The median of `repeats` runs, after one warm-up run.
double median_seconds(int64_t repeats, const std::function<void()>& run);
std::vector<int32_t> random_tokens(int64_t count, int64_t vocabulary, uint64_t stream);
double peak_gigabytes(const Context& context);
// The settings of a trainer for sequences of `length` tokens.
TrainerConfig bench_trainer(const Context& context, const ModelBenchOptions& options, int64_t length);
// The settings of an engine that runs `sequences` sequences of `length` tokens at once. options.engine overrides them.
EngineConfig bench_engine(const ModelBenchOptions& options, int64_t sequences, int64_t length);

}  // namespace hone
