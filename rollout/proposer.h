#pragma once
// Proposer: guesses which tokens come next in replies, so that one pass of the model can compute several of them. A
// guess counts only where the model's own draw is the same (Engine), so what is proposed decides how fast a reply is
// written and never what it says.
#include <memory>
#include <span>

#include "core/base/registry.h"
#include "rollout/scheduler.h"

namespace hone {

class Proposer {
 public:
  virtual ~Proposer() = default;
  // Called once before each pass of the model, with all that it will compute. Sets `proposed` of parts that have room:
  // at most room tokens, of the model's vocabulary.
  virtual void propose(std::span<Scheduler::ScheduledSequence> parts) = 0;
  // The device's, so far, in guessing.
  virtual double seconds() const { return 0; }
};

// What an engine gives its proposer; all of it outlives the proposer.
struct ProposerContext {
  Context& context;
  Model& model;
  const Tokenizer* tokenizer = nullptr;
  KvCache& cache;
  const SpeculativeConfig& config;
};

// By SpeculativeConfig::method; "none" makes none.
using ProposerFactory = std::unique_ptr<Proposer> (*)(const ProposerContext& setting);
Registry<ProposerFactory>& proposers();

}  // namespace hone
