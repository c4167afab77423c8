#pragma once
// Log-likelihoods of continuations behind contexts, tokenised as lm-evaluation-harness does.
#include <span>
#include <string>
#include <vector>

#include "eval/prompts.h"
#include "eval/task.h"

namespace hone {

// A context and what follows it as one sequence of ids; ids from `first` on are the continuation's.
struct Continuation {
  std::vector<int32_t> ids;
  size_t first = 0;
  bool cut = false;  // the context lost its beginning: the sequence is too long
};

// One thread. The renderer and the tokenizer must outlive it.
class ContinuationEncoder {
 public:
  // longest: of a sequence.
  ContinuationEncoder(const PromptRenderer& renderer, const Tokenizer& tokenizer, int64_t longest);
  // Text: spaces that end the context begin the continuation instead; context and continuation are encoded together,
  // and the continuation is what that is longer than the context alone. An empty context is the tokenizer's BOS, else
  // its EOS, else nothing, and then the first token has no likelihood. Chat: the conversation up to where the reply
  // begins, then the continuation without its leading spaces, encoded by itself. `tail` is more text of the context
  // (the choice that a shared continuation follows).
  Continuation encode(const EvalExample& doc, const std::string& tail, const std::string& continuation);

 private:
  const PromptRenderer& renderer_;
  const Tokenizer& tokenizer_;
  PromptEncoder chat_;
  size_t longest_;
};

// The sum of log-probabilities of each continuation.
std::vector<double> log_likelihoods(const EvalTarget& on, std::span<const Continuation> continuations);

}  // namespace hone
