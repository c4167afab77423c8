#pragma once
// Rollouts: rounds of judged experience for the learner, made up to max_staleness rounds ahead of it.
//
// The clock counts steps: step r learns from round r, and version r of the weights is what step r begins with. Round r
// is begun once version r - max_staleness is there, and not before: none of its tokens is older, and no more than
// max_staleness rounds are ahead of the learner.
//
//   max_staleness = 0   round r is made in next(r), by its caller: the synchronous run.
//   deterministic       rounds are made one after another, round r by version max(0, r - max_staleness) alone: a run
//   repeats bit for bit. otherwise           rounds overlap, new weights are taken as soon as they are there, and
//   replies that are being written go on under them.
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "core/base/stopwatch.h"
#include "posttrain/rl/group_state.h"
#include "posttrain/rl/round_maker.h"

namespace hone {

struct RolloutQueueConfig {
  int64_t max_staleness = 0;
  bool deterministic = true;
  void fields(Fields& f);
  // Of the weights that may be on their way to the sampler at once.
  int64_t max_versions_in_flight() const { return max_staleness == 0 ? 0 : deterministic ? max_staleness + 1 : 3; }
};

// Where replies and weights come from.
struct RolloutSource {
  // Makes the sampler, on the thread that uses it until its end: a thread of its own with max_staleness above 0. The
  // learner waits meanwhile.
  std::function<std::unique_ptr<GenerationBackend>()> make;
  // With max_staleness above 0, on the learner's thread: keeps its weights as they are now for the sampler to publish
  // as this version.
  std::function<void(int64_t version)> keep = {};
};

// State: that of the rounds, and the rounds that are ahead of the learner; saving waits until they are made.
class RolloutQueue : public Stateful {
 public:
  // Everything is the caller's and must outlive it. num_steps: of the whole stage.
  RolloutQueue(const RolloutQueueConfig& config, const ActorConfig& actor, const Tokenizer& tokenizer,
               TaskSchedule& rounds, int64_t num_steps, RolloutSource source);
  ~RolloutQueue() override;

  struct NextBatch {
    std::vector<Group> groups;
    Metrics metrics;  // RolloutBatch's; with max_staleness above 0 those of docs/reference/metrics.md, too
  };
  // Step `step` begins: its weights are published and its round is waited for. Steps follow each other. Throws what
  // making a round threw, once the rounds that were whole before are used up: all that was under way will be asked
  // again.
  NextBatch next(int64_t step);
  // Nothing was learned from the round that next() returned last, and save_state() saves what was before it. Without
  // staleness the round is asked again: the same weights draw the same completions, which are judged anew. Otherwise it
  // is ready again, as it was.
  void return_batch();
  int64_t failed_replies() const;

  void save_state(StateSection& section) const override;
  void load_state(const StateSection& section) override;

 private:
  bool ahead() const { return config_.max_staleness > 0; }
  void make_maker(int64_t step);
  void run();
  void take_turn(int64_t newest);
  NextBatch take_ready(int64_t step);

  const RolloutQueueConfig config_;
  const ActorConfig& actor_config_;
  const Tokenizer& tokenizer_;
  TaskSchedule& rounds_;
  const int64_t num_steps_;
  RolloutSource source_;

  // Of who makes rounds: next()'s caller, or the thread.
  std::unique_ptr<GenerationBackend> sampler_;
  std::optional<RolloutProducer> maker_;
  std::optional<TaskSchedule> before_;  // without staleness: as they were when the last next() began

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<ProducedBatch> ready_;
  std::optional<ProducedBatch> taken_;  // with staleness: by the last next(), as it was
  int64_t newest_ = -1;                 // the newest version there is; -1: no step has begun
  bool made_ = false;                   // the sampler is there
  int64_t missing_ = 0, failed_ = 0;
  double idle_seconds_ = 0;  // of the thread since the last next(), and since when it is idle
  std::optional<Stopwatch> idle_since_;
  bool stopping_ = false;
  std::exception_ptr failure_;
  mutable GroupStateWriter saved_;  // while a checkpoint is written
  Stopwatch since_next_;
  std::jthread thread_;  // last: it ends before the rest goes
};

// How old the tokens that were drawn for these groups are where the weights are version `step`: staleness/{mean, max},
// and staleness/partial_ratio, the share of replies that more than one version drew.
Metrics staleness_of(std::span<const Group> groups, int64_t step);

}  // namespace hone
