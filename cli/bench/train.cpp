// The bench "train": optimizer steps of SFT on random tokens.
#include "cli/bench/model_bench.h"
#include "core/base/format.h"
#include "core/comm/launch.h"
#include "kernels/op_times.h"
#include "model/flops.h"
#include "train/parallel/zero.h"
#include "train/trainer.h"

namespace hone {
namespace {

std::string op_table(const JsonArray& rows) {
  std::string out;
  for (const Json& op : rows)
    out += format_text("\n  %-24s %6lld calls %10.3f ms", op.at("op").as_string().c_str(),
                       static_cast<long long>(op.at("calls").as_int()), 1e3 * op.at("seconds").as_double());
  return out;
}

// The first token of a sequence is not trained on. The count of FLOPs includes it.
std::string train(Context& context, Model& model, const ModelBenchOptions& options, const MachineLimits& limits,
                  Json& row) {
  HONE_CHECK(options.tokens >= 2, "bench: a training sequence has at least 2 tokens");
  TrainerConfig config = bench_trainer(context, options, options.tokens);
  const int ranks = options.ranks.size();
  config.micro_batch_multiple = ranks;
  const std::unique_ptr<StepExchange> exchange = make_exchange(options.ranks, options.zero);
  Trainer trainer(context, model, config, exchange.get());
  std::vector<Sample> samples(static_cast<size_t>(options.batch));
  std::vector<const Sample*> batch;
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].tokens = random_tokens(options.tokens, model.shape().vocab_size, i);
    set_mask(samples[i]);
    batch.push_back(&samples[i]);
  }
  const std::unique_ptr<Objective> objective = make_objective("sft");
  trainer.step(batch, *objective, 1e-4);  // warm-up: takes the memory
  StepReport report;
  const double seconds = median_seconds(options.repeats, [&] { report = trainer.step(batch, *objective, 1e-4); });
  JsonArray ops;
  if (options.profile) {
    const OpTimes times;
    trainer.step(batch, *objective, 1e-4);
    for (const OpTime& op : times.read(context))
      ops.push_back(JsonObject{{"op", op.name}, {"calls", op.calls}, {"seconds", op.seconds}});
    row.set("ops", ops);
  }
  const double rate = static_cast<double>(options.batch * options.tokens) / seconds;
  const ModelFlops plan = count_flops(model, options.tokens);
  row.set("batch", options.batch);
  row.set("tokens", options.tokens);
  row.set("seconds", seconds);
  row.set("tokens_per_second", rate);
  row.set("ranks", ranks);
  if (ranks > 1) row.set("zero", options.zero);
  row.set("flops_per_second", rate / ranks * plan.train_flops_per_token);  // of a rank
  row.set("loss", report.loss);
  row.set("micro_batch_tokens", config.micro_batch_tokens);
  row.set("recompute", options.recompute);
  row.set("optimizer", options.optimizer);
  row.set("moments", options.moments);
  row.set("flops_per_token", plan.causal_train_flops_per_token);
  for (const auto& [name, value] : {std::pair{"data", report.times.data},
                                    {"forward", report.times.forward},
                                    {"head", report.times.lm_head},
                                    {"backward", report.times.backward},
                                    {"exchange", report.times.exchange},
                                    {"optimizer", report.times.optimizer}})
    row.set(concat("time/", name), value);
  row.set("B", options.batch);
  row.set("T", options.tokens);
  row.set("tok_s", rate);
  row.set("model_tflops", rate / ranks * plan.causal_train_flops_per_token * 1e-12);
  row.set("mfu_989", rate / ranks * plan.causal_train_flops_per_token / 989e12);
  row.set("peak_gb", peak_gigabytes(context));
  const std::string on_ranks = ranks > 1 ? format_text(" on %d ranks", ranks) : "";
  return format_text("batch %lld, %lld tokens%s: %.1f tokens/s, %.0f%% of the machine's measured arithmetic peak",
                     static_cast<long long>(options.batch), static_cast<long long>(options.tokens), on_ranks.c_str(),
                     rate, 100 * rate / ranks * plan.train_flops_per_token / limits.flops) +
         op_table(ops);
}

[[maybe_unused]] const bool added = model_benches().add("train", {.run = train, .trains = true, .peers = {"train"}});

}  // namespace

// OpObserver sees the ops of one rank, so there is no profile of several.
ModelBenchResult bench_train_ranks(const std::vector<std::string>& devices, const ModelBenchOptions& options) {
  ModelBenchResult out;
  run_ranks(devices, {}, [&](const Ranks& ranks, Device& device) {
    Context context(device);
    ModelBenchOptions own = options;
    own.ranks = ranks;
    ModelBenchResult result = bench_model("train", context, own);
    if (ranks.is_first()) out = std::move(result);
  });
  return out;
}

}  // namespace hone
