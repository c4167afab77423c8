#pragma once
// Collector: tasks in, scored groups of trajectories out. Completions come from a generation backend; complete groups
// are scored while others are still being sampled. With an environment, a trajectory has turns of an episode, which
// runs on other threads. Without one, a trajectory is one turn.
//
// The random numbers of a turn are a function of the request's id, the completion's index, the turn and the seed. So a
// trajectory depends neither on the time that environments take, nor on the order in which they answer.
//
// Several ranks may share the work. All of them then ask for the same tasks. Rank r of N samples and scores the tasks
// with i % N == r, and every rank gets all groups. Groups do not depend on the number of ranks, since a request's id
// and the seed decide its random numbers.
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/comm/control_channel.h"
#include "data/dataset.h"
#include "posttrain/rl/environments/environment_runner.h"
#include "posttrain/rl/environments/faults.h"
#include "posttrain/rl/reward_runner.h"
#include "posttrain/rl/trajectory_builder.h"
#include "posttrain/rl/trajectory_encoder.h"
#include "rollout/backend.h"

namespace hone {

struct CollectorConfig {
  int64_t num_generations = 8;  // completions of a prompt
  SamplingParams sampling;
  PromptFormat format;
  std::map<std::string, PromptFormat> source_formats = {};  // by Task::source; other tasks have `format`
  RewardSpec reward;
  double max_failure_rate = 0.1;
  EnvironmentConfig environment = {};
  int64_t max_positions = 0;  // of the model: trajectories end there; 0 = unknown
  void fields(Fields& f);
};

// The seed of the environment's episodes for a request: the same for all completions of a group. In [0, 2^31).
uint64_t episode_seed(const SamplingParams& sampling, uint64_t request_id);
// The id of the request for a turn of one trajectory of an environment, counted from 0.
uint64_t turn_request_id(uint64_t request_id, size_t member, int64_t turn);

// Samples and scores the completions of tasks. One thread.
class Collector {
 public:
  // All arguments must outlive the collector. ranks: those that share the work, of the thread that uses the collector;
  // null: this one does it all. An Error if the reward cannot run on this machine.
  Collector(GenerationBackend& sampler, const Tokenizer& tokenizer, const CollectorConfig& config,
            ControlChannel* ranks = nullptr);

  // Groups in progress: one for each task, in order. With several ranks, completions and groups below are this rank's
  // unless a comment says otherwise.
  class PendingGroups {
   public:
    // Cancels the requests that are not finished.
    ~PendingGroups();
    // True if all completions are finished and scored. Waits up to `timeout` for rewards, never for completions.
    bool complete(std::chrono::milliseconds timeout = {});
    // Returns the groups of all ranks, and waits for these; all completions must be finished. Samples have
    // behavior_logp, mask, reward and reward parts. A completion that could not be sampled is in its group without a
    // score. Waits for rewards; throws what RewardRunner::check() does, on every rank alike.
    std::vector<Group> take();
    // The messages that each task's episodes began with; all episodes of a task begin alike. Empty for a prompt that is
    // plain text, and without an environment. Of this rank.
    const std::vector<std::vector<Message>>& episode_prompts() const { return episode_prompts_; }
    int64_t missing() const { return missing_; }      // unfinished completions
    int64_t retried() const { return asked_again_; }  // completions sampled again, because their weights were too old

   private:
    friend class Collector;
    PendingGroups(Collector& collector, size_t size)
        : collector_(collector),
          groups_(size),
          round_(collector.reward_runner_, groups_),
          requests_(size),
          tickets_(size),
          members_(size),
          unfinished_(size) {}
    // A trajectory in progress.
    struct Member {
      EnvironmentRunner::Handle episode;
      std::optional<TrajectoryBuilder> builder;
      std::optional<uint64_t> ticket;  // of its request
      TrajectoryMessages messages;
      PolicyTurn turn;            // the last one
      std::vector<Message> said;  // messages after the prompt
      std::vector<int64_t> stop_ids;
      int64_t max_turns = 0, max_observation_tokens = 0, max_tokens = 0;
    };
    // Trajectories of one turn: one request for the group.
    void ask(size_t i);
    void answer(size_t i, std::vector<CompletionOutput> completions);
    // Trajectories in an environment.
    void play(size_t i, size_t m);
    void begin(size_t i, size_t m, EpisodeReply reply);
    void ask_turn(size_t i, size_t m);
    void answer_turn(size_t i, size_t m, CompletionOutput completion);
    void observe(size_t i, size_t m, EpisodeReply reply);
    std::string limit_of(const Member& member) const;
    void end_by_limit(size_t i, size_t m, const std::string& reason);
    void fail(size_t i, size_t m, const std::string& error);
    // All trajectories.
    void finish(size_t i, size_t m, const std::string& reason);
    void complete_group(size_t i);
    bool is_stale(const CompletionOutput& completion) const;
    void count_failed(const Group& group, const CompletionOutput& completion);
    void exchange(ScoringOutcome& outcome);

    Collector& collector_;
    int64_t oldest_version_ = 0;
    std::vector<Task> tasks_;  // of all ranks; empty with one rank
    std::vector<Group> groups_;
    RewardRunner::ScoringRound round_;
    std::vector<GenerationRequest> requests_;               // of trajectories of one turn, and the ids of all
    std::vector<std::optional<uint64_t>> tickets_;          // of unfinished requests
    std::vector<std::vector<Member>> members_;              // by group; empty without an environment
    std::vector<std::vector<Message>> episode_prompts_;     // by group; empty without an environment
    std::vector<size_t> unfinished_;                        // trajectories of each group
    std::vector<size_t> stale_;                             // requests to submit again
    std::vector<std::pair<size_t, size_t>> stale_members_;  // trajectories to play again
    int64_t missing_ = 0, asked_again_ = 0;
    int64_t failed_ = 0;  // completions that could not be sampled
    EnvironmentFaults faults_;
  };
  // Submits a request for each task. The request's id and the seed decide all its random numbers. A request with a
  // token sampled by weights older than oldest_version is submitted again. The tasks are copied.
  std::unique_ptr<PendingGroups> start(std::span<const Task* const> tasks, std::span<const uint64_t> ids,
                                       int64_t oldest_version = 0);
  // One step of the backend; hands turns of environments on. False if no trajectory is in progress.
  bool step();

  // start(), and step() until the groups are complete. Request ids count from first_id. After an exception the same
  // call may be made again.
  std::vector<Group> gather(std::span<const Task* const> tasks, uint64_t first_id);
  std::vector<Group> gather(std::span<const Task* const> tasks, std::span<const uint64_t> ids);
  // Completions of groups that take() returned.
  int64_t failed_completions() const { return failed_; }
  // GenerationBackend::metrics(), time/environment (seconds that environments took, added over episodes) and
  // time/wait_environment (seconds without a request for the backend), summed over the ranks. All ranks call it.
  Metrics metrics();

 private:
  TrajectoryEncoder& encoder_of(const Task& task);
  void show_fault(const Task& task, const std::string& error);
  size_t rank() const { return ranks_ ? static_cast<size_t>(ranks_->rank()) : 0; }
  size_t num_ranks() const { return ranks_ ? static_cast<size_t>(ranks_->size()) : 1; }

  GenerationBackend& sampler_;
  const CollectorConfig& config_;
  const Tokenizer& tokenizer_;
  TrajectoryEncoder encoder_;
  std::map<std::string, TrajectoryEncoder> source_encoders_;  // by Task::source
  RewardRunner reward_runner_;
  std::optional<EnvironmentRunner> environments_;
  ControlChannel* const ranks_;
  int64_t failed_ = 0;
  double waited_seconds_ = 0;  // without a request, for environments
  bool warned_ = false;
  std::set<std::string> shown_;  // errors of environments
};

// Calls take(i, group) for each task, in order. At most 256 groups are in memory at once. ids: a number for each
// request (Collector::gather); empty: the task's index. `what` names the progress bar.
void collect_all(Collector& collector, std::span<const Task> tasks, std::span<const uint64_t> ids,
                 const std::string& what, const std::function<void(size_t i, const Group& group)>& take);

}  // namespace hone
