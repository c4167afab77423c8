#pragma once
// Scheduler: which tokens of which sequences the next forward pass computes. Every running sequence that is decoding
// comes first; what is left of the token budget goes to prompts, in the order they came, in chunks. When the cache is
// full the youngest running sequence gives its blocks back and is computed again later, less the full blocks that the
// cache still has by then: a sequence starts with all that are named by its own first tokens, and names its own as they
// fill up. Nothing here changes a result: a token's arithmetic does not depend on its pass.
#include <deque>
#include <list>
#include <span>

#include "rollout/kv/kv_cache.h"
#include "rollout/sequence.h"

namespace hone {

class Scheduler {
 public:
  Scheduler(KvCache& cache, const EngineConfig& config) : cache_(cache), config_(config) {}

  struct ScheduledSequence {
    std::list<Sequence>::iterator sequence;
    int64_t count = 0;                // tokens from sequence->computed on; their blocks are there
    int64_t room = 0;                 // and those of so many more that may follow (reserve)
    std::vector<int32_t> proposed{};  // which these may be (rollout/proposer.h)

    // Of the sequence's next token, when all of it is computed.
    bool draws() const { return count == sequence->remaining() && !sequence->full(); }
    int64_t width() const { return count + std::ssize(proposed); }
  };

  void add(Sequence sequence) { waiting_.push_back(std::move(sequence)); }
  // The next pass's parts; empty when nothing is left. Cancelled sequences are dropped.
  std::vector<ScheduledSequence> schedule();
  // Takes blocks for each part's room, or for less of it where free blocks are too few: none has more than the returned
  // number then.
  int64_t reserve(std::span<ScheduledSequence> parts);
  // The sequence's next `count` tokens are computed.
  void advance(Sequence& sequence, int64_t count);
  // Between passes: everything that runs gives its blocks back and is computed again, in the same order.
  void preempt_all();
  // A sequence whose reply is done.
  void finish(std::list<Sequence>::iterator sequence);
  // A reply that parts from its prompt, which is still there and whose place in the order it has: it shares the full
  // blocks and gets a copy of the last, partial one. If no block is free, or max_sequences are running, it waits and is
  // computed again.
  void fork(std::list<Sequence>::iterator prompt, Sequence reply);
  bool idle() const { return waiting_.empty() && running_.empty(); }
  int64_t preemptions() const { return preemptions_; }
  int64_t cached_tokens() const { return cached_tokens_; }

 private:
  // Blocks for tokens [0, end) of the sequence, preempting younger ones if allowed. False: there is no room.
  bool allocate_blocks(std::list<Sequence>::iterator sequence, int64_t end, bool may_preempt);
  void free_blocks_of(Sequence& sequence);
  // Replies that run, or will once the prompts that run are computed.
  int64_t num_replies() const;
  // Shares the named blocks that the sequence, of which nothing is computed, begins with.
  void match_prefix(Sequence& sequence);
  void drop_cancelled();

  KvCache& cache_;
  const EngineConfig& config_;
  std::list<Sequence> running_;  // oldest first
  std::deque<Sequence> waiting_;
  int64_t preemptions_ = 0, cached_tokens_ = 0;
};

}  // namespace hone
