#pragma once
// Judge: gives the replies of groups their rewards while other groups are still being sampled.
//
// A reply that its reward skipped (every part of it, for a composite) or failed on is left unjudged: reward 0, empty
// mask, counted. Failures are shown, once each, and past a rate they end the round with an Error: they never become a
// score.
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
  // max_failure_rate: the share of a round's judged replies that may fail. The reward is the caller's and must outlive
  // the judge.
  RewardRunner(const RewardSpec& reward, double max_failure_rate)
      : reward_(reward), max_failure_rate_(max_failure_rate) {}

  // The groups of one call for experience. Which thread judges a group, and when, changes nothing in what comes out.
  // One thread.
  class ScoringRound {
   public:
    // `groups` stays in place while the round lives.
    ScoringRound(RewardRunner& judge, std::span<Group> groups);
    ~ScoringRound();  // waits for what is being judged, drops what is not begun
    // groups[i] holds its replies: those with judged == true are to be scored. Returns at once.
    void submit(size_t i);
    // Whether finish() has nothing to wait for; waits so long for it.
    bool scored(std::chrono::milliseconds patience);
    // Waits for all that was submitted and writes reward, reward_parts, counts, judged and mask, in the groups' order.
    // Throws StepAborted if more than max_failure_rate of the rewards failed; what a reward threw (of several groups
    // the first's); an Error that names the task whose score is not finite. A reward that uses the device is called
    // here, on this thread.
    void finish();

   private:
    struct Work;
    std::unique_ptr<Work> work_;
  };

 private:
  void show(const Task& task, const RewardScore& score);  // in the log, unless its note was before

  const RewardSpec& reward_;
  double max_failure_rate_;
  std::mutex mutex_;
  std::set<std::string> shown_;
};

}  // namespace hone
