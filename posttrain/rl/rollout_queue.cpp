#include "posttrain/rl/rollout_queue.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "core/io/metrics.h"

namespace hone {

void RolloutQueueConfig::fields(Fields& f) {
  f("max_staleness", max_staleness,
    "by how many versions the weights that drew a token may be older than those that learn from it: replies of so many "
    "rounds ahead are "
    "written while the learner learns; 0 = synchronous");
  f("deterministic", deterministic,
    "with max_staleness above 0: one version of the weights draws a round, and the run repeats bit for bit; false: new "
    "weights are taken in "
    "the middle of replies, and rounds overlap");
  f.require("max_staleness", max_staleness >= 0 && max_staleness <= 64, "max_staleness must be in [0, 64]");
}

Metrics staleness_of(std::span<const Group> groups, int64_t step) {
  double sum = 0, tokens = 0, oldest = 0, mixed = 0, replies = 0;
  for (const Group& group : groups)
    for (const Sample& sample : group.samples) {
      const auto drawn =
          std::span(sample.versions).last(std::min(sample.completion.ids.size(), sample.versions.size()));
      if (drawn.empty()) continue;
      for (const int64_t version : drawn) sum += static_cast<double>(step - version);
      tokens += static_cast<double>(drawn.size());
      oldest = std::max(oldest, static_cast<double>(step - sample.weight_version));
      mixed += std::ranges::any_of(drawn, [&](int64_t version) { return version != drawn.front(); });
      ++replies;
    }
  if (replies == 0) return {};
  return {{"staleness/mean", sum / tokens}, {"staleness/max", oldest}, {"staleness/partial_ratio", mixed / replies}};
}

RolloutQueue::RolloutQueue(const RolloutQueueConfig& config, const CollectorConfig& actor, const Tokenizer& tokenizer,
                           TaskSchedule& rounds, int64_t num_steps, RolloutSource source)
    : config_(config),
      actor_config_(actor),
      tokenizer_(tokenizer),
      rounds_(rounds),
      num_steps_(num_steps),
      source_(std::move(source)) {}

RolloutQueue::~RolloutQueue() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

void RolloutQueue::make_maker(int64_t step) {
  const StalenessPolicy clock{.max_staleness = config_.max_staleness,
                              .deterministic = config_.deterministic || !ahead(),
                              .first = step,
                              .num_steps = num_steps_};
  sampler_ = source_.make();
  maker_.emplace(clock, step + std::ssize(ready_), *sampler_, actor_config_, tokenizer_, rounds_);
}

// What is thrown has left nothing under way.
void RolloutQueue::take_turn(int64_t newest) {
  std::vector<ProducedBatch> made;
  try {
    made = maker_->turn(newest);
  } catch (...) {
    maker_->abandon();
    throw;
  }
  const std::lock_guard lock(mutex_);
  std::ranges::move(made, std::back_inserter(ready_));
  missing_ = maker_->missing_replies();
  failed_ = maker_->failed_replies();
  if (!made.empty()) changed_.notify_all();
}

void RolloutQueue::run() {
  try {
    make_maker(newest_);  // the learner waits for it, and changes nothing
    std::unique_lock lock(mutex_);
    made_ = true;
    changed_.notify_all();
    for (;;) {
      idle_since_.emplace();
      changed_.wait(lock, [this] { return stopping_ || !maker_->idle(newest_); });
      idle_seconds_ += idle_since_->seconds();
      idle_since_.reset();
      if (stopping_) break;
      const int64_t newest = newest_;
      lock.unlock();
      take_turn(newest);
      lock.lock();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_all();
  }
  maker_.reset();
  sampler_.reset();
}

RolloutQueue::NextBatch RolloutQueue::take_ready(int64_t step) {
  ProducedBatch round = std::move(ready_.front());
  ready_.pop_front();
  HONE_CHECK(round.number == step, "rollouts: round ", round.number, " is there for step ", step);
  for (const Group& group : round.groups)
    for (const Sample& sample : group.samples)
      HONE_CHECK(sample.versions.empty() || step - sample.weight_version <= config_.max_staleness,
                 "rollouts: ", group.task.id, " was drawn by version ", sample.weight_version, ", step ", step,
                 " learns from it, and max_staleness is ", config_.max_staleness);
  if (ahead()) taken_ = round;
  return {std::move(round.groups), std::move(round.metrics)};
}

void RolloutQueue::return_batch() {
  const std::lock_guard lock(mutex_);
  HONE_CHECK(taken_ || before_, "rollouts: no round was taken that could be given back");
  if (taken_) ready_.push_front(std::move(*taken_));
  if (before_) {
    rounds_ = std::move(*before_);
    maker_.reset();  // the next one begins with that round
    sampler_.reset();
  }
  taken_.reset();
  before_.reset();
}

RolloutQueue::NextBatch RolloutQueue::next(int64_t step) {
  if (!ahead()) {
    newest_ = step;
    before_ = rounds_;
    if (!maker_) make_maker(step);
    while (ready_.empty()) take_turn(step);
    return take_ready(step);
  }
  const Stopwatch keeping;
  source_.keep(step);
  const double keep_seconds = keeping.seconds();
  std::unique_lock lock(mutex_);
  newest_ = step;
  if (!thread_.joinable()) thread_ = std::jthread([this] { run(); });
  changed_.notify_all();
  Metrics own{{"queue/batches", static_cast<double>(ready_.size())},
              {"queue/completions", static_cast<double>(missing_)},
              {"time/publish", keep_seconds}};
  const Stopwatch waiting;
  changed_.wait(lock, [this] { return failure_ || (made_ && !ready_.empty()); });
  const double waited = waiting.seconds(), since = std::exchange(since_next_, Stopwatch()).seconds();
  if (ready_.empty()) std::rethrow_exception(failure_);
  if (idle_since_) idle_seconds_ += std::exchange(idle_since_, Stopwatch())->seconds();
  NextBatch out = take_ready(step);
  saved_ = {};
  own["time/wait_rollout"] = waited;
  own["learner/idle_ratio"] = waited / since;
  own["rollout/idle_ratio"] = std::min(1.0, std::exchange(idle_seconds_, 0) / since);
  out.metrics.merge(own);
  out.metrics.merge(staleness_of(out.groups, step));
  return out;
}

int64_t RolloutQueue::failed_replies() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

void RolloutQueue::save_state(StateSection& section) const {
  std::unique_lock lock(mutex_);
  const auto last = std::min(num_steps_ - 1, newest_ + config_.max_staleness);  // that the newest weights allow
  changed_.wait(lock, [&] {
    return failure_ || !thread_.joinable() || (ready_.empty() ? newest_ : ready_.back().number) >= last;
  });
  rounds_.save_state(section);
  saved_ = {};
  JsonArray rounds;
  for (const ProducedBatch& round : ready_) {
    JsonArray groups;
    for (const Group& group : round.groups) groups.push_back(saved_.add(group));
    rounds.push_back(
        JsonObject{{"number", round.number}, {"metrics", metrics_json(round.metrics)}, {"groups", std::move(groups)}});
  }
  section.values.set("max_staleness", config_.max_staleness);
  section.values.set("ready", std::move(rounds));
  saved_.save(section);
}

void RolloutQueue::load_state(const StateSection& section) {
  rounds_.load_state(section);
  const int64_t staleness = section.values.at("max_staleness", "rounds").as_int("max_staleness");
  const JsonArray& rounds = section.values.at("ready", "rounds").as_array("ready");
  HONE_CHECK(rounds.empty() || staleness <= config_.max_staleness,
             "the checkpoint holds rounds made with max_staleness ", staleness, ", it is ", config_.max_staleness,
             " now: go on with that, or a larger one");
  GroupStateReader reader(section, [this](const std::string& id) -> const Task& { return rounds_.task(id); });
  for (const Json& saved : rounds) {
    ProducedBatch& round = ready_.emplace_back();
    round.number = saved.at("number", "rounds").as_int("number");
    round.metrics = metrics_of(saved.at("metrics", "rounds"));
    for (const Json& group : saved.at("groups", "rounds").as_array("groups"))
      round.groups.push_back(reader.next(group));
  }
}

}  // namespace hone
