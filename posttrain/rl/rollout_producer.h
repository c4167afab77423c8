#pragma once
// RolloutProducer: generates rollout batches, one after another or several at once, under the staleness rule of
// posttrain/rl/rollout_queue.h.
#include <deque>
#include <memory>

#include "posttrain/rl/collector.h"
#include "posttrain/rl/task_schedule.h"

namespace hone {

// Step r trains on batch r and begins with policy version r.
struct StalenessPolicy {
  int64_t max_staleness = 0;
  bool deterministic = true;
  int64_t first = 0;      // the first version: the step at which the run starts or resumes
  int64_t num_steps = 0;  // of the stage; this many batches are generated
};

struct ProducedBatch {
  int64_t number = 0;
  std::vector<Group> groups;
  Metrics metrics;  // of TaskSchedule::finish and the backend; rollout/tokens_per_second, staleness/dropped
};

// One thread.
class RolloutProducer {
 public:
  // next_batch: number of the first batch to generate. collector: of the backend. All arguments passed by reference
  // must outlive this object. The backend has no policy version yet. Ranks that share the collector's work must have
  // equal schedules and, above all, a deterministic policy.
  RolloutProducer(const StalenessPolicy& staleness_policy, int64_t next_batch, GenerationBackend& sampler,
                  Collector& collector, TaskSchedule& rounds)
      : staleness_policy_(staleness_policy),
        next_(next_batch),
        sampler_(sampler),
        collector_(collector),
        rounds_(rounds) {}

  // True if there is nothing to do until a version above `newest` exists.
  bool idle(int64_t newest) const { return pending_.empty() && !may_begin(newest); }
  // Does a short piece of work: sets the policy version that is due, starts batches, steps the backend. newest: the
  // newest policy version. Returns the batches that are complete now, in order. After an exception call abandon().
  std::vector<ProducedBatch> turn(int64_t newest);
  // Drops the batches in progress; their tasks are scheduled again, first.
  void abandon();
  int64_t missing_completions() const;  // of batches in progress
  int64_t failed_completions() const { return collector_.failed_completions(); }

 private:
  struct PendingBatch {
    int64_t number = 0;
    PendingTasks round = {};
    std::unique_ptr<Collector::PendingGroups> batch = {};  // null: the batch is complete
    double dropped = 0;                                    // completions whose weights were too old
  };
  bool may_begin(int64_t newest) const;
  void publish(int64_t newest);
  void ask(PendingBatch& pending);
  void advance(PendingBatch& pending);
  ProducedBatch finish_batch(PendingBatch pending);

  const StalenessPolicy staleness_policy_;
  int64_t next_;
  GenerationBackend& sampler_;
  Collector& collector_;
  TaskSchedule& rounds_;
  int64_t version_ = -1;        // the backend's policy version; -1: none
  double writing_seconds_ = 0;  // since the last complete batch
  std::deque<PendingBatch> pending_;
};

}  // namespace hone
