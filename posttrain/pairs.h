#pragma once
// Makes preference pairs from a model's own completions: samples several completions of each prompt, scores them, and
// pairs a good one with a bad one.
#include <functional>

#include "posttrain/rl/collector.h"

namespace hone {

struct PairSource {
  TaskSource tasks;
  CollectorConfig actor;
  EngineConfig rollout;
  double margin = 0;             // the rewards of a pair differ by more than this
  int64_t pairs_per_prompt = 1;  // maximum: the best with the worst, the second best with the second worst, ...
  void fields(Fields& f);
};

// Throws an Error if the first task of a file, or the reward on the first task, has a problem. Before a model is
// loaded.
void check_pairs(const PairSource& source);

// Returns at most `most` pairs of a group as rows {"prompt", "chosen", "rejected", "chosen_reward", "rejected_reward",
// "answer"}, best pair first. Completions of equal reward keep their order in the group. For a task with messages
// prompt, chosen and rejected are lists of messages (TRL's conversational format), else texts. Completions that failed,
// have no score or were cut off (training would add an end that was not sampled) are left out.
std::vector<Json> pairs_of(const Group& group, double margin, int64_t most);

struct PairReport {
  int64_t prompts = 0, replies = 0, judged = 0, pairs = 0;
  double reward = 0;  // mean reward of the scored completions
};
// Samples completions for the tasks of `source` and calls row(pair) for the pairs of each task, in order.
PairReport sample_pairs(Context& context, Model& model, const Tokenizer& tokenizer, const PairSource& source,
                        const std::function<void(const Json& row)>& row);

}  // namespace hone
