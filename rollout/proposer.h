#pragma once
// Proposer: proposes draft tokens for speculative decoding, so that one pass of the model computes several tokens. The
// engine accepts a draft token only if the model samples the same one. Drafts thus change the speed and never the
// completion.
#include <memory>
#include <span>

#include "core/base/registry.h"
#include "rollout/scheduler.h"

namespace hone {

class Proposer {
 public:
  virtual ~Proposer() = default;
  // Called once before each pass of the model with all parts of the pass. Sets `draft` of parts that have lookahead: at
  // most num_lookahead ids of the model's vocabulary.
  virtual void propose(std::span<Scheduler::ScheduledSequence> parts) = 0;
  // True if every pass must call observe().
  virtual bool reads_hidden() const { return false; }
  // Called in each pass before it samples. hidden [T, D]: the input of lm_head for each part's tokens and then its
  // draft tokens, in the order of the parts; valid during the call. May be called again with the same tokens if a pass
  // fails. Queues work on the context that the engine computes with.
  virtual void observe(std::span<const Scheduler::ScheduledSequence> /*parts*/, Tensor /*hidden*/) {}
  // Frees the memory and the captured graphs that proposals have left. Weights of a draft model stay. Storages that are
  // attached to the KV cache are freed with it. The device must have done all passes.
  virtual void free_memory() {}
  // Device seconds spent on drafts so far.
  virtual double seconds() const { return 0; }
};

// What the engine passes to its proposer. All of it outlives the proposer.
struct ProposerContext {
  Context& context;
  Model& model;
  const Tokenizer* tokenizer = nullptr;
  KvCache& cache;
  const SpeculativeConfig& config;
};

// Registered by SpeculativeConfig::method. "none" returns null.
using ProposerFactory = std::unique_ptr<Proposer> (*)(const ProposerContext& context);
Registry<ProposerFactory>& proposers();

}  // namespace hone
