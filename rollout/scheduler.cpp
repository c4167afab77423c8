#include "rollout/scheduler.h"

#include <algorithm>

namespace hone {

void Scheduler::give_back(Sequence& sequence) {
  for (const int32_t block : sequence.blocks) cache_.release(block);
  sequence.blocks.clear();
  sequence.computed = 0;
}

void Scheduler::drop_cancelled() {
  std::erase_if(waiting_, [](const Sequence& s) { return s.ticket->cancelled; });
  for (auto it = running_.begin(); it != running_.end();) {
    if (it->ticket->cancelled) {
      give_back(*it);
      it = running_.erase(it);
    } else {
      ++it;
    }
  }
}

bool Scheduler::make_room(std::list<Sequence>::iterator sequence, int64_t end, bool may_preempt) {
  const int64_t wanted = cache_.blocks_for(end) - static_cast<int64_t>(sequence->blocks.size());
  while (cache_.free_blocks() < wanted) {
    const auto youngest = std::prev(running_.end());
    if (!may_preempt || youngest == sequence) return false;
    give_back(*youngest);
    waiting_.push_front(std::move(*youngest));
    running_.erase(youngest);
    ++preemptions_;
  }
  for (int64_t i = 0; i < wanted; ++i) sequence->blocks.push_back(cache_.take());
  return true;
}

std::vector<Scheduler::Part> Scheduler::plan() {
  drop_cancelled();
  std::vector<Part> parts;
  int64_t budget = config_.max_batch_tokens;
  const auto take = [&](std::list<Sequence>::iterator sequence, int64_t count) {
    parts.push_back({sequence, count});
    budget -= count;
  };
  for (auto it = running_.begin(); it != running_.end() && budget > 0; ++it) {
    const int64_t count = std::min(budget, it->remaining());
    // The oldest always finds room: a request that would not fit alone was refused when it came.
    if (make_room(it, it->computed + count, true)) {
      take(it, count);
      continue;
    }
    give_back(*it);
    waiting_.push_front(std::move(*it));
    running_.erase(it);
    ++preemptions_;
    break;
  }
  while (budget > 0 && !waiting_.empty() && static_cast<int64_t>(running_.size()) < config_.max_sequences) {
    // A preempted sequence waits until it fits whole with a block to spare, so that two do not take turns in evicting each other.
    const Sequence& next = waiting_.front();
    const int64_t spare = next.parted && !running_.empty() ? 1 : 0;
    const int64_t tokens = static_cast<int64_t>(next.tokens.size()) + (next.full() ? 0 : 1);
    if (cache_.free_blocks() < cache_.blocks_for(tokens) + spare) break;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    const auto it = std::prev(running_.end());
    const int64_t count = std::min(budget, it->remaining());
    make_room(it, count, false);
    take(it, count);
  }
  return parts;
}

int64_t Scheduler::reserve(std::span<const Part> parts, int64_t passes) {
  const auto lacking = [&](const Part& part, int64_t count) {
    return cache_.blocks_for(part.sequence->computed + count) - static_cast<int64_t>(part.sequence->blocks.size());
  };
  const auto fits = [&](int64_t count) {
    int64_t sum = 0;
    for (const Part& part : parts) sum += std::max<int64_t>(0, lacking(part, count));
    return sum <= cache_.free_blocks();
  };
  while (passes > 1 && !fits(passes)) --passes;
  for (const Part& part : parts)
    for (int64_t i = lacking(part, passes); i > 0; --i) part.sequence->blocks.push_back(cache_.take());
  return passes;
}

void Scheduler::finish(std::list<Sequence>::iterator sequence) {
  give_back(*sequence);
  running_.erase(sequence);
}

void Scheduler::fork(const Sequence& prompt, Sequence reply) {
  const size_t full = static_cast<size_t>(prompt.computed / cache_.block_size());
  const bool partial = prompt.computed % cache_.block_size() != 0;
  reply.blocks.clear();
  reply.computed = 0;
  if (partial && cache_.free_blocks() == 0) {
    waiting_.push_front(std::move(reply));
    return;
  }
  for (size_t i = 0; i < full; ++i) {
    cache_.share(prompt.blocks[i]);
    reply.blocks.push_back(prompt.blocks[i]);
  }
  if (partial) reply.blocks.push_back(cache_.copy(prompt.blocks[full]));
  reply.computed = prompt.computed;
  running_.push_back(std::move(reply));
}

}  // namespace hone
