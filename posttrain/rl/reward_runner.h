#pragma once
// RewardRunner: scores the completions of groups while other groups are still being sampled.
//
// A completion that its reward skipped (for a composite: that every part skipped) or failed on has no score: reward 0,
// mask 0, and it is counted. Each failure message is logged once. Above a rate of failures the batch ends with an
// Error. A failure never becomes a score.
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>

#include "rewards/reward.h"

namespace hone {

class RewardRunner {
 public:
  // max_failure_rate: the share of a batch's completions whose reward may fail. The reward is the caller's and must
  // outlive this object.
  RewardRunner(const RewardSpec& reward, double max_failure_rate)
      : reward_(reward), max_failure_rate_(max_failure_rate) {}

  // Scores the groups of one batch. Results do not depend on which thread scores a group, and when. One thread calls
  // it.
  class ScoringRound {
   public:
    // `groups` must stay in place while this object lives.
    ScoringRound(RewardRunner& runner, std::span<Group> groups);
    ~ScoringRound();  // waits for rewards that are running, drops the others
    // groups[i] has its completions; those with scored == true get a score. Returns at once.
    void submit(size_t i);
    // True if finish() has nothing to wait for; waits up to `timeout` for that.
    bool scored(std::chrono::milliseconds timeout);
    // Waits for all submitted groups and writes reward, reward_parts, counts, scored and mask, in the groups' order.
    // Throws StepAborted if more than max_failure_rate of the rewards failed; what a reward threw (of several groups
    // the first); an Error that names the task if a score is not finite. A reward that uses the device runs here, on
    // this thread.
    void finish();

   private:
    struct Work;
    std::unique_ptr<Work> work_;
  };

 private:
  void show(const Task& task, const RewardScore& score);  // logs a failure unless its note was logged before

  const RewardSpec& reward_;
  double max_failure_rate_;
  std::mutex mutex_;
  std::set<std::string> shown_;
};

}  // namespace hone
