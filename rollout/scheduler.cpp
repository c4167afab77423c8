#include "rollout/scheduler.h"

#include <algorithm>
#include <numeric>

namespace hone {

static int64_t replies_of(const Sequence& sequence) { return sequence.forked ? 1 : sequence.ticket->request.n; }

int64_t Scheduler::num_replies() const {
  return std::accumulate(running_.begin(), running_.end(), int64_t{0},
                         [](int64_t sum, const Sequence& s) { return sum + replies_of(s); });
}

// So that no block is lost where memory is.
static void reserve_blocks(Sequence& sequence, int64_t more) {
  sequence.blocks.reserve(sequence.blocks.size() + static_cast<size_t>(std::max<int64_t>(more, 0)));
}

void Scheduler::free_blocks_of(Sequence& sequence) {
  // The last first: a block is of no use without those before it.
  for (auto block = sequence.blocks.rbegin(); block != sequence.blocks.rend(); ++block) cache_.unref(*block);
  sequence.blocks.clear();
  sequence.computed = 0;
}

void Scheduler::match_prefix(Sequence& sequence) {
  sequence.num_cached_blocks = 0;
  sequence.prefix_hash = cache_.prefixes().root();
  const bool scored =
      !sequence.forked && sequence.ticket->request.prompt_logprobs;  // every token's hidden state is needed
  if (!config_.prefix_caching || scored) return;
  const int64_t size = cache_.block_size();
  const std::span<const int32_t> tokens = sequence.tokens;
  reserve_blocks(sequence, cache_.blocks_for(std::ssize(tokens)));
  while (sequence.computed + size < std::ssize(tokens)) {  // one token at least is computed, to draw from
    const auto found = cache_.prefixes().find(
        sequence.prefix_hash, tokens.subspan(static_cast<size_t>(sequence.computed), static_cast<size_t>(size)));
    if (!found) break;
    cache_.ref(found->block);
    sequence.blocks.push_back(found->block);
    sequence.computed += size;
    sequence.prefix_hash = found->name;
    ++sequence.num_cached_blocks;
  }
}

void Scheduler::advance(Sequence& sequence, int64_t count) {
  sequence.computed += count;
  const int64_t size = cache_.block_size();
  const std::span<const int32_t> tokens = sequence.tokens;
  for (; config_.prefix_caching && (sequence.num_cached_blocks + 1) * size <= sequence.computed;
       ++sequence.num_cached_blocks)
    sequence.prefix_hash = cache_.cache_block(
        sequence.blocks[static_cast<size_t>(sequence.num_cached_blocks)], sequence.prefix_hash,
        tokens.subspan(static_cast<size_t>(sequence.num_cached_blocks * size), static_cast<size_t>(size)));
}

void Scheduler::drop_cancelled() {
  std::erase_if(waiting_, [](const Sequence& s) { return s.ticket->cancelled; });
  for (auto it = running_.begin(); it != running_.end();) {
    if (it->ticket->cancelled) {
      free_blocks_of(*it);
      it = running_.erase(it);
    } else {
      ++it;
    }
  }
}

bool Scheduler::allocate_blocks(std::list<Sequence>::iterator sequence, int64_t end, bool may_preempt) {
  const int64_t wanted = cache_.blocks_for(end) - static_cast<int64_t>(sequence->blocks.size());
  while (cache_.free_blocks() < wanted) {
    const auto youngest = std::prev(running_.end());
    if (!may_preempt || youngest == sequence) return false;
    free_blocks_of(*youngest);
    waiting_.push_front(std::move(*youngest));
    running_.erase(youngest);
    ++preemptions_;
  }
  reserve_blocks(*sequence, wanted);
  for (int64_t i = 0; i < wanted; ++i) sequence->blocks.push_back(cache_.allocate());
  return true;
}

std::vector<Scheduler::ScheduledSequence> Scheduler::schedule() {
  drop_cancelled();
  std::vector<ScheduledSequence> parts;
  int64_t budget = config_.max_batch_tokens;
  const auto take = [&](std::list<Sequence>::iterator sequence, int64_t count) {
    parts.push_back({sequence, count});
    budget -= count;
  };
  for (auto it = running_.begin(); it != running_.end() && budget > 0; ++it) {
    const int64_t count = std::min(budget, it->remaining());
    // The oldest always finds room: a request that would not fit alone was refused when it came.
    if (allocate_blocks(it, it->computed + count, true)) {
      take(it, count);
      continue;
    }
    free_blocks_of(*it);
    waiting_.push_front(std::move(*it));
    running_.erase(it);
    ++preemptions_;
    break;
  }
  while (budget > 0 && !waiting_.empty() &&
         (running_.empty() || num_replies() + replies_of(waiting_.front()) <= config_.max_sequences)) {
    // A preempted sequence waits until it fits whole with a block to spare, so that two do not take turns in evicting
    // each other.
    Sequence& next = waiting_.front();
    const int64_t spare = next.forked && !running_.empty() ? 1 : 0;
    const int64_t tokens = static_cast<int64_t>(next.tokens.size()) + (next.full() ? 0 : 1);
    match_prefix(next);
    if (cache_.free_blocks() < cache_.blocks_for(tokens) - std::ssize(next.blocks) + spare) {
      free_blocks_of(next);
      break;
    }
    cached_tokens_ += next.computed;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    const auto it = std::prev(running_.end());
    const int64_t count = std::min(budget, it->remaining());
    allocate_blocks(it, it->computed + count, false);
    take(it, count);
  }
  return parts;
}

int64_t Scheduler::reserve(std::span<ScheduledSequence> parts) {
  const auto lacking = [&](const ScheduledSequence& part, int64_t most) {
    const int64_t end = part.sequence->computed + part.count + std::min(part.room, most);
    return std::max<int64_t>(0, cache_.blocks_for(end) - static_cast<int64_t>(part.sequence->blocks.size()));
  };
  const auto fits = [&](int64_t most) {
    int64_t sum = 0;
    for (const ScheduledSequence& part : parts) sum += lacking(part, most);
    return sum <= cache_.free_blocks();
  };
  int64_t most = 0;
  for (const ScheduledSequence& part : parts) most = std::max(most, part.room);
  while (most > 0 && !fits(most)) --most;
  for (ScheduledSequence& part : parts) {
    reserve_blocks(*part.sequence, lacking(part, most));
    for (int64_t i = lacking(part, most); i > 0; --i) part.sequence->blocks.push_back(cache_.allocate());
    part.room = std::min(part.room, most);
  }
  return most;
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

void Scheduler::fork(std::list<Sequence>::iterator prompt, Sequence reply) {
  const size_t full = static_cast<size_t>(prompt->computed / cache_.block_size());
  const int64_t partial = prompt->computed % cache_.block_size();
  reply.blocks.clear();
  reply.computed = 0;
  if ((partial > 0 && cache_.free_blocks() == 0) || std::ssize(running_) > config_.max_sequences) {
    waiting_.push_front(std::move(reply));
    return;
  }
  reserve_blocks(reply, static_cast<int64_t>(full) + 1);
  Sequence& forked = *running_.insert(prompt, std::move(reply));
  for (size_t i = 0; i < full; ++i) {
    cache_.ref(prompt->blocks[i]);
    forked.blocks.push_back(prompt->blocks[i]);
  }
  if (partial > 0) forked.blocks.push_back(cache_.copy(prompt->blocks[full], partial));
  forked.computed = prompt->computed;
}

}  // namespace hone
