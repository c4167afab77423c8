#include "posttrain/rl/reward_runner.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <thread>
#include <vector>

#include "core/base/log.h"
#include "core/base/parallel_for.h"
#include "core/base/rank_thread.h"
#include "train/loop.h"

namespace hone {
namespace {

// One group in progress: a copy of its completions and, once scored, the scores or the exception.
struct Job {
  const Task* task = nullptr;
  std::vector<Sample*> samples;  // the samples to score
  std::vector<Completion> completions;
  std::vector<RewardScore> scores;
  std::exception_ptr error;
};

void write_score(const std::string& name, RewardScore& score, Sample& sample) {
  sample.reward_parts = std::move(score.parts);
  if (!score.failed && !score.skipped) {
    sample.reward = score.score;
    if (sample.reward_parts.empty()) sample.reward_parts[name] = score.score;
    return;
  }
  // The environment's rewards remain.
  if (!score.failed && std::ranges::any_of(sample.turns, [](const Turn& turn) { return turn.reward.has_value(); }))
    return;
  sample.scored = false;
  clear_mask(sample);
  if (!score.failed) sample.counts["rewards/skipped"] = 1;
  if (!score.failed) return;
  if (score.failed_parts.empty()) score.failed_parts.push_back(name);
  for (const std::string& part : score.failed_parts) sample.counts["rewards/" + part + "/failed"] = 1;
}

// Groups to score at once.
int64_t groups_at_once(const RewardSpec& reward) {
  const int64_t wanted = reward.reward ? reward.reward->concurrency() : 1;
  return wanted > 0 ? wanted : num_threads();
}

}  // namespace

RewardRunner::RewardRunner(const RewardSpec& reward, double max_failure_rate)
    : reward_(reward),
      max_failure_rate_(max_failure_rate),
      max_groups_at_once_(groups_at_once(reward)),
      slots_(max_groups_at_once_) {}

struct RewardRunner::ScoringRound::Work {
  Work(RewardRunner& j, std::span<Group> g) : runner(j), groups(g), jobs(g.size()) {}

  RewardRunner& runner;
  std::span<Group> groups;
  std::vector<Job> jobs;  // of each group
  size_t num_threads = 1;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job*> queue;
  size_t unfinished = 0;
  bool closing = false;
  std::vector<std::jthread> threads;  // last member: they end before the others are destroyed

  void run();
  void score_one(Job& job);
  void score_on_device();
  void wait_for_scores();
  void write(size_t group, ScoringOutcome& out);
};

RewardRunner::ScoringRound::ScoringRound(RewardRunner& runner, std::span<Group> groups)
    : work_(std::make_unique<Work>(runner, groups)) {
  work_->num_threads = static_cast<size_t>(runner.max_groups_at_once_);
}

RewardRunner::ScoringRound::~ScoringRound() {
  {
    const std::lock_guard lock(work_->mutex);
    work_->closing = true;
    work_->queue.clear();
  }
  work_->changed.notify_all();
}

void RewardRunner::ScoringRound::submit(size_t i) {
  if (!work_->runner.reward_.reward) return;
  Job& job = work_->jobs[i];
  Group& group = work_->groups[i];
  job.task = &group.task;
  for (Sample& sample : group.samples) {
    if (!sample.scored) continue;
    job.samples.push_back(&sample);
    job.completions.push_back(sample.completion);
  }
  job.scores.resize(job.completions.size());
  if (job.samples.empty() || !work_->runner.reward_.reward->on_host()) return;
  const std::lock_guard lock(work_->mutex);
  work_->queue.push_back(&job);
  ++work_->unfinished;
  if (work_->threads.size() < std::min(work_->num_threads, work_->unfinished))
    work_->threads.emplace_back([work = work_.get(), rank = rank_thread()] {
      set_rank_thread(rank);
      work->run();
    });
  work_->changed.notify_all();
}

void RewardRunner::ScoringRound::Work::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [this] { return closing || !queue.empty(); });
    if (closing) return;
    Job& job = *queue.front();
    queue.pop_front();
    lock.unlock();
    runner.slots_.acquire();
    score_one(job);
    runner.slots_.release();
    note_progress();
    lock.lock();
    if (--unfinished == 0) changed.notify_all();
  }
}

void RewardRunner::ScoringRound::Work::score_one(Job& job) {
  try {
    runner.reward_.reward->score_group(*job.task, job.completions, job.scores);
    for (const RewardScore& score : job.scores)
      if (score.failed) runner.show(*job.task, score);
  } catch (...) {
    job.error = std::current_exception();
  }
}

void RewardRunner::ScoringRound::Work::score_on_device() {
  std::vector<GroupScores> groups_to_score;
  for (Job& job : jobs)
    if (!job.samples.empty()) groups_to_score.push_back({*job.task, job.completions, job.scores});
  runner.reward_.reward->score_groups(groups_to_score);
  for (const GroupScores& group : groups_to_score)
    for (const RewardScore& score : group.scores)
      if (score.failed) runner.show(group.task, score);
}

bool RewardRunner::ScoringRound::scored(std::chrono::milliseconds timeout) {
  std::unique_lock lock(work_->mutex);
  return work_->changed.wait_for(lock, timeout, [this] { return work_->unfinished == 0; });
}

void RewardRunner::ScoringRound::Work::wait_for_scores() {
  if (!runner.reward_.reward) return;
  if (!runner.reward_.reward->on_host()) return score_on_device();
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return unfinished == 0; });
}

// Writes the scores of one group.
void RewardRunner::ScoringRound::Work::write(size_t group, ScoringOutcome& out) {
  Job& job = jobs[group];
  if (job.error) std::rethrow_exception(job.error);
  for (size_t i = 0; i < job.samples.size(); ++i, ++out.completions) {
    const RewardScore& score = job.scores[i];
    if (score.failed && out.failed++ == 0) {
      out.failed_group = group;
      out.failure = concat(job.task->id, ": ", score.note);
    }
    HONE_CHECK(score.failed || score.skipped || std::isfinite(score.score), "reward: the score of ", job.task->id,
               " is ", score.score);
    write_score(runner.reward_.label(), job.scores[i], *job.samples[i]);
  }
}

ScoringOutcome RewardRunner::ScoringRound::collect() {
  ScoringOutcome out;
  size_t group = 0;
  try {
    work_->wait_for_scores();
    for (; group < work_->jobs.size(); ++group) work_->write(group, out);
  } catch (const std::exception& error) {  // thrown again by check(), on every rank
    out.error_group = group;
    out.error = error.what();
    out.exception = std::current_exception();
  }
  return out;
}

void RewardRunner::ScoringRound::finish() { work_->runner.check(collect()); }

void RewardRunner::check(const ScoringOutcome& outcome) const {
  if (outcome.exception) std::rethrow_exception(outcome.exception);
  if (outcome.error_group) throw Error(outcome.error);
  if (static_cast<double>(outcome.failed) > max_failure_rate_ * static_cast<double>(outcome.completions))
    throw StepAborted(concat("reward ", reward_.label(), ": ", outcome.failed, " of ", outcome.completions,
                             " completions could not be scored, max_reward_failure_rate is ", max_failure_rate_, "; ",
                             outcome.failure));
}

void ScoringOutcome::join(ScoringOutcome other) {
  const auto is_earlier = [](const std::optional<size_t>& a, const std::optional<size_t>& b) {
    return a && (!b || *a < *b);
  };
  if (is_earlier(other.error_group, error_group)) {
    error_group = other.error_group;
    error = std::move(other.error);
    exception = std::move(other.exception);
  }
  if (is_earlier(other.failed_group, failed_group)) {
    failed_group = other.failed_group;
    failure = std::move(other.failure);
  }
  completions += other.completions;
  failed += other.failed;
}

static Json index_json(const std::optional<size_t>& index) { return index ? Json(*index) : Json(); }

static std::optional<size_t> index_of(const Json& json, const char* name) {
  const Json& value = json.at(name, "outcome of rewards");
  if (value.is_null()) return std::nullopt;
  return static_cast<size_t>(value.as_int(name));
}

Json ScoringOutcome::to_json() const {
  return JsonObject{
      {"error_group", index_json(error_group)},   {"error", error},    {"completions", completions}, {"failed", failed},
      {"failed_group", index_json(failed_group)}, {"failure", failure}};
}

ScoringOutcome ScoringOutcome::from_json(const Json& json) {
  ScoringOutcome out;
  out.error_group = index_of(json, "error_group");
  out.error = json.at("error", "outcome of rewards").as_string("error");
  out.completions = json.at("completions", "outcome of rewards").as_int("completions");
  out.failed = json.at("failed", "outcome of rewards").as_int("failed");
  out.failed_group = index_of(json, "failed_group");
  out.failure = json.at("failure", "outcome of rewards").as_string("failure");
  return out;
}

void RewardRunner::show(const Task& task, const RewardScore& score) {
  constexpr size_t most = 16;
  const std::lock_guard lock(mutex_);
  if (shown_.size() < most && shown_.insert(score.note).second)
    log::warning("reward ", reward_.label(), ": ", task.id, " could not be scored: ", score.note,
                 " (counted in rewards/*/failed; the same message is not repeated)");
}

}  // namespace hone
