#pragma once
// Actor: prompts in, judged groups out. It samples with the model as it is now and scores every reply.
#include <span>
#include <string>
#include <vector>

#include "posttrain/dataset.h"
#include "rewards/reward.h"
#include "rollout/engine.h"

namespace hone {

struct ActorConfig {
  int64_t num_generations = 8;  // replies of a prompt
  Sampling sampling;
  PromptFormat format;
  RewardSpec reward;
  void fields(Fields& f);
};

class Actor {
 public:
  // Everything is the caller's and must outlive the actor.
  Actor(Context& context, Model& model, const Tokenizer& tokenizer, const EngineConfig& engine, const ActorConfig& config);

  // One group a task, in order: its replies as samples with behavior_logp, mask on the reply, reward and reward parts. first_id numbers the requests:
  // with the seed it decides every draw. A reply that failed stays in its group with an empty mask and reward 0, and is counted.
  std::vector<Group> gather(std::span<const Task* const> tasks, uint64_t first_id, int64_t weight_version);
  const EngineStats& stats() const { return engine_.stats(); }
  int64_t failed_replies() const { return failed_; }

 private:
  const ActorConfig& config_;
  PromptEncoder encoder_;
  Sampling sampling_;  // the config's, with the ids that end a turn in its chat format
  Engine engine_;
  int64_t failed_ = 0;
};

// A reward's score of each reply in a group, in order; a reward without parts is one part, of its kind's name. An exception of the reward, or a score
// that is not finite, is an Error that names the task.
void score_group(const RewardSpec& reward, Group& group);

}  // namespace hone
