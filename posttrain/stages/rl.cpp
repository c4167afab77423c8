// Reinforcement learning on verifiable rewards: sample, score, give credit, learn.
#include "core/file.h"
#include "core/log.h"
#include "core/net/bearer_keys.h"
#include "core/stopwatch.h"
#include "posttrain/experience.h"
#include "posttrain/objective_spec.h"
#include "posttrain/reference.h"
#include "posttrain/replica.h"
#include "posttrain/rollouts.h"
#include "posttrain/stage.h"
#include "posttrain/train_loop.h"
#include "posttrain/worker_source.h"

namespace hone {
namespace {

// One row for a round's updates.
StepReport combine(const std::vector<StepReport>& updates) {
  StepReport out;
  const double share = 1.0 / static_cast<double>(updates.size());
  std::vector<Metrics> metrics;
  for (const StepReport& update : updates) {
    out.loss += share * update.loss;
    out.grad_norm += share * update.grad_norm;
    out.learning_rate = update.learning_rate;
    out.num_tokens += update.num_tokens;
    out.num_trained_tokens += update.num_trained_tokens;
    out.num_sequences += update.num_sequences;
    out.seconds += update.seconds;
    out.times += update.times;
    metrics.push_back(update.metrics);
  }
  out.metrics = fold_metrics(metrics);
  return out;
}

class Rl : public Stage {
 public:
  void fields(Fields& f) override {
    tasks_.fields(f);
    rounds_.fields(f);
    rollouts_.fields(f);
    f("num_iterations", num_iterations_, "passes over a round's samples");
    f("mini_batches", mini_batches_, "optimizer updates each pass is cut into");
    f("log_samples", log_samples_, "completions of a step that go to samples.jsonl, group by group; -1 = all, 0 = none");
    actor_.fields(f);
    objective_.fields(f);
    f("critic", loop_.trainer.critic, "of objectives that need values (ppo)");
    loop_.fields(f);
    f.require("num_iterations", num_iterations_ > 0 && num_iterations_ <= 1024, "num_iterations must be in [1, 1024]");
    f.require("log_samples", log_samples_ >= -1, "log_samples must be -1 (all), 0 (none) or more");
    f.require("mini_batches", mini_batches_ > 0 && mini_batches_ <= rounds_.prompts_per_step * actor_.num_generations,
              "mini_batches must be in [1, prompts_per_step * num_generations]");
    f.require("filter_groups", !rounds_.filter_groups.enable || actor_.num_generations > 1, "filter_groups needs num_generations above 1");
    loop_.trainer.temperature = actor_.sampling.temperature > 0 ? actor_.sampling.temperature : 1;
  }
  std::string default_name() const override { return objective_.objective; }
  int64_t steps() const override { return loop_.steps; }
  StepShape step_shape(const ModelShape& model) const override {
    return {.sequences = (rounds_.prompts_per_step * actor_.num_generations + mini_batches_ - 1) / mini_batches_,
            .length = model.max_positions,
            .updates = num_iterations_ * mini_batches_,
            .objective = objective_.made.get(),
            .trainer = &loop_.trainer,
            .reference = objective_.made->needs().reference,
            .rollout = true,
            .kept_versions = rollouts_.kept_versions()};
  }
  void check(const Recipe& recipe) const override {
    const std::string& device = recipe.rollout.device;
    HONE_CHECK(device.empty() || rollouts_.max_staleness > 0, "rl: [rollout] device is ", device,
               ", and an engine that takes turns with the learner is beside it: max_staleness must be above 0");
    HONE_CHECK(device.empty() || recipe.rollout.pool.workers.empty(), "rl: [rollout] has a device and workers: give one of them");
    if (const std::string& file = recipe.rollout.pool.worker_key_file; !file.empty()) read_keys(expand_path(file));
    HONE_CHECK(recipe.rollout.pool.workers.empty() || recipe.rollout.speculative.model.empty(),
               "rl: rollout.speculative.model is a folder of this machine, and workers have no files: method ngram or none goes with them");
    HONE_CHECK(device.empty() || device_kind(device) == device_kind(recipe.device), "rl: [rollout] device is ", device, ", the learner's is ",
               recipe.device, ": they must be of one kind");
    HONE_CHECK(actor_.reward.reward, "rl: the stage needs a reward ([stage.reward] kind = \"...\"; known: ", join(rewards().names()), ")");
    actor_.reward.check();
  }

  void run(Run& run) override {
    const std::vector<Task> tasks = load_tasks(tasks_);
    log::info("rl: ", tasks.size(), " tasks");
    Objective& objective = *objective_.made;
    const bool exact = run.recipe.rollout.exact();
    if (rollouts_.max_staleness > 0 || !exact) objective.off_policy();
    const Needs needs = objective.needs();
    const uint64_t seed = run.stage_seed();
    ActorConfig actor_config = actor_;
    actor_config.sampling.seed ^= static_cast<int64_t>(seed >> 1);
    Trainer trainer(run.context, *run.model, loop_.trainer);
    std::unique_ptr<Reference> reference;
    if (needs.reference) reference = std::make_unique<Reference>(run, loop_.trainer.temperature);
    Rounds rounds(rounds_, tasks, seed);
    WeightQueue weights(run.context, *run.model, rollouts_.deterministic ? WeightQueue::Keep::all : WeightQueue::Keep::newest);
    Rollouts rollouts(rollouts_, actor_config, *run.tokenizer, rounds, loop_.steps, source(run, weights));

    train_loop(run, loop_, trainer, {{"rounds", &rollouts}, {"objective", &objective}}, [&](int64_t step, double learning_rate) {
      const Stopwatch watch;
      Rollouts::Next next = rollouts.next(step);
      Experience experience(std::move(next.groups));
      const double sampling_seconds = watch.seconds();
      if (needs.behavior || needs.old) experience.set_old_logp(run.context, *run.model, loop_.trainer.temperature, step, exact);
      if (reference) reference->score_into(experience.groups);
      if (needs.critic) experience.set_values(trainer.values(experience.samples()));
      MetricSums credit;
      objective.credit(experience.groups, credit);
      std::vector<StepReport> updates;
      for (int64_t epoch = 0; epoch < num_iterations_; ++epoch)
        for (const auto& mini : experience.mini_batches(mini_batches_, needs.per, seed, static_cast<uint64_t>(step * num_iterations_ + epoch)))
          updates.push_back(trainer.step(mini, objective, learning_rate));
      StepReport report = combine(updates);
      report.metrics.merge(credit.means());
      report.metrics.merge(experience.metrics());
      for (const auto& [name, value] : next.metrics) report.metrics[name] += value;
      report.sampling_seconds = sampling_seconds;
      experience.log_samples(run.log, run.first_step + step + 1, log_samples_);
      return report;
    });
    if (rollouts.failed_replies() > 0) log::warning("rl: ", rollouts.failed_replies(), " replies could not be sampled");
  }

 private:
  // The sampler beside the learner, one with a copy of its weights, or workers.
  RolloutSource source(Run& run, WeightQueue& weights) const {
    if (!run.recipe.rollout.pool.workers.empty()) return worker_source(run, weights, rollouts_.max_staleness > 0);
    const auto sampler = [&run](Context& context, Model& model) {
      return std::make_unique<LocalSampler>(context, model, *run.tokenizer, run.recipe.rollout);
    };
    if (rollouts_.max_staleness == 0) return {.make = [&run, sampler] { return sampler(run.context, *run.model); }};
    return {.make = [&, sampler] { return std::make_unique<Replica>(run.context, *run.model, weights, run.recipe.rollout.device, sampler); },
            .keep = [&](int64_t version) { weights.push(version); }};
  }

  TaskSource tasks_;
  RoundConfig rounds_;
  RolloutsConfig rollouts_;
  ActorConfig actor_;
  ObjectiveSpec objective_{.objective = "grpo", .made = {}};
  LoopConfig loop_;
  int64_t num_iterations_ = 1, mini_batches_ = 1, log_samples_ = 64;
};

[[maybe_unused]] const bool added = stages().add("rl", [] { return std::unique_ptr<Stage>(new Rl); });

}  // namespace
}  // namespace hone
