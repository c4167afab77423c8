#pragma once
// RewardRunner: scores the completions of groups while other groups are still being sampled.
//
// A completion that its reward skipped (for a composite: that every part skipped) or failed on has no score: reward 0,
// mask 0, and it is counted. Each failure message is logged once. Above a rate of failures the batch ends with an
// Error. A failure never becomes a score.
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <set>
#include <span>
#include <string>

#include "core/io/json.h"
#include "rewards/reward.h"

namespace hone {

// How the scoring of groups ended. Parts of several ranks can be joined.
struct ScoringOutcome {
  // The first group whose reward threw, or has a score that is not finite, and its message.
  std::optional<size_t> error_group;
  std::string error;
  std::exception_ptr exception = nullptr;  // the reward's; null if this rank has none
  int64_t completions = 0, failed = 0;     // completions with a score or a failure, and failures
  std::optional<size_t> failed_group;      // of the first failure, and its message
  std::string failure;
  // Adds the outcome of other groups.
  void join(ScoringOutcome other);
  // Without `exception`.
  Json to_json() const;
  static ScoringOutcome from_json(const Json& json);
};

class RewardRunner {
 public:
  // max_failure_rate: share of a batch's completions whose reward may fail. The reward must outlive this object.
  // Without a reward, scores stay 0: they are the environment's.
  RewardRunner(const RewardSpec& reward, double max_failure_rate);

  // Scores the groups of one batch. Results do not depend on which thread scores a group, nor when. Only one thread may
  // call it. Of all rounds in progress, Reward::concurrency() groups are scored at once.
  class ScoringRound {
   public:
    // `groups` must stay in place while this object lives.
    ScoringRound(RewardRunner& runner, std::span<Group> groups);
    ~ScoringRound();  // waits for rewards that are running, drops the others
    // groups[i] has its completions; those with scored == true get a score. Returns at once.
    void submit(size_t i);
    // True if finish() has nothing to wait for; waits up to `timeout` for that.
    bool scored(std::chrono::milliseconds timeout);
    // Waits for all submitted groups and writes reward, reward_parts, counts, scored and mask, in the groups' order. If
    // a reward threw, or a score is not finite, the outcome has that error and later groups are not written. A reward
    // that uses the device runs here, on this thread.
    ScoringOutcome collect();
    // collect() and RewardRunner::check().
    void finish();

   private:
    struct Work;
    std::unique_ptr<Work> work_;
  };

  // Throws the outcome's error: the exception of a reward, or an Error with its message. Throws StepAborted if more
  // than max_failure_rate of the rewards failed.
  void check(const ScoringOutcome& outcome) const;

 private:
  void show(const Task& task, const RewardScore& score);  // logs a failure unless its note was logged before

  const RewardSpec& reward_;
  double max_failure_rate_;
  int64_t max_groups_at_once_;
  std::counting_semaphore<> slots_;  // groups that may be scored now
  std::mutex mutex_;
  std::set<std::string> shown_;
};

}  // namespace hone
