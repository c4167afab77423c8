#pragma once
// Scheduler: chooses the tokens of the next forward pass. Running sequences that decode come first. The rest of the
// token budget goes to prompts in arrival order, in chunks. If the KV cache is full, the scheduler preempts the
// youngest running sequence; it is recomputed later, except for the full blocks that the prefix cache still has by
// then. A sequence starts with the cached blocks of its own first tokens, and adds its blocks to the prefix cache as
// they fill. Scheduling never changes a result: a token's arithmetic does not depend on its pass.
#include <deque>
#include <list>
#include <span>

#include "rollout/kv/kv_cache.h"
#include "rollout/sequence.h"

namespace hone {

// One thread.
class Scheduler {
 public:
  Scheduler(KvCache& cache, const EngineConfig& config) : cache_(cache), config_(config) {}

  struct ScheduledSequence {
    std::list<Sequence>::iterator sequence;
    int64_t count = 0;             // tokens to compute, from sequence->computed on; their blocks are allocated
    int64_t num_lookahead = 0;     // further tokens whose blocks are allocated (reserve_lookahead)
    std::vector<int32_t> draft{};  // draft tokens for the lookahead (rollout/proposer.h)

    // True if the pass computes the whole sequence, so that its next token is sampled.
    bool samples_token() const { return count == sequence->remaining() && !sequence->full(); }
    // True for a completion whose next token alone is computed.
    bool decodes() const { return sequence->forked && sequence->remaining() == 1; }
    int64_t width() const { return count + std::ssize(draft); }
  };

  void add(Sequence sequence) { waiting_.push_back(std::move(sequence)); }
  // Returns the parts of the next pass; empty if no sequence can run. Drops cancelled sequences.
  std::vector<ScheduledSequence> schedule();
  // Allocates blocks for each part's num_lookahead. If too few blocks are free, lowers it to a common bound. Returns
  // the largest num_lookahead that is left.
  int64_t reserve_lookahead(std::span<ScheduledSequence> parts);
  // Records that the sequence's next `count` tokens are computed.
  void advance(Sequence& sequence, int64_t count);
  // Drops the sequences of cancelled requests. Call it between passes.
  void drop_cancelled();
  // Preempts all running sequences and keeps their order. Call it between passes.
  void preempt_all();
  // Removes a sequence whose completion is done.
  void finish(std::list<Sequence>::iterator sequence);
  // Forks a completion from its prompt, which is still running. The completion shares the full KV blocks, copies the
  // partial one, and takes the prompt's place in the order. If no block is free, or max_sequences are running, it waits
  // and is recomputed.
  void fork(std::list<Sequence>::iterator prompt, Sequence completion);
  bool idle() const { return waiting_.empty() && running_.empty(); }
  int64_t preemptions() const { return preemptions_; }
  int64_t cached_tokens() const { return cached_tokens_; }

 private:
  // Allocates blocks for tokens [0, end) of the sequence; may_preempt allows to preempt younger ones. Returns false if
  // blocks are too few.
  bool allocate_blocks(std::list<Sequence>::iterator sequence, int64_t end, bool may_preempt);
  void free_blocks_of(Sequence& sequence);
  // Completions that run, plus those that the running prompts will fork.
  int64_t num_completions() const;
  // References the cached blocks of the first tokens of a sequence of which nothing is computed.
  void match_prefix(Sequence& sequence);

  KvCache& cache_;
  const EngineConfig& config_;
  std::list<Sequence> running_;  // oldest first
  std::deque<Sequence> waiting_;
  int64_t preemptions_ = 0, cached_tokens_ = 0;
};

}  // namespace hone
