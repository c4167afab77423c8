#include "kernels/bench.h"

#include <cstdio>

#include "cli/bench_model.h"
#include "cli/bench_rewards.h"
#include "cli/command.h"
#include "cli/model_arguments.h"

namespace hone {
namespace {

class BenchCommand : public Command {
 public:
  std::string summary() const override { return "speeds of operations and models beside this machine's limits, and of rewards"; }
  std::string example() const override {
    return "hone bench ops --filter gemm\n  hone bench train --shape qwen2.5-0.5b --batch 16 --tokens 1024 --device cuda --recompute selective "
           "--json";
  }
  void arguments(Arguments& a) override {
    a.choice("what", what_, {"ops", "train", "prefill", "decode", "rewards"}, "ops | train | prefill | decode | rewards");
    a.option("filter", filter_, "operations or rewards whose name holds this");
    a.option("seconds", seconds_, "time for each body of each operation's case, or each case of a reward");
    a.option("shape", model_.shape, ("model: " + join(model_bench_shapes()) + ", or a config.json").c_str());
    a.option("batch", model_.batch, "sequences");
    a.option("tokens", model_.tokens, "tokens of a sequence, prompt or context");
    a.option("repeats", model_.repeats, "the median counts");
    a.option("device", device_, "cpu | cuda | auto");
    a.option("dtype", model_.dtype, "of a model: f32 | bf16 | auto (bf16 on cuda, f32 on cpu)");
    a.option("numerics", model_.numerics, "exact | fast");
    a.option("micro-batch-tokens", model_.micro_batch_tokens, "of training: tokens of one forward and backward pass; 0 = 8192 on cuda, 2048 on cpu");
    a.option("recompute", model_.recompute, "of training: none | selective | block");
    a.option("moments", model_.moments, "of training: f32 | bf16");
    a.flag("profile", model_.profile, "of training: the time of each op in a step, too");
    a.flag("json", json_, "JSON Lines");
  }
  int run() override {
    require_usage(seconds_ > 0 && seconds_ <= 3600, "bench: --seconds is ", seconds_, ", it must be in (0, 3600]");
    for (const auto& [name, count] : {std::pair{"batch", model_.batch}, {"tokens", model_.tokens}, {"repeats", model_.repeats}})
      require_usage(count > 0 && count <= int64_t{1} << 20, "bench: --", name, " is ", count, ", it must be in [1, 1048576]");
    require_usage(model_.micro_batch_tokens >= 0 && model_.micro_batch_tokens <= int64_t{1} << 24, "bench: --micro-batch-tokens is ",
                  model_.micro_batch_tokens, ", it must be in [0, 16777216]");
    if (what_ == "rewards") return judgements();
    const std::unique_ptr<Device> device = open_device(device_);
    Context context(*device);
    if (what_ == "ops") context.set_numerics(numerics_of(model_.numerics));
    const MachineLimits limits = measure_limits(context);
    return what_ == "ops" ? ops(context, limits) : model(context, limits);
  }

 private:
  int judgements() const {
    const std::vector<RewardBench> rows = bench_rewards(filter_, seconds_);
    HONE_CHECK(!rows.empty(), "bench: no reward's name holds '", filter_, "'");
    for (const RewardBench& row : rows)
      if (json_)
        std::printf("%s\n", Json(JsonObject{{"reward", row.reward}, {"case", row.what}, {"judgements_per_second", row.per_second}}).dump().c_str());
      else
        std::printf("%-10s %-26s %10.0f judgements/s\n", row.reward.c_str(), row.what.c_str(), row.per_second);
    return 0;
  }
  int ops(Context& context, const MachineLimits& limits) const {
    const std::vector<BenchRow> rows = run_bench(context, limits, filter_, seconds_);
    HONE_CHECK(!rows.empty(), "bench: no operation's name holds '", filter_, "'");
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
                                          {"share", row.share},
                                          {"limit", row.compute_bound ? "arithmetic" : "bandwidth"}})
                              .dump()
                              .c_str());
    return 0;
  }
  int model(Context& context, const MachineLimits& limits) const {
    Json row = bench_model(what_, context, model_);
    row.set("limit_flops_per_second", limits.flops);
    row.set("limit_bytes_per_second", limits.read_bandwidth);
    const bool arithmetic = row.find("flops_per_second") != nullptr;
    const double share =
        arithmetic ? row.at("flops_per_second").as_double() / limits.flops : row.at("bytes_per_second").as_double() / limits.read_bandwidth;
    row.set("share", share);
    if (json_)
      std::printf("%s\n", row.dump().c_str());
    else
      std::printf("%s %s, batch %lld, %lld tokens: %.1f tokens/s, %.0f%% of the machine's %s\n", what_.c_str(), model_.shape.c_str(),
                  static_cast<long long>(model_.batch), static_cast<long long>(model_.tokens), row.at("tokens_per_second").as_double(), 100 * share,
                  arithmetic ? "measured arithmetic peak" : "measured read bandwidth");
    if (const Json* rows = row.find("ops"); rows && !json_)
      for (const Json& op : rows->as_array())
        std::printf("  %-24s %6lld calls %10.3f ms\n", op.at("op").as_string().c_str(), static_cast<long long>(op.at("calls").as_int()),
                    1e3 * op.at("seconds").as_double());
    return 0;
  }
  std::string what_, filter_, device_ = "auto";
  double seconds_ = 0.3;
  ModelBench model_;
  bool json_ = false;
};

[[maybe_unused]] const bool added = commands().add("bench", [] { return std::unique_ptr<Command>(new BenchCommand); });

}  // namespace
}  // namespace hone
