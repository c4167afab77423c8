#pragma once
// Collector: tasks in, scored groups out. Completions come from a generation backend; complete groups are scored while
// others are still being sampled.
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "posttrain/rl/reward_runner.h"
#include "rollout/backend.h"

namespace hone {

struct CollectorConfig {
  int64_t num_generations = 8;  // replies of a prompt
  SamplingParams sampling;
  PromptFormat format;
  RewardSpec reward;
  double max_failure_rate = 0.1;
  void fields(Fields& f);
};

// A reply as a learner's sample: mask and behavior_logp on what was drawn, and not judged where it failed.
// behavior_logp is of the distribution that the request's sampling drew from: the learner's own unless
// Sampling::distribution_changes() names a setting.
Sample to_training_sample(const GenerationRequest& request, CompletionOutput reply);

// One thread.
class Collector {
 public:
  // Everything is the caller's and must outlive the collector. An Error if the reward cannot run on this machine.
  Collector(GenerationBackend& sampler, const Tokenizer& tokenizer, const CollectorConfig& config);

  // The groups of some tasks on their way, one a task, in order.
  class PendingGroups {
   public:
    // Cancels what is not written yet.
    ~PendingGroups();
    // All replies are there and judged; waits so long for the judge, and never for replies.
    bool whole(std::chrono::milliseconds patience = {});
    // The groups, once all replies are there: samples with behavior_logp, mask on what was drawn, reward and reward
    // parts. A reply that could not be sampled is in its group unjudged. Waits for the judge, and throws what
    // Judge::Round::finish does.
    std::vector<Group> take();
    int64_t missing() const { return missing_; }      // replies that are not there
    int64_t retried() const { return asked_again_; }  // replies of weights that were too old

   private:
    friend class Collector;
    PendingGroups(Collector& actor, size_t size)
        : actor_(actor), groups_(size), round_(actor.judge_, groups_), requests_(size), tickets_(size) {}
    void ask(size_t i);
    void answer(size_t i, std::vector<CompletionOutput> replies);

    Collector& actor_;
    int64_t oldest_version_ = 0;
    std::vector<Group> groups_;
    RewardRunner::ScoringRound round_;
    std::vector<GenerationRequest> requests_;
    std::vector<std::optional<uint64_t>> tickets_;  // of what is being written
    std::vector<size_t> stale_;                     // to be asked again
    int64_t missing_ = 0, asked_again_ = 0;
  };
  // Asks for them. A request's number decides, with the seed, every draw. A request with a token drawn by weights older
  // than oldest_version is asked again. The tasks are copied.
  std::unique_ptr<PendingGroups> start(std::span<const Task* const> tasks, std::span<const uint64_t> ids,
                                       int64_t oldest_version = 0);
  // Goes on with all that was asked; false when every reply is there.
  bool step() { return sampler_.step(); }

  // ask() and step() until the batch is whole. first_id numbers the requests from there on. What is thrown leaves
  // nothing behind: the same call may be made again.
  std::vector<Group> gather(std::span<const Task* const> tasks, uint64_t first_id);
  std::vector<Group> gather(std::span<const Task* const> tasks, std::span<const uint64_t> ids);
  int64_t failed_replies() const { return failed_; }

 private:
  GenerationBackend& sampler_;
  const CollectorConfig& config_;
  const Tokenizer& tokenizer_;
  PromptEncoder encoder_;
  RewardRunner judge_;
  int64_t failed_ = 0;
};

// Calls take(i, group) for each task, in order. At most 256 groups are in memory at once. ids: a number for each
// request (Collector::gather); empty: the task's index. `what` names the progress bar.
void collect_all(Collector& actor, std::span<const Task> tasks, std::span<const uint64_t> ids, const std::string& what,
                 const std::function<void(size_t i, const Group& group)>& take);

}  // namespace hone
