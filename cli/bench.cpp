// hone bench: the speed of ops, models and rewards.
#include <cstdio>

#include "cli/bench/comm.h"
#include "cli/bench/comm_beside.h"
#include "cli/bench/model_bench.h"
#include "cli/bench/op_bench.h"
#include "cli/bench/rewards.h"
#include "cli/command.h"
#include "cli/model_arguments.h"
#include "model/io/known_shapes.h"
#include "run/recipe/recipe.h"

namespace hone {
namespace {

class BenchCommand : public Command {
 public:
  std::string summary() const override { return "measure the speed of ops, models and rewards"; }
  std::string example() const override {
    return "hone bench ops --filter gemm\n  hone bench train --shape qwen2.5-0.5b --batch 16 --tokens 1024 --device "
           "cuda --recompute selective "
           "--json\n  hone bench rollout --shape qwen2.5-0.5b --prompts 256 --prompt-tokens 128 --new-tokens 256 "
           "--device cuda --peer peers.jsonl";
  }
  void arguments(Arguments& a) override {
    std::vector<std::string> kinds = model_benches().names();
    kinds.insert(kinds.end(), {"comm", "ops", "rewards"});
    a.choice("what", what_, kinds, "what to measure");
    a.option("filter", filter_, "only ops or rewards whose name contains this; empty = all");
    a.option("seconds", seconds_,
             "measuring time of each op body and shape, of each reward case, or of each exchange between ranks");
    a.option("ranks", ranks_,
             "comm: number of ranks; 0 = one per GPU, and 2 on a CPU or with one GPU | train: the batch is divided "
             "between so many ranks; 0 = 1");
    a.option("zero", model_.zero, "train: ZeRO stage of several ranks: 1 | 2 | 3");
    a.option("shape", model_.shape,
             ("model: " + join(known_shapes()) + ", a config.json, a model folder, or a .gguf file").c_str());
    a.option("batch", model_.batch, "number of sequences");
    a.option("tokens", model_.tokens, "tokens of a sequence, prompt or context");
    a.option("repeats", model_.repeats, "number of measurements; the median is reported");
    a.option("device", device_, "cpu | cuda | auto, or meta: computes nothing, which measures the host's own work");
    a.option("dtype", model_.dtype, "dtype of the model: f32 | bf16 | auto (bf16 on cuda, f32 on cpu)");
    a.option("numerics", model_.numerics, "exact | fast, as in hone generate");
    a.option("prompts", model_.prompts, "rollout, grpo: number of prompts; 0 = 256 for rollout, 16 for grpo");
    a.option("num-generations", model_.num_generations,
             "rollout, grpo: completions of each prompt; 0 = 1 for rollout, 16 for grpo");
    a.option("prompt-tokens", model_.prompt_tokens, "rollout, grpo: tokens of a prompt");
    a.option("new-tokens", model_.new_tokens, "rollout, grpo: tokens of a completion");
    a.options("engine", model_.engine,
              "rollout, grpo, decode: key=value of a recipe's [rollout] table (may be repeated)");
    a.option("structured", model_.tokenizer,
             "rollout: a folder with a tokenizer: measure structured output as well, and what it costs; empty = off");
    a.option(
        "json-schema", model_.json_schema,
        "rollout: JSON schema of --structured, a file or the text; documents must be longer than --new-tokens; empty "
        "= a list of 2000 records");
    a.option("peer", model_.comparison,
             "JSON Lines file with results of other programs; equal measurements are shown next to hone's");
    a.option("micro-batch-tokens", model_.micro_batch_tokens,
             "train: tokens of one forward and backward pass; 0 = 8192 on cuda, 2048 on cpu");
    a.option("recompute", model_.recompute, "train: activations that are recomputed: none | selective | full");
    a.option("optimizer", model_.optimizer, ("train: " + join(optimizers().names(), " | ")).c_str());
    a.option("moments", model_.moments, "train: dtype of the optimizer's moments: f32 | bf16");
    a.flag("profile", model_.profile, "train: also report the time of each op in a step");
    a.flag("json", json_, "print JSON Lines");
  }
  int run() override {
    require_usage(seconds_ > 0 && seconds_ <= 3600, "bench: --seconds is ", seconds_, "; it must be in (0, 3600]");
    for (const auto& [name, count] : {std::pair{"batch", model_.batch},
                                      {"tokens", model_.tokens},
                                      {"repeats", model_.repeats},
                                      {"prompt-tokens", model_.prompt_tokens},
                                      {"new-tokens", model_.new_tokens}})
      require_usage(count > 0 && count <= int64_t{1} << 20, "bench: --", name, " is ", count,
                    "; it must be in [1, 1048576]");
    for (const auto& [name, count] :
         {std::pair{"prompts", model_.prompts}, {"num-generations", model_.num_generations}})
      require_usage(count >= 0 && count <= 65536, "bench: --", name, " is ", count, "; it must be in [0, 65536]");
    require_usage(model_.micro_batch_tokens >= 0 && model_.micro_batch_tokens <= int64_t{1} << 24,
                  "bench: --micro-batch-tokens is ", model_.micro_batch_tokens, "; it must be in [0, 16777216]");
    require_usage(ranks_ >= 0 && ranks_ <= 64 && ranks_ != 1, "bench: --ranks is ", ranks_,
                  "; it must be 0 or in [2, 64]");
    require_usage(model_.tokenizer.empty() || what_ == "rollout", "bench: --structured is an option of rollout");
    StructuredOutput structured{.json = model_.json_schema};
    read_structured_files(structured);
    model_.json_schema = structured.json;
    if (what_ == "rewards") return rewards();
    if (what_ == "comm") return comm();
    require_usage(ranks_ == 0 || what_ == "train", "bench: --ranks is for comm and train");
    require_usage(ranks_ == 0 || !model_.profile, "bench: --profile measures one rank: remove --ranks");
    require_usage(model_.zero >= 1 && model_.zero <= 3, "bench: --zero is ", model_.zero, "; it must be 1, 2 or 3");
    if (ranks_ > 1) return print(bench_train_ranks(devices_of_ranks(), model_));
    const std::unique_ptr<Device> device = open_device(device_);
    Context context(*device);
    if (what_ != "ops") return model(context);
    context.set_numerics(numerics_of(model_.numerics));
    return ops(context, measure_limits(context));
  }

 private:
  int rewards() const {
    const std::vector<RewardBench> rows = bench_rewards(filter_, seconds_);
    HONE_CHECK(!rows.empty(), "bench: no reward's name contains '", filter_, "'; see hone list rewards");
    for (const RewardBench& row : rows)
      if (json_)
        std::printf(
            "%s\n",
            Json(JsonObject{{"reward", row.reward}, {"case", row.what}, {"judgements_per_second", row.per_second}})
                .dump()
                .c_str());
      else
        std::printf("%-10s %-26s %10.0f judgements/s\n", row.reward.c_str(), row.what.c_str(), row.per_second);
    return 0;
  }
  std::vector<std::string> devices_of_ranks() const {
    Recipe recipe;
    recipe.device.kind = device_;
    recipe.parallel.ranks = ranks_;
    return rank_devices(recipe);
  }
  int comm() const {
    std::vector<std::string> devices = devices_of_ranks();
    if (devices.size() == 1) devices.push_back(devices.front());
    const std::vector<CommBench> rows = bench_comm(devices, seconds_);
    if (!json_) std::printf("%s", comm_table(rows, devices).c_str());
    for (const CommBench& row : rows)
      if (json_) std::printf("%s\n", row.json().dump().c_str());
    if (const std::optional<CommBeside> beside = bench_comm_beside(devices))
      std::printf("%s", json_ ? (beside->json().dump() + "\n").c_str() : beside->text().c_str());
    return 0;
  }
  int ops(Context& context, const MachineLimits& limits) const {
    const std::vector<BenchRow> rows = run_bench(context, limits, filter_, seconds_);
    HONE_CHECK(!rows.empty(), "bench: no op's name contains '", filter_, "'; see hone list ops");
    if (!json_) {
      std::printf("%s", bench_table(limits, rows, context.device().description()).c_str());
      return 0;
    }
    for (const BenchRow& row : rows)
      std::printf("%s\n", Json(JsonObject{{"op", row.op},
                                          {"shape", row.shape},
                                          {"body", row.body},
                                          {"seconds", row.seconds},
                                          {"flops_per_second", row.flops},
                                          {"bytes_per_second", row.bytes},
                                          {"share", row.roofline_fraction},
                                          {"beside", row.beside},
                                          {"limit", row.compute_bound ? "arithmetic" : "bandwidth"}})
                              .dump()
                              .c_str());
    return 0;
  }
  int model(Context& context) const { return print(bench_model(what_, context, model_)); }
  int print(const ModelBenchResult& result) const {
    std::printf("%s\n", (json_ ? result.row.dump() : result.text).c_str());
    return 0;
  }
  std::string what_, filter_, device_ = "auto";
  double seconds_ = 0.3;
  int64_t ranks_ = 0;
  ModelBenchOptions model_;
  bool json_ = false;
};

[[maybe_unused]] const bool added = commands().add("bench", [] { return std::unique_ptr<Command>(new BenchCommand); });

}  // namespace
}  // namespace hone
