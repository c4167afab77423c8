#pragma once
// RolloutQueue: rollout batches for the learner, generated up to max_staleness batches ahead of it.
//
// Step r trains on batch r and begins with policy version r. Batch r starts once version r - max_staleness exists, and
// not earlier: none of its tokens is older, and at most max_staleness batches are ahead of the learner.
//
//   max_staleness = 0   next(r) generates batch r on its caller's thread: the synchronous run.
//   deterministic       batches are generated one after another, batch r by version max(0, r - max_staleness) alone. A
//                       run repeats bit for bit.
//   otherwise           batches overlap. New weights are taken as soon as they exist; running completions continue with
//                       them.
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "core/base/stopwatch.h"
#include "posttrain/rl/group_state.h"
#include "posttrain/rl/rollout_producer.h"

namespace hone {

struct RolloutQueueConfig {
  int64_t max_staleness = 0;
  bool deterministic = true;
  void fields(Fields& f);
  // Maximum number of policy versions between learner and sampler.
  int64_t max_versions_in_flight() const { return max_staleness == 0 ? 0 : deterministic ? max_staleness + 1 : 3; }
};

// The source of completions, and how it gets weights.
struct RolloutSource {
  // Makes the backend, on the thread that uses it: with max_staleness above 0 the queue's own thread. The learner waits
  // for it.
  std::function<std::unique_ptr<GenerationBackend>()> make;
  // With max_staleness above 0, on the learner's thread: keeps the current weights as this version for the backend.
  std::function<void(int64_t version)> keep = {};
  // Without staleness: the backend rests from the end of a batch to the begin of the next one
  // (GenerationBackend::rest).
  bool rests = false;
  // The ranks that share the work of each batch (Collector); null: this one does it all. Needs a deterministic queue.
  // With max_staleness above 0 it is a channel of the queue's thread (ControlChannel::split), which the queue closes.
  ControlChannel* ranks = nullptr;
};

// State: the task schedule, and the batches ahead of the learner. Saving waits until they are generated.
class RolloutQueue : public Stateful {
 public:
  // All arguments passed by reference must outlive this object. num_steps: steps of the complete stage.
  RolloutQueue(const RolloutQueueConfig& config, const CollectorConfig& collector, const Tokenizer& tokenizer,
               TaskSchedule& rounds, int64_t num_steps, RolloutSource source);
  ~RolloutQueue() override;

  struct NextBatch {
    std::vector<Group> groups;
    Metrics metrics;  // RolloutBatch's; with max_staleness above 0 also the queue's (docs/reference/metrics.md)
  };
  // Returns the batch of step `step`; the current weights become policy version `step`. Calls have consecutive steps.
  // An exception from generating a batch is thrown here, after the complete batches before it are used. The tasks in
  // progress are then scheduled again.
  NextBatch next(int64_t step);
  // Returns the batch of the last next() because nothing was learned from it. save_state() then saves the state before
  // it. Without staleness its tasks are sampled again: the same weights sample the same completions, which are scored
  // anew. Otherwise the batch is ready again, unchanged.
  void return_batch();
  int64_t failed_completions() const;

  void save_state(StateSection& section) const override;
  void load_state(const StateSection& section) override;

 private:
  bool ahead() const { return config_.max_staleness > 0; }
  void make_producer(int64_t step);
  void drop_producer();
  void run();
  void note_failure(std::exception_ptr failure);
  void take_turn(int64_t newest);
  NextBatch take_ready(int64_t step);

  const RolloutQueueConfig config_;
  const CollectorConfig& collector_config_;
  const Tokenizer& tokenizer_;
  TaskSchedule& rounds_;
  const int64_t num_steps_;
  RolloutSource source_;

  // Used by the thread that generates batches: next()'s caller, or thread_.
  std::unique_ptr<GenerationBackend> sampler_;
  std::optional<Collector> collector_;
  std::optional<RolloutProducer> producer_;
  std::optional<TaskSchedule> before_;  // without staleness: the state before the last next()

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<ProducedBatch> ready_;
  std::optional<ProducedBatch> taken_;  // with staleness: the batch of the last next()
  int64_t newest_ = -1;                 // the newest policy version; -1: no step has begun
  bool made_ = false;                   // sampler_ exists
  int64_t missing_ = 0, failed_ = 0;
  double idle_seconds_ = 0;  // idle time of the thread since the last next()
  std::optional<Stopwatch> idle_since_;
  bool stopping_ = false;
  std::exception_ptr failure_;
  mutable GroupStateWriter saved_;  // in use while a checkpoint is written
  Stopwatch since_next_;
  std::jthread thread_;  // last member: it ends before the others are destroyed
};

// Staleness of the groups' sampled tokens under policy version `step`: staleness/{mean, max}, and
// staleness/partial_ratio, the share of completions with tokens of more than one version.
Metrics staleness_of(std::span<const Group> groups, int64_t step);

}  // namespace hone
