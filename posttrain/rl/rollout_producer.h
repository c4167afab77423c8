#pragma once
// RolloutProducer: generates rollout batches, one after another or several at once, under the staleness rule of
// posttrain/rl/rollout_queue.h.
#include <deque>
#include <memory>

#include "posttrain/rl/collector.h"
#include "posttrain/rl/task_schedule.h"

namespace hone {

// Step r learns from round r and begins with version r of the weights.
struct StalenessPolicy {
  int64_t max_staleness = 0;
  bool deterministic = true;
  int64_t first = 0;      // the first version there is: the step that the run, or what is left of it, begins with
  int64_t num_steps = 0;  // rounds are made for no more
};

struct ProducedBatch {
  int64_t number = 0;
  std::vector<Group> groups;
  Metrics metrics;  // Rounds::finish's, the sampler's, rollout/tokens_per_second, staleness/dropped
};

// One thread.
class RolloutProducer {
 public:
  // next_round: the first that is made. The sampler and the rest are the caller's and must outlive it; no version is
  // published yet.
  RolloutProducer(const StalenessPolicy& clock, int64_t next_round, GenerationBackend& sampler,
                  const CollectorConfig& config, const Tokenizer& tokenizer, TaskSchedule& rounds)
      : clock_(clock), next_(next_round), sampler_(sampler), actor_(sampler, tokenizer, config), rounds_(rounds) {}

  // There is nothing to do before a version newer than this one is there.
  bool idle(int64_t newest) const { return pending_.empty() && !may_begin(newest); }
  // A moment's work where this version is the newest: publishes what is due, begins rounds, goes on with replies.
  // Returns the rounds that are whole now, in order. What is thrown leaves the rounds under way as they are: abandon()
  // them.
  std::vector<ProducedBatch> turn(int64_t newest);
  // Drops what is under way; it will be asked again, first.
  void abandon();
  int64_t missing_replies() const;  // of rounds under way
  int64_t failed_replies() const { return actor_.failed_replies(); }

 private:
  struct PendingBatch {
    int64_t number = 0;
    PendingTasks round = {};
    std::unique_ptr<Collector::PendingGroups> batch = {};  // none: the round is whole
    double dropped = 0;                                    // replies of weights that were too old
  };
  bool may_begin(int64_t newest) const;
  void publish(int64_t newest);
  void ask(PendingBatch& of);
  void advance(PendingBatch& of);
  ProducedBatch finish_batch(PendingBatch of);

  const StalenessPolicy clock_;
  int64_t next_;
  GenerationBackend& sampler_;
  Collector actor_;
  TaskSchedule& rounds_;
  int64_t version_ = -1;        // that the sampler has; -1: none
  double writing_seconds_ = 0;  // since the last round was whole
  std::deque<PendingBatch> pending_;
};

}  // namespace hone
