#include "rollout/scheduler.h"

#include <algorithm>
#include <numeric>

namespace hone {

static int64_t num_completions_of(const Sequence& sequence) {
  return sequence.forked ? 1 : sequence.request_state->request.n;
}

int64_t Scheduler::num_completions() const {
  return std::accumulate(running_.begin(), running_.end(), int64_t{0},
                         [](int64_t sum, const Sequence& s) { return sum + num_completions_of(s); });
}

void Scheduler::free_blocks_of(Sequence& sequence) {
  cache_.release(sequence.blocks);
  sequence.computed = 0;
}

void Scheduler::match_prefix(Sequence& sequence) {
  sequence.num_cached_blocks = 0;
  sequence.prefix_id = cache_.prefix_root(sequence.request_state->request.adapter);
  const bool needs_all_logprobs =
      !sequence.forked &&
      sequence.request_state->request.prompt_logprobs;  // the pass must compute every token's hidden state
  if (!config_.prefix_caching || needs_all_logprobs) return;
  // At least one token is computed, to sample from.
  const int64_t max_blocks = (std::ssize(sequence.tokens) - 1) / cache_.block_size();
  const KvCache::PrefixMatch match =
      cache_.match_prefix(sequence.blocks, sequence.prefix_id, sequence.tokens, max_blocks);
  sequence.computed = match.blocks * cache_.block_size();
  sequence.prefix_id = match.id;
  sequence.num_cached_blocks = match.blocks;
}

void Scheduler::advance(Sequence& sequence, int64_t count) {
  sequence.computed += count;
  const int64_t size = cache_.block_size();
  const std::span<const int32_t> tokens = sequence.tokens;
  for (; config_.prefix_caching && (sequence.num_cached_blocks + 1) * size <= sequence.computed;
       ++sequence.num_cached_blocks)
    sequence.prefix_id = cache_.cache_block(
        sequence.blocks, sequence.num_cached_blocks, sequence.prefix_id,
        tokens.subspan(static_cast<size_t>(sequence.num_cached_blocks * size), static_cast<size_t>(size)));
  // Draft tokens that were rejected do not count: later queries are at sequence.computed or behind it. Passes that are
  // queued already compute later tokens, too.
  cache_.release_unseen(sequence.blocks, sequence.computed);
}

void Scheduler::drop_cancelled() {
  std::erase_if(waiting_, [](const Sequence& s) { return s.request_state->cancelled; });
  for (auto it = running_.begin(); it != running_.end();) {
    if (it->request_state->cancelled) {
      free_blocks_of(*it);
      it = running_.erase(it);
    } else {
      ++it;
    }
  }
}

bool Scheduler::allocate_blocks(std::list<Sequence>::iterator sequence, int64_t end, bool may_preempt) {
  while (cache_.free_blocks() < cache_.missing_blocks(sequence->blocks, end)) {
    const auto youngest = std::prev(running_.end());
    if (!may_preempt || youngest == sequence) return false;
    free_blocks_of(*youngest);
    waiting_.push_front(std::move(*youngest));
    running_.erase(youngest);
    ++preemptions_;
  }
  cache_.extend(sequence->blocks, end);
  return true;
}

std::vector<Scheduler::ScheduledSequence> Scheduler::schedule() {
  drop_cancelled();
  std::vector<ScheduledSequence> parts;
  int64_t budget = config_.max_batch_tokens;
  const auto add_part = [&](std::list<Sequence>::iterator sequence, int64_t count) {
    parts.push_back({sequence, count});
    budget -= count;
  };
  for (auto it = running_.begin(); it != running_.end() && budget > 0; ++it) {
    const int64_t count = std::min(budget, it->remaining());
    // The oldest sequence always gets its blocks: a request that does not fit alone was rejected at submission.
    if (allocate_blocks(it, it->computed + count, true)) {
      add_part(it, count);
      continue;
    }
    free_blocks_of(*it);
    waiting_.push_front(std::move(*it));
    running_.erase(it);
    ++preemptions_;
    break;
  }
  while (budget > 0 && !waiting_.empty() &&
         (running_.empty() || num_completions() + num_completions_of(waiting_.front()) <= config_.max_sequences)) {
    // A preempted sequence waits until all of it fits with one free block of each table left, so that two sequences do
    // not preempt each other in alternation.
    Sequence& next = waiting_.front();
    const int64_t spare = next.forked && !running_.empty() ? cache_.num_tables() : 0;
    const int64_t tokens = static_cast<int64_t>(next.tokens.size()) + (next.full() ? 0 : 1);
    match_prefix(next);
    if (cache_.free_blocks() < cache_.missing_blocks_at_peak(next.blocks, tokens, config_.max_batch_tokens) + spare) {
      free_blocks_of(next);
      break;
    }
    cached_tokens_ += next.computed;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    const auto it = std::prev(running_.end());
    const int64_t count = std::min(budget, it->remaining());
    allocate_blocks(it, it->computed + count, false);
    add_part(it, count);
  }
  return parts;
}

int64_t Scheduler::reserve_lookahead(std::span<ScheduledSequence> parts) {
  const auto missing_blocks = [&](const ScheduledSequence& part, int64_t max_lookahead) {
    const int64_t end = part.sequence->computed + part.count + std::min(part.num_lookahead, max_lookahead);
    return cache_.missing_blocks(part.sequence->blocks, end);
  };
  const auto fits = [&](int64_t max_lookahead) {
    int64_t sum = 0;
    for (const ScheduledSequence& part : parts) sum += missing_blocks(part, max_lookahead);
    return sum <= cache_.free_blocks();
  };
  int64_t max_lookahead = 0;
  for (const ScheduledSequence& part : parts) max_lookahead = std::max(max_lookahead, part.num_lookahead);
  while (max_lookahead > 0 && !fits(max_lookahead)) --max_lookahead;
  for (ScheduledSequence& part : parts) {
    part.num_lookahead = std::min(part.num_lookahead, max_lookahead);
    cache_.extend(part.sequence->blocks, part.sequence->computed + part.count + part.num_lookahead);
  }
  return max_lookahead;
}

void Scheduler::preempt_all() {
  for (; !running_.empty(); running_.pop_back()) {
    free_blocks_of(running_.back());
    waiting_.push_front(std::move(running_.back()));
  }
}

void Scheduler::finish(std::list<Sequence>::iterator sequence) {
  free_blocks_of(*sequence);
  running_.erase(sequence);
}

void Scheduler::fork(std::list<Sequence>::iterator prompt, Sequence completion) {
  completion.blocks = {};
  completion.computed = 0;
  if (std::ssize(running_) > config_.max_sequences) {
    waiting_.push_front(std::move(completion));
    return;
  }
  const auto forked = running_.insert(prompt, std::move(completion));
  if (cache_.fork(forked->blocks, prompt->blocks, prompt->computed)) {
    forked->computed = prompt->computed;
    return;
  }
  waiting_.push_front(std::move(*forked));
  running_.erase(forked);
}

}  // namespace hone
