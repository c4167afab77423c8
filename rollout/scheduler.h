#pragma once
// Scheduler: which tokens of which sequences the next forward pass computes. Every running sequence that is decoding comes first; what is left of the
// token budget goes to prompts, in the order they came, in chunks. When the cache is full the youngest running sequence gives its blocks back and is
// computed again later. Nothing here changes a result: a token's arithmetic does not depend on its pass.
#include <deque>
#include <list>
#include <span>

#include "rollout/kv_cache.h"
#include "rollout/sequence.h"

namespace hone {

class Scheduler {
 public:
  Scheduler(KvCache& cache, const EngineConfig& config) : cache_(cache), config_(config) {}

  struct Part {
    std::list<Sequence>::iterator sequence;
    int64_t count = 0;  // tokens from sequence->computed on; their blocks are there
  };

  void add(Sequence sequence) { waiting_.push_back(std::move(sequence)); }
  // The next pass's parts; empty when nothing is left. Cancelled sequences are dropped.
  std::vector<Part> plan();
  // Blocks for up to `passes` tokens of each part from computed on, which are all decoding; returns for how many there was room (1 at least: plan()
  // made it). Takes free blocks only.
  int64_t reserve(std::span<const Part> parts, int64_t passes);
  // A sequence whose reply is done.
  void finish(std::list<Sequence>::iterator sequence);
  // A reply that parts from its prompt: it shares the full blocks and gets a copy of the last, partial one. If no block is free it waits and is
  // computed again.
  void fork(const Sequence& prompt, Sequence reply);
  bool idle() const { return waiting_.empty() && running_.empty(); }
  int64_t preemptions() const { return preemptions_; }

 private:
  // Blocks for tokens [0, end) of the sequence, preempting younger ones if allowed. False: there is no room.
  bool make_room(std::list<Sequence>::iterator sequence, int64_t end, bool may_preempt);
  void give_back(Sequence& sequence);
  void drop_cancelled();

  KvCache& cache_;
  const EngineConfig& config_;
  std::list<Sequence> running_;  // oldest first
  std::deque<Sequence> waiting_;
  int64_t preemptions_ = 0;
};

}  // namespace hone
