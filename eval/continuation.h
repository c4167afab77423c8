#pragma once
// Log-likelihoods of continuations after contexts, tokenized as in lm-evaluation-harness.
#include <span>
#include <string>
#include <vector>

#include "eval/prompts.h"
#include "eval/task.h"

namespace hone {

// A context and its continuation as one sequence of ids. The continuation begins at ids[first].
struct Continuation {
  std::vector<int32_t> ids;
  size_t first = 0;
  bool cut = false;  // the beginning of the context was cut off, because the sequence is too long
};

// One thread. The renderer and the tokenizer must outlive it.
class ContinuationEncoder {
 public:
  // max_length: tokens of a sequence.
  ContinuationEncoder(const PromptRenderer& renderer, const Tokenizer& tokenizer, int64_t max_length);
  // Text: final spaces of the context move to the continuation. Context and continuation are encoded together; the
  // continuation's tokens are those beyond the tokens of the context alone. An empty context is the tokenizer's BOS,
  // else its EOS, else nothing; in the last case the first token has no likelihood. Chat: the conversation up to the
  // start of the assistant message, then the continuation without leading spaces, encoded alone. `tail` is appended to
  // the context (the choice before a shared continuation).
  Continuation encode(const EvalExample& doc, const std::string& tail, const std::string& continuation);

 private:
  const PromptRenderer& renderer_;
  const Tokenizer& tokenizer_;
  PromptEncoder chat_;
  size_t max_length_;
};

// The sum of the log-probs of each continuation's tokens.
std::vector<double> log_likelihoods(const EvalTarget& target, std::span<const Continuation> continuations);

}  // namespace hone
