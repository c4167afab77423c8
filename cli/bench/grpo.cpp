// The bench "grpo": one step with sampling, random rewards, advantages, and an update of the weights, which the engine
// reads in place.
#include <algorithm>

#include "cli/bench/rollout.h"
#include "core/base/format.h"
#include "core/base/rng.h"
#include "core/base/stopwatch.h"
#include "posttrain/rl/collector.h"
#include "posttrain/rl/rollout_batch.h"
#include "train/objective.h"
#include "train/trainer.h"

namespace hone {
namespace {

struct GrpoTimes {
  RolloutTimes rollout;
  double train = 0, logp_difference = 0;
  double seconds() const { return rollout.seconds + train; }
};

std::vector<Group> groups_of(std::span<const GenerationRequest> requests,
                             std::vector<std::vector<CompletionOutput>> completions) {
  std::vector<Group> out(requests.size());
  for (size_t i = 0; i < out.size(); ++i) {
    Rng reward(2, requests[i].id);
    for (CompletionOutput& completion : completions[i]) {
      out[i].samples.push_back(to_training_sample(requests[i], std::move(completion)));
      out[i].samples.back().reward = reward.normal();
    }
  }
  return out;
}

class GrpoBench {
 public:
  GrpoBench(Context& context, Model& model, const ModelBenchOptions& options, const RolloutSize& size)
      : context_(context),
        model_(model),
        size_(size),
        trainer_(context, model, bench_trainer(context, options, size.length())),
        engine_(context, model, nullptr, bench_engine(options, size.completions(), size.length())),
        objective_(make_objective("grpo")) {}

  GrpoTimes step(int64_t number) {
    const std::vector<GenerationRequest> requests =
        rollout_requests(size_, model_.shape().vocab_size, static_cast<uint64_t>(number));
    GrpoTimes out{.rollout = time_rollout(engine_, size_, requests)};
    const Stopwatch watch;
    RolloutBatch experience(groups_of(requests, std::move(out.rollout.completions)));
    experience.set_old_logp(context_, model_, 1, engine_.version());
    MetricSums credit;
    objective_->compute_advantages(experience.groups, credit);
    const StepReport report = trainer_.step(experience.samples(), *objective_, 1e-6);
    context_.synchronize();
    out.train = watch.seconds();
    const auto difference =
        report.metrics.find("sampling/sampling_logp_difference/max");  // absent if nothing was computed
    if (difference != report.metrics.end()) out.logp_difference = difference->second;
    return out;
  }

 private:
  Context& context_;
  Model& model_;
  RolloutSize size_;
  Trainer trainer_;
  Engine engine_;
  std::unique_ptr<Objective> objective_;
};

std::string grpo(Context& context, Model& model, const ModelBenchOptions& options, const MachineLimits& limits,
                 Json& row) {
  const RolloutSize size{.prompts = options.prompts > 0 ? options.prompts : 16,
                         .num_generations = options.num_generations > 0 ? options.num_generations : 16,
                         .prompt_tokens = options.prompt_tokens,
                         .new_tokens = options.new_tokens};
  GrpoBench bench(context, model, options, size);
  bench.step(0);  // warm-up: takes the memory
  std::vector<GrpoTimes> steps;
  for (int64_t i = 0; i < options.repeats; ++i) steps.push_back(bench.step(i + 1));
  const auto middle = steps.begin() + std::ssize(steps) / 2;
  std::nth_element(steps.begin(), middle, steps.end(),
                   [](const GrpoTimes& a, const GrpoTimes& b) { return a.seconds() < b.seconds(); });
  const double num_tokens = static_cast<double>(size.completions() * size.new_tokens),
               rate = num_tokens / middle->seconds();
  row.set("P", size.prompts);
  row.set("G", size.num_generations);
  row.set("prompt", size.prompt_tokens);
  row.set("new", size.new_tokens);
  row.set("seconds", middle->seconds());
  row.set("tokens_per_second", rate);
  row.set("gen_s", middle->rollout.seconds);
  row.set("train_s", middle->train);
  row.set("completion_tok_s", rate);
  row.set("gen_tok_s", num_tokens / middle->rollout.seconds);
  row.set("train_tok_s", static_cast<double>(size.completions() * size.length()) / middle->train);
  row.set("logp_difference_max", middle->logp_difference);
  const std::string shares =
      add_rollout(row, middle->rollout,
                  Roofline(model, limits, bench_engine(options, size.completions(), size.length()))
                      .rollout(size.prompts, size.num_generations, size.prompt_tokens, size.new_tokens));
  row.set("peak_gb", peak_gigabytes(context));
  return format_text(
             "%lld x %lld completions, %lld + %lld tokens: %.1f tokens/s, %.3f s generating and %.3f s training; "
             "generating: ",
             static_cast<long long>(size.prompts), static_cast<long long>(size.num_generations),
             static_cast<long long>(size.prompt_tokens), static_cast<long long>(size.new_tokens), rate,
             middle->rollout.seconds, middle->train) +
         shares;
}

[[maybe_unused]] const bool added =
    model_benches().add("grpo", {.run = grpo,
                                 .length = [](const ModelBenchOptions& o) { return o.prompt_tokens + o.new_tokens; },
                                 .trains = true,
                                 .peers = {"grpo_step_hf"}});

}  // namespace
}  // namespace hone
