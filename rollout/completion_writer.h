#pragma once
// CompletionWriter: adds tokens to replies and knows when one ends. One thread.
#include "rollout/sampler.h"
#include "rollout/sequence.h"

namespace hone {

class CompletionWriter {
 public:
  // tokenizer may be null. Counts tokens in stats; version is that of the weights, as it is when a token is added.
  CompletionWriter(const Tokenizer* tokenizer, EngineStats& stats, const int64_t& version)
      : tokenizer_(tokenizer), stats_(stats), version_(version) {}

  // The prompt of a request that was not refused, and what its ticket keeps of the tokenizer's.
  Sequence begin(std::shared_ptr<RequestState> ticket, const ModelShape& shape) const;
  // Adds what row i drew to its reply, and what follows it by force; false when that ends the reply, whose text and
  // finish_reason are there then.
  bool accept(Sequence& sequence, const SampledTokens& drawn, size_t i);
  // Ends a reply that has no room for a token.
  void close(const Sequence& sequence, bool by_length) const;

 private:
  bool end_thinking(Sequence& sequence);
  bool append(Sequence& sequence, int32_t id);
  bool ends(Sequence& sequence, int32_t id) const;

  const Tokenizer* tokenizer_;
  EngineStats& stats_;
  const int64_t& version_;
};

}  // namespace hone
