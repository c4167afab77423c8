// Learning from completions that the policy samples and a reward scores. Stage "rl": advantages of single completions.
// Stage "online_dpo": preference pairs of a prompt's completions (Guo et al. 2024).
#include <algorithm>
#include <iterator>
#include <limits>
#include <map>

#include "core/base/log.h"
#include "core/base/stopwatch.h"
#include "core/config/choice.h"
#include "core/io/file.h"
#include "core/net/bearer_keys.h"
#include "posttrain/data_completions.h"
#include "posttrain/losses/group_pairs.h"
#include "posttrain/losses/top_entropy.h"
#include "posttrain/reference.h"
#include "posttrain/rl/replica_backend.h"
#include "posttrain/rl/reward_watch.h"
#include "posttrain/rl/rollout_batch.h"
#include "posttrain/rl/rollout_config.h"
#include "posttrain/rl/rollout_file.h"
#include "posttrain/rl/shared_rollouts.h"
#include "posttrain/rl/source_reward.h"
#include "posttrain/rl/worker_source.h"
#include "posttrain/rl_sources.h"
#include "posttrain/teacher/stage_teacher.h"
#include "train/loop.h"
#include "train/objective.h"
#include "train/parallel/zero.h"
#include "train/shared_scores.h"
#include "train/shown_sample.h"
#include "train/stage.h"

namespace hone {
namespace {

// Combines the updates of a rollout batch into one report.
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
    out.samples_digest = out.samples_digest * 31 + update.samples_digest;
    out.weights_digest = out.weights_digest * 31 + update.weights_digest;
    out.flops += update.flops;
    out.seconds += update.seconds;
    out.times += update.times;
    metrics.push_back(update.metrics);
  }
  out.metrics = fold_metrics(metrics);
  return out;
}

std::vector<Group*> pointers_to(std::vector<Group>& groups) {
  std::vector<Group*> out;
  for (Group& group : groups) out.push_back(&group);
  return out;
}

// The run-time objects of one run of the stage.
struct Learning {
  StageContext& stage;
  Objective& objective;
  const TeacherObjective* taught;  // the objective if it has a teacher, else null
  StageTeacher* teacher;           // of `taught`
  Trainer& trainer;
  Reference* reference;  // null: the objective needs none
  SharedRollouts& rollouts;
  bool exact;        // the sampler's log-probs have the learner's bits
  bool takes_turns;  // with the engine: activations are freed while it generates
  RewardWatch watch = {};
};

class Rl : public Stage {
 public:
  // learns_from: rewarded completions, or pairs of them.
  explicit Rl(TrainingData learns_from) : learns_from_(learns_from) {
    loop_.schedule = linear_decay(makes_pairs() ? online_dpo_learning_rate : default_learning_rate);
    if (!makes_pairs()) return;
    objective_ = Choice<ObjectiveSettings>("dpo");
    actor_.num_generations = 2;
  }
  void fields(Fields& f) override {
    tasks_.fields(f);
    rounds_.fields(f);
    rollouts_.fields(f);
    f("num_iterations", num_iterations_, "epochs over the samples of a rollout batch");
    f.alias("mini_batches", "num_mini_batches");
    f("num_mini_batches", num_mini_batches_, "optimizer updates of each epoch");
    f("log_samples", log_samples_,
      "number of completions of a step to write to samples.jsonl, group by group; -1 = all, 0 = none");
    f("keep_rollouts", keep_rollouts_,
      "true: write all completions of a step with token ids, log-probs and advantages to rollouts/step-N.jsonl.gz");
    actor_.fields(f);
    sources_.fields(f, own_source(), [](Fields& g, RlSource& source) { source.source_fields(g); });
    objective_.fields(f, "objective", "what is optimized (hone list objectives)");
    require_data(f, objective_.kind(), *objective_, learns_from_);
    const Needs needs = objective_->make({})->needs();
    if (makes_pairs())
      pairs_.fields(f);
    else
      critic_fields(f, needs);
    sync_.fields(f, needs.has(columns::reference_logp));
    loop_.fields(f, "rollout batches; each makes num_iterations * num_mini_batches optimizer updates");
    f.require("num_iterations", num_iterations_ > 0 && num_iterations_ <= 1024, "num_iterations must be in [1, 1024]");
    f.require("log_samples", log_samples_ >= -1, "log_samples must be -1 (all), 0 (none) or more");
    f.require("num_mini_batches",
              num_mini_batches_ > 0 && num_mini_batches_ <= rounds_.prompts_per_step * actor_.num_generations,
              "num_mini_batches must be in [1, prompts_per_step * num_generations]");
    f.require("filter_groups", !rounds_.filter_groups.enable || actor_.num_generations > 1,
              "filter_groups needs num_generations above 1");
    f.require("num_generations", !makes_pairs() || actor_.num_generations > 1,
              "a pair needs two completions of a prompt: set num_generations to 2 or more");
    require_fit(f, "num_generations", {.group_size = actor_.num_generations});
    require_fit(f, "sampling", facts());
  }
  std::string default_name() const override { return concat(makes_pairs() ? "online_" : "", objective_.kind()); }
  int64_t steps() const override { return loop_.steps > 0 ? loop_.steps : steps_of(load_rl_tasks(all_sources())); }
  PlannedStep planned_step(const ModelShape& model, const Tokenizer* tokenizer) const override {
    int64_t length = model.max_positions;
    if (tokenizer) {
      const int64_t longest = longest_trajectory(longest_prompt(all_sources(), *tokenizer));
      length = length > 0 && longest > 0 ? std::min(length, longest) : std::max(length, longest);
    }
    const std::shared_ptr<const Objective> objective = objective_->make(facts());
    const int64_t sampled = rounds_.prompts_per_step * actor_.num_generations,
                  pairs = std::min(pairs_.pairs_per_prompt, actor_.num_generations / 2),
                  units = makes_pairs() ? rounds_.prompts_per_step * pairs : sampled;
    return {.sequences = (units + num_mini_batches_ - 1) / num_mini_batches_ * (makes_pairs() ? 2 : 1),
            .length = length,
            .updates = num_iterations_ * num_mini_batches_,
            .sampled = makes_pairs() ? sampled : 0,
            .objective = objective,
            .trainer = &loop_.trainer,
            .reference = objective->needs().has(columns::reference_logp),
            .rollout = true,
            .dealt_prompts =
                rollouts_.max_staleness == 0 || rollouts_.deterministic ? rounds_.prompts_per_step : int64_t{0},
            .scores_samples = facts().off_policy || objective->needs().has(columns::old_entropy),
            .evaluates = loop_.eval_steps > 0,
            .max_versions_in_flight = rollouts_.max_versions_in_flight()};
  }
  void resolve(const StageSettings& settings) override {
    exact_engine_ = settings.rollout->exact();
    if (auto resolved = objective_->resolved(facts())) objective_.set(objective_.kind(), std::move(resolved));
  }
  std::vector<std::string> warnings() const override {
    std::vector<std::string> out = loop_.warnings();
    std::ranges::copy(objective_->warnings(facts()), std::back_inserter(out));
    if (loop_.steps > 0 && critic_warmup_ >= loop_.steps)
      out.push_back(
          concat("critic_warmup = ", critic_warmup_, " of ", loop_.steps, " steps: the policy's weights never change"));
    return out;
  }
  void check(const StageCheck& check) const override {
    check.problems.attempt("", [&] { check_device(check.settings); });
    check.problems.attempt("", [&] { check_workers(*check.settings.rollout); });
    sync_.check(check);
    check.problems.attempt("sampling.max_tokens", [&] { check_kv_cache(check); });
    check.problems.attempt("critic", [&] { check_critic(loop_.trainer.critic, vocab_size(check)); });
    check_teacher(check, *objective_->make({}));
    check_rl_sources(check, all_sources(), actor_.environment);
  }

  const PromptFormat* prompt_format() const override {
    return sources_.empty() ? &actor_.format : &sources_.first().format;
  }
  // The prompts of the first tasks.
  std::vector<ShownSample> show(const ShowRequest& request) const override {
    return show_prompts(all_sources(), request);
  }

  void run(StageContext& stage) const override {
    std::vector<MixturePart> parts;
    const std::vector<Task> tasks = load_rl_tasks(all_sources(), &parts);
    log::info("rl: ", tasks.size(), " tasks");
    if (parts.size() > 1)
      for (const MixturePart& part : parts) log::info("rl: source ", part.name, ": ", part.count);
    const std::unique_ptr<Objective> made = objective_->make(facts());
    Objective& objective = *made;
    log_distribution(objective.needs());
    auto* const taught = dynamic_cast<TeacherObjective*>(made.get());
    std::optional<StageTeacher> teacher;
    if (taught) teacher.emplace(stage, *taught);
    CollectorConfig actor_config = actor_;
    for (const DataSource<RlSource>& source : all_sources())
      actor_config.source_formats[source.name] = source.settings.format;
    actor_config.reward = reward_of_sources(rewards_by_source());
    actor_config.max_positions = stage.model->shape().max_positions;
    if (actor_config.reward.reward)
      actor_config.reward.reward->begin({.folder = stage.run_folder, .rank = stage.ranks.rank()});
    actor_config.sampling.seed ^= static_cast<int64_t>(stage.sampling_seed >> 1);
    LoopConfig loop = loop_;
    loop.steps = steps_of(tasks);
    loop.trainer.temperature = temperature();
    loop.trainer.micro_batch_multiple = stage.micro_batch_multiple;
    const std::unique_ptr<StepExchange> exchange = make_exchange(stage.ranks, stage.zero);
    Trainer trainer(stage.context, *stage.model, loop.trainer, exchange.get());
    std::unique_ptr<Reference> reference;
    if (objective.needs().has(columns::reference_logp))
      reference = std::make_unique<Reference>(stage, loop.trainer.temperature);
    TaskSchedule rounds(rounds_, tasks, stage.data_seed, parts);
    WeightQueue weights(stage.context, *stage.model,
                        rollouts_.deterministic ? WeightQueue::Keep::all : WeightQueue::Keep::newest);
    const bool dealt = deals_rollouts(stage);
    RolloutSource completions = source(stage, weights);
    std::unique_ptr<ControlChannel> ahead;  // of the queue's thread
    if (dealt && rollouts_.max_staleness > 0) ahead = stage.ranks.control()->split();
    if (dealt) completions.ranks = ahead ? ahead.get() : stage.ranks.control();
    std::unique_ptr<RolloutQueue> queue;
    if (dealt || stage.ranks.is_first())
      queue = std::make_unique<RolloutQueue>(rollouts_, actor_config, *stage.tokenizer, rounds, loop.steps,
                                             std::move(completions));
    SharedRollouts rollouts(stage.ranks, dealt, std::move(queue), rounds);
    Learning learning{.stage = stage,
                      .objective = objective,
                      .taught = taught,
                      .teacher = teacher ? &*teacher : nullptr,
                      .trainer = trainer,
                      .reference = reference.get(),
                      .rollouts = rollouts,
                      .exact = stage.rollout->exact() && actor_.sampling.distribution_changes().empty(),
                      .takes_turns = takes_turns(stage)};
    std::map<std::string, Stateful*> sections{{"objective", &objective}};
    if (sync_.sync_ref_model) sections["reference"] = reference.get();
    if (rollouts.queue()) sections["rounds"] = rollouts.queue();
    train_loop(stage, loop, trainer, sections,
               [&](int64_t step, double learning_rate) { return make_step(learning, step, learning_rate); });
    if (stage.ranks.is_first() && rollouts.queue()->failed_completions() > 0)
      log::warning("rl: ", rollouts.queue()->failed_completions(), " completions could not be sampled");
  }

 private:
  bool makes_pairs() const { return learns_from_ == TrainingData::pairs; }
  void critic_fields(Fields& f, const Needs& needs) {
    f("critic", loop_.trainer.critic,
      "value model of objectives that need values (ppo); their default learning_rate is 3e-6");
    if (needs.critic) f.default_if_absent("learning_rate", ppo_learning_rate);
    f("critic_warmup", critic_warmup_,
      "first steps that train the critic alone: the policy samples and is measured, and its weights and optimizer "
      "states do not change");
    f.require("critic_warmup", critic_warmup_ >= 0, "critic_warmup must be 0 or more");
    f.require("critic_warmup", critic_warmup_ == 0 || needs.critic,
              concat(objective_.kind(), " has no critic to warm up: remove critic_warmup, or use objective ppo"));
  }
  static void check_workers(const RolloutConfig& rollout) {
    if (const std::string& file = rollout.pool.worker_key_file; !file.empty()) read_keys(expand_path(file));
    HONE_CHECK(
        rollout.pool.workers.empty() || rollout.speculative.model.empty(),
        "rl: rollout.speculative.model is a folder of this machine, which workers cannot read: use method ngram or "
        "none with workers");
  }
  void check_device(const StageSettings& settings) const {
    const std::string& device = settings.rollout->device;
    HONE_CHECK(device.empty() || rollouts_.max_staleness > 0, "rl: rollout.device = ", device,
               " needs asynchronous rollouts: set max_staleness to 1 or more, or remove rollout.device");
    HONE_CHECK(!settings.rollout->free_cache_engine || rollouts_.max_staleness == 0,
               "rl: rollout.free_cache_engine needs max_staleness = 0: with ", rollouts_.max_staleness,
               " the engine generates while the learner trains, so that neither can free its memory");
    HONE_CHECK(device.empty() || settings.rollout->pool.workers.empty(),
               "rl: rollout.device and rollout.workers are both given: remove one of them");
    HONE_CHECK(device.empty() || device_kind(device) == device_kind(settings.device), "rl: rollout.device is ", device,
               ", the learner's device is ", settings.device, ": both must be of one kind");
  }
  // The engine refuses a request that its KV cache cannot hold as a whole, so no step could be sampled.
  void check_kv_cache(const StageCheck& check) const {
    const RolloutConfig& engine = *check.settings.rollout;
    const int64_t capacity = engine.kv_cache_tokens / engine.kv_block_size * engine.kv_block_size,
                  positions = check.model ? check.model->shape().max_positions : std::numeric_limits<int64_t>::max();
    if (positions <= capacity) return;
    int64_t prompt = 1;
    try {
      if (check.tokenizer && check.tokenizer_is_trained) prompt = longest_prompt(all_sources(), *check.tokenizer);
    } catch (const Error&) {  // check_rl_sources() reports it
    }
    int64_t longest = std::min(prompt + actor_.sampling.max_tokens, positions);
    if (const int64_t most = actor_.environment.max_trajectory_tokens; most > 0) longest = std::min(longest, most);
    HONE_CHECK(longest <= capacity, "rl: a prompt of ", prompt, prompt == 1 ? " token" : " tokens",
               " and sampling.max_tokens = ", actor_.sampling.max_tokens, " take ", longest,
               " tokens, rollout.kv_cache_tokens is ", capacity, ": lower max_tokens or raise kv_cache_tokens");
  }
  static int64_t vocab_size(const StageCheck& check) { return check.model ? check.model->shape().vocab_size : 0; }

  // The stage's own keys as a source.
  RlSource own_source() const {
    RlSource out;
    static_cast<TaskSource&>(out) = tasks_;
    out.format = actor_.format;
    out.reward = actor_.reward;
    return out;
  }
  std::vector<DataSource<RlSource>> all_sources() const { return sources_.all(own_source()); }
  RunFacts facts() const {
    const SamplingParams& sampling = actor_.sampling;
    return {.off_policy = rollouts_.max_staleness > 0 || !exact_engine_ || !sampling.distribution_changes().empty(),
            .temperature = sampling.top_k == 1 ? 0 : sampling.temperature,
            .group_size = actor_.num_generations,
            .reward_weights = weights_by_source(rewards_by_source(), actor_.environment)};
  }
  std::map<std::string, RewardSpec> rewards_by_source() const {
    std::map<std::string, RewardSpec> out;
    for (const DataSource<RlSource>& source : all_sources()) out[source.name] = source.settings.reward;
    return out;
  }
  // Validates the objective under these facts.
  void require_fit(Fields& f, const char* key, const RunFacts& facts) const {
    std::string problem;
    try {
      objective_->validate(facts);
    } catch (const Error& error) {  // adds the place of the key
      problem = concat(objective_.kind(), ": ", error.what());
    }
    f.require(key, problem.empty(), problem);
  }

  // Tokens of the longest trajectory; 0 = only the model's positions limit it.
  int64_t longest_trajectory(int64_t prompt) const {
    const EnvironmentConfig& environment = actor_.environment;
    if (!environment) return prompt + actor_.sampling.max_tokens;
    int64_t out = environment.max_trajectory_tokens;
    if (environment.max_observation_tokens > 0) {
      const int64_t of_turns =
          environment.max_turns * (actor_.sampling.max_tokens + environment.max_observation_tokens);
      out = out > 0 ? std::min(out, prompt + of_turns) : prompt + of_turns;
    }
    return out;
  }

  // Temperature of the log-probs that the objective sees: the sampler's.
  double temperature() const { return actor_.sampling.temperature > 0 ? actor_.sampling.temperature : 1; }

  int64_t steps_of(const std::vector<Task>& tasks) const {
    return loop_.num_steps(static_cast<double>(tasks.size()) / static_cast<double>(rounds_.prompts_per_step));
  }

  // Logs once the distribution of the behavior log-probs, if it is not the learner's.
  void log_distribution(const Needs& needs) const {
    const std::vector<std::string> changes = actor_.sampling.distribution_changes();
    if (changes.empty() || !needs.has(columns::behavior_logp)) return;
    log::info("rl: completions are sampled off policy, since sampling sets ", join(changes),
              ": behavior log-probs belong to the changed distribution, and the importance correction ",
              "(importance_sampling_mode) is ", needs.has(columns::old_logp) ? "on" : "off");
  }

  // Samples a rollout batch and learns from it. If it fails before the weights change, all state is as before the
  // step.
  StepReport make_step(Learning& of, int64_t step, double learning_rate) const {
    const Stopwatch watch;
    const Rollback undo_objective(of.objective);
    if (of.takes_turns) of.trainer.free_activations();
    of.stage.model->gather_values();
    RolloutQueue::NextBatch next = of.rollouts.next(step);
    const double sampling_seconds = watch.seconds();
    try {
      RolloutBatch experience(std::move(next.groups));
      StepReport report = learn(of, experience, step, learning_rate);
      for (const auto& [name, value] : next.metrics) report.metrics[name] += value;
      report.sampling_seconds = sampling_seconds;
      return report;
    } catch (...) {
      of.rollouts.return_batch();
      throw;
    }
  }

  // Fills the columns that the objective needs, and computes advantages.
  void credit(Learning& of, RolloutBatch& batch, int64_t step, MetricSums& metrics) const {
    StageContext& stage = of.stage;
    const Needs needs = of.objective.needs();
    if (of.taught && of.taught->sampled_share() < 1)
      use_data_completions(batch.groups, of.taught->sampled_share(), *stage.tokenizer, stage.data_seed,
                           static_cast<uint64_t>(step));
    if (of.teacher) of.teacher->prepare(pointers_to(batch.groups));
    if (needs.has(columns::teacher_logp)) of.teacher->write_logp(batch.groups, temperature());
    if (needs.has(columns::old_entropy))
      batch.set_old_entropy(stage.context, *stage.model, temperature(), stage.ranks);
    else if (needs.has(columns::behavior_logp) || needs.has(columns::old_logp))
      batch.set_old_logp(stage.context, *stage.model, temperature(), step, of.exact, stage.ranks);
    if (of.reference) of.reference->score_into(batch.groups);
    if (needs.critic) batch.set_values(shared_values(stage.ranks, of.trainer, batch.samples()));
    of.objective.compute_advantages(batch.groups, metrics);
  }

  // A step without a pair makes no update.
  StepReport learn(Learning& of, RolloutBatch& experience, int64_t step, double learning_rate) const {
    StageContext& stage = of.stage;
    of.watch.observe(experience.groups);
    MetricSums credited;
    Metrics paired;
    std::optional<RolloutBatch> pairs;
    if (makes_pairs()) pairs = RolloutBatch::of_pairs(make_pairs(experience.groups, pairs_, paired));
    RolloutBatch& trained = pairs ? *pairs : experience;
    credit(of, trained, step, credited);
    if (keep_rollouts_ && stage.ranks.is_first())
      write_rollouts(stage.run_folder, stage.first_step + step + 1, experience.groups);
    const Updated updated = step < critic_warmup_ ? Updated::critic : Updated::all;
    std::vector<StepReport> updates;
    for (int64_t epoch = 0; epoch < num_iterations_; ++epoch)
      for (const auto& mini : trained.mini_batches(num_mini_batches_, of.objective.needs().unit, stage.data_seed,
                                                   static_cast<uint64_t>(step * num_iterations_ + epoch)))
        updates.push_back(of.trainer.step(mini, of.objective, learning_rate, updated));
    if (sync_.due(step + 1)) of.reference->move_toward(*stage.model, sync_.ref_model_mixup_alpha);
    StepReport report = combine(updates);
    report.learning_rate = learning_rate;
    report.metrics.merge(credited.means());
    report.metrics.merge(paired);
    report.metrics.merge(experience.metrics());
    for (const Json& row : experience.sample_rows(stage.first_step + step + 1, log_samples_)) stage.log.sample(row);
    return report;
  }

  // True if every rank samples and scores a part of each batch. Workers and rollout.device are one source, which rank 0
  // uses. Without `deterministic`, batches depend on time, so that ranks would not agree about them.
  bool deals_rollouts(const StageContext& stage) const {
    return stage.ranks.size() > 1 && stage.rollout->pool.workers.empty() && stage.rollout->device.empty() &&
           (rollouts_.max_staleness == 0 || rollouts_.deterministic);
  }

  bool takes_turns(const StageContext& stage) const { return stage.rollout->takes_turns(rollouts_.max_staleness == 0); }

  // Makes the source of completions: an engine on the learner's weights, an engine on a copy of them, or workers.
  RolloutSource source(StageContext& stage, WeightQueue& weights) const {
    if (!stage.rollout->pool.workers.empty()) return worker_source(stage, weights, rollouts_.max_staleness > 0);
    const auto sampler = [&stage](Context& context, Model& model) {
      return std::make_unique<LocalBackend>(context, model, *stage.tokenizer, *stage.rollout);
    };
    if (rollouts_.max_staleness == 0)
      return {.make = [&stage, sampler] { return sampler(stage.context, *stage.model); },
              // ZeRO-3: the engine keeps addresses of whole weights, which are somewhere else in each step.
              .rests = takes_turns(stage) || (stage.ranks.size() > 1 && stage.zero == 3)};
    return {.make =
                [&, sampler] {
                  return std::make_unique<ReplicaBackend>(stage.context, *stage.model, weights, stage.rollout->device,
                                                          sampler);
                },
            .keep = [&](int64_t version) { weights.push(version); }};
  }

  // TRL's.
  static constexpr double default_learning_rate = 1e-6, ppo_learning_rate = 3e-6, online_dpo_learning_rate = 5e-7;

  const TrainingData learns_from_;
  TaskSource tasks_;
  Sources<RlSource> sources_;
  TaskScheduleConfig rounds_;
  RolloutQueueConfig rollouts_;
  CollectorConfig actor_;
  Choice<ObjectiveSettings> objective_{"grpo"};
  PairRules pairs_;
  ReferenceSync sync_;
  bool exact_engine_ = true;  // [rollout] samples with the learner's arithmetic
  LoopConfig loop_;
  int64_t num_iterations_ = 1, num_mini_batches_ = 1, log_samples_ = 64, critic_warmup_ = 0;
  bool keep_rollouts_ = false;
};

template <TrainingData learns_from>
std::unique_ptr<Stage> make_stage() {
  return std::make_unique<Rl>(learns_from);
}
[[maybe_unused]] const bool added = stages().add("rl", make_stage<TrainingData::rewarded>) &&
                                    stages().add("online_dpo", make_stage<TrainingData::pairs>);

}  // namespace
}  // namespace hone
