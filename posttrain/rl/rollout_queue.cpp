#include "posttrain/rl/rollout_queue.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "core/base/rank_thread.h"
#include "core/io/metrics.h"
#include "data/trajectory.h"

namespace hone {

void RolloutQueueConfig::fields(Fields& f) {
  f("max_staleness", max_staleness,
    "maximum staleness of a sampled token in steps of the stage; 0 = synchronous, k = up to k batches are generated "
    "ahead of the learner");
  f("deterministic", deterministic,
    "with max_staleness above 0: one policy version samples a batch, and the run repeats bit for bit; false: running "
    "completions take new weights, and batches overlap");
  f.require("max_staleness", max_staleness >= 0 && max_staleness <= 64, "max_staleness must be in [0, 64]");
}

Metrics staleness_of(std::span<const Group> groups, int64_t step) {
  double sum = 0, tokens = 0, oldest = 0, mixed = 0, completions = 0;
  for (const Group& group : groups)
    for (const Sample& sample : group.samples) {
      std::vector<int64_t> sampled;
      for (const Turn& turn : policy_turns(sample))
        if (turn.end <= sample.versions.size())
          sampled.insert(sampled.end(), sample.versions.begin() + static_cast<std::ptrdiff_t>(turn.begin),
                         sample.versions.begin() + static_cast<std::ptrdiff_t>(turn.end));
      if (sampled.empty()) continue;
      for (const int64_t version : sampled) sum += static_cast<double>(step - version);
      tokens += static_cast<double>(sampled.size());
      oldest = std::max(oldest, static_cast<double>(step - sample.weight_version));
      mixed += std::ranges::any_of(sampled, [&](int64_t version) { return version != sampled.front(); });
      ++completions;
    }
  if (completions == 0) return {};
  return {
      {"staleness/mean", sum / tokens}, {"staleness/max", oldest}, {"staleness/partial_ratio", mixed / completions}};
}

RolloutQueue::RolloutQueue(const RolloutQueueConfig& config, const CollectorConfig& collector,
                           const Tokenizer& tokenizer, TaskSchedule& rounds, int64_t num_steps, RolloutSource source)
    : config_(config),
      collector_config_(collector),
      tokenizer_(tokenizer),
      rounds_(rounds),
      num_steps_(num_steps),
      source_(std::move(source)) {
  HONE_CHECK(!source_.ranks || !ahead() || config.deterministic,
             "rollouts: several ranks share batches, and deterministic is false");
}

RolloutQueue::~RolloutQueue() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  if (source_.ranks && ahead()) source_.ranks->close("rollouts: the stage has ended");
}

void RolloutQueue::make_producer(int64_t step) {
  const StalenessPolicy staleness_policy{.max_staleness = config_.max_staleness,
                                         .deterministic = config_.deterministic || !ahead(),
                                         .first = step,
                                         .num_steps = num_steps_};
  sampler_ = source_.make();
  collector_.emplace(*sampler_, tokenizer_, collector_config_, source_.ranks);
  producer_.emplace(staleness_policy, step + std::ssize(ready_), *sampler_, *collector_, rounds_);
}

void RolloutQueue::drop_producer() {
  producer_.reset();
  collector_.reset();
  sampler_.reset();
}

// After an exception no batch is in progress.
void RolloutQueue::take_turn(int64_t newest) {
  std::vector<ProducedBatch> made;
  try {
    made = producer_->turn(newest);
  } catch (...) {
    producer_->abandon();
    throw;
  }
  const std::lock_guard lock(mutex_);
  std::ranges::move(made, std::back_inserter(ready_));
  missing_ = producer_->missing_completions();
  failed_ = producer_->failed_completions();
  if (!made.empty()) changed_.notify_all();
}

void RolloutQueue::run() {
  try {
    make_producer(newest_);  // the learner waits for it and changes no weights
    std::unique_lock lock(mutex_);
    made_ = true;
    changed_.notify_all();
    for (;;) {
      idle_since_.emplace();
      changed_.wait(lock, [this] { return stopping_ || !producer_->idle(newest_); });
      idle_seconds_ += idle_since_->seconds();
      idle_since_.reset();
      if (stopping_) break;
      const int64_t newest = newest_;
      lock.unlock();
      take_turn(newest);
      lock.lock();
    }
  } catch (...) {
    note_failure(std::current_exception());
  }
  drop_producer();
}

// Other ranks' threads may wait for this one's groups.
void RolloutQueue::note_failure(std::exception_ptr failure) {
  if (source_.ranks) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {  // its message goes to the other ranks
      source_.ranks->close(concat(source_.ranks->label(), ": ", error.what()));
    }
  }
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
  changed_.notify_all();
}

RolloutQueue::NextBatch RolloutQueue::take_ready(int64_t step) {
  ProducedBatch batch = std::move(ready_.front());
  ready_.pop_front();
  HONE_CHECK(batch.number == step, "rollouts: batch ", batch.number, " is ready for step ", step);
  for (const Group& group : batch.groups)
    for (const Sample& sample : group.samples)
      HONE_CHECK(sample.versions.empty() || step - sample.weight_version <= config_.max_staleness,
                 "rollouts: ", group.task.id, " was sampled by version ", sample.weight_version, ", step ", step,
                 " trains on it, and max_staleness is ", config_.max_staleness);
  if (ahead()) taken_ = batch;
  return {std::move(batch.groups), std::move(batch.metrics)};
}

void RolloutQueue::return_batch() {
  const std::lock_guard lock(mutex_);
  HONE_CHECK(taken_ || before_, "rollouts: no batch was taken that could be returned");
  if (taken_) ready_.push_front(std::move(*taken_));
  if (before_) {
    rounds_ = std::move(*before_);
    drop_producer();  // the next producer starts with that batch
  }
  taken_.reset();
  before_.reset();
}

RolloutQueue::NextBatch RolloutQueue::next(int64_t step) {
  if (!ahead()) {
    newest_ = step;
    before_ = rounds_;
    if (!producer_) make_producer(step);
    while (ready_.empty()) take_turn(step);
    if (source_.rests) sampler_->rest();
    return take_ready(step);
  }
  const Stopwatch keeping;
  source_.keep(step);
  const double keep_seconds = keeping.seconds();
  std::unique_lock lock(mutex_);
  newest_ = step;
  if (!thread_.joinable())
    thread_ = std::jthread([this, rank = rank_thread()] {
      set_rank_thread(rank);
      run();
    });
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

int64_t RolloutQueue::failed_completions() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

void RolloutQueue::save_state(StateSection& section) const {
  std::unique_lock lock(mutex_);
  // The last batch that the newest weights allow.
  const auto last = std::min(num_steps_ - 1, newest_ + config_.max_staleness);
  changed_.wait(lock, [&] {
    return failure_ || !thread_.joinable() || (ready_.empty() ? newest_ : ready_.back().number) >= last;
  });
  rounds_.save_state(section);
  saved_ = {};
  JsonArray batches;
  for (const ProducedBatch& batch : ready_) {
    JsonArray groups;
    for (const Group& group : batch.groups) groups.push_back(saved_.add(group));
    batches.push_back(
        JsonObject{{"number", batch.number}, {"metrics", metrics_json(batch.metrics)}, {"groups", std::move(groups)}});
  }
  section.values.set("max_staleness", config_.max_staleness);
  section.values.set("ready", std::move(batches));
  saved_.save(section);
}

void RolloutQueue::load_state(const StateSection& section) {
  rounds_.load_state(section);
  const int64_t staleness = section.values.at("max_staleness", "rounds").as_int("max_staleness");
  const JsonArray& batches = section.values.at("ready", "rounds").as_array("ready");
  HONE_CHECK(batches.empty() || staleness <= config_.max_staleness,
             "the checkpoint has batches generated with max_staleness = ", staleness, ", and max_staleness is ",
             config_.max_staleness, " now: set it to ", staleness, " or more");
  GroupStateReader reader(section, [this](const std::string& id) -> const Task& { return rounds_.task(id); });
  for (const Json& saved : batches) {
    ProducedBatch& batch = ready_.emplace_back();
    batch.number = saved.at("number", "rounds").as_int("number");
    batch.metrics = metrics_of(saved.at("metrics", "rounds"));
    for (const Json& group : saved.at("groups", "rounds").as_array("groups"))
      batch.groups.push_back(reader.next(group));
  }
}

}  // namespace hone
