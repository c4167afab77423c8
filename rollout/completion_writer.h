#pragma once
// CompletionWriter: appends sampled and forced tokens to completions and decides when a completion ends. One thread.
#include "rollout/sampler.h"
#include "rollout/sequence.h"

namespace hone {

class CompletionWriter {
 public:
  // tokenizer may be null. stats counts tokens; version is read when a token is appended. All three must outlive this.
  CompletionWriter(const Tokenizer* tokenizer, EngineStats& stats, const int64_t& version)
      : tokenizer_(tokenizer), stats_(stats), version_(version) {}

  // Makes the prompt's sequence of a valid request, and fills in the request state's stop ids and thinking_end ids.
  Sequence begin_sequence(std::shared_ptr<RequestState> state, const ModelShape& shape) const;
  // Appends row i of `sampled` to the sequence's completion, and the forced tokens that follow it. Returns false if
  // that ends the completion; its text and finish_reason are then set.
  bool accept(Sequence& sequence, const SampledTokens& sampled, size_t i);
  // Ends a completion that can take no token.
  void close(const Sequence& sequence, bool by_length) const;

 private:
  bool end_thinking(Sequence& sequence);
  bool append(Sequence& sequence, int32_t id);
  bool ends_completion(Sequence& sequence, int32_t id) const;

  const Tokenizer* tokenizer_;
  EngineStats& stats_;
  const int64_t& version_;
};

}  // namespace hone
