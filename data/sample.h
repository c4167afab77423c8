#pragma once
// Plain data that rollout, rewards, objectives and the learner pass along.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "core/io/metrics.h"
#include "core/text/chat.h"
#include "data/columns.h"

namespace hone {

// Tokens of a sample, at most: what a recipe may ask for.
inline constexpr int64_t max_sample_length = int64_t{1} << 24;
// Samples or prompts of an optimizer step, at most.
inline constexpr int64_t max_step_samples = int64_t{1} << 20;

// One problem: what the model is asked and what a reward needs to judge the reply.
struct Task {
  std::string id;      // stable across runs
  std::string prompt;  // the text asked; messages is used instead when it is not empty
  std::vector<Message> messages;
  std::string answer;         // the reference, "" when a reward needs none
  Json columns;               // the dataset row whole, for rewards that read more
  std::string rendered = {};  // the prompt as the model read it, special tokens included; "" where none did
};

// A reply as a reward sees it.
struct Completion {
  std::vector<int32_t> ids;
  std::string text;           // decoded, special tokens left out
  std::string finish_reason;  // "stop", "length", or why it failed
};

// One sequence as a learner sees it: prompt then completion.
struct Sample {
  std::vector<int32_t> tokens;
  Columns columns;
  // False: nothing is known about it. It could not be sampled, every reward skipped it, or one failed. Its reward is 0
  // and its mask empty: it is no part of its group's mean and deviation and trains nothing.
  bool scored = true;
  double reward = 0;
  Metrics reward_parts;  // by reward name
  Metrics counts;        // to be added up over a step: "rewards/<name>/failed", "rewards/skipped"
  Completion completion;
  std::vector<int64_t> versions = {};  // of the weights that drew each token; a prompt's are its first drawn token's
  int64_t weight_version = 0;          // the oldest of them
};

// Samples of one task that are judged against each other: G completions of a prompt, or a preference pair (chosen,
// rejected).
struct Group {
  Task task;
  std::vector<Sample> samples;
};

// Writes the mask: 1 from token `first` on. The first token of a sample is never trained on.
void set_mask(Sample& sample, size_t first = 1);
// Takes the sample out of the loss: its mask becomes 0.
void clear_mask(Sample& sample);

// Writes the samples' columns, end to end, into out. A column that some samples have and others lack is an Error that
// names it, and so is one that does not fit its sample's tokens. Samples without tokens need no columns.
void join_columns(std::span<const Sample* const> samples, Columns& out);

}  // namespace hone
