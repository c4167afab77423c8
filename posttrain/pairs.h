#pragma once
// Preference pairs out of a model's own replies: several of each prompt are drawn and judged, a good one and a bad one
// make a pair.
#include <functional>

#include "posttrain/rl/collector.h"

namespace hone {

struct PairSource {
  TaskSource tasks;
  CollectorConfig actor;
  EngineConfig rollout;
  double margin = 0;             // a pair's rewards differ by more than this
  int64_t pairs_per_prompt = 1;  // at most: the best with the worst, the second best with the second worst, ...
  void fields(Fields& f);
};

// A group's pairs as rows {"prompt", "chosen", "rejected", "chosen_reward", "rejected_reward", "answer"}, best first;
// of equal rewards the reply drawn first. Of a task with messages, prompt, chosen and rejected are lists of messages
// (TRL's conversational format); else they are texts. Replies that failed, that no reward judged, or that were cut off
// (their end would be made up) take no part.
std::vector<Json> pairs_of(const Group& group, double margin, int64_t most);

struct PairReport {
  int64_t prompts = 0, replies = 0, judged = 0, pairs = 0;
  double reward = 0;  // mean of the judged replies
};
// Calls row(...) for the pairs of every task, in order.
PairReport sample_pairs(Context& context, Model& model, const Tokenizer& tokenizer, const PairSource& source,
                        const std::function<void(const Json& row)>& row);

}  // namespace hone
