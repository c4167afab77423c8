#include "posttrain/rl/rollout_producer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/stopwatch.h"

namespace hone {

bool RolloutProducer::may_begin(int64_t newest) const {
  return next_ < staleness_policy_.num_steps && next_ - staleness_policy_.max_staleness <= newest &&
         (pending_.empty() || !staleness_policy_.deterministic);
}

// A deterministic batch has one policy version: new weights wait until the batch before it is complete.
void RolloutProducer::publish(int64_t newest) {
  int64_t due = newest;
  if (staleness_policy_.deterministic)
    due = pending_.empty() && may_begin(newest)
              ? std::max(staleness_policy_.first, next_ - staleness_policy_.max_staleness)
              : version_;
  if (due <= version_) return;
  sampler_.set_policy_version(due);
  version_ = sampler_.version();
}

void RolloutProducer::ask(PendingBatch& pending) {
  const std::vector<ScheduledTask> scheduled = rounds_.next_tasks(pending.round);
  if (scheduled.empty()) return;
  std::vector<const Task*> tasks;
  std::vector<uint64_t> ids;
  for (const ScheduledTask& one : scheduled) {
    tasks.push_back(&rounds_.task(one));
    ids.push_back(one.id);
  }
  pending.batch = collector_.start(
      tasks, ids, staleness_policy_.deterministic ? version_ : pending.number - staleness_policy_.max_staleness);
}

void RolloutProducer::advance(PendingBatch& pending) {
  if (!pending.batch || !pending.batch->complete()) return;
  std::vector<Group> groups = pending.batch->take();
  pending.dropped += static_cast<double>(pending.batch->retried());
  pending.batch.reset();
  rounds_.take(pending.round, std::move(groups));
  ask(pending);
}

ProducedBatch RolloutProducer::finish_batch(PendingBatch pending) {
  ProducedBatch out{.number = pending.number, .groups = {}, .metrics = collector_.metrics()};
  if (const auto tokens = out.metrics.find("rollout/generated_tokens");
      tokens != out.metrics.end() && writing_seconds_ > 0)
    out.metrics["rollout/tokens_per_second"] = tokens->second / std::exchange(writing_seconds_, 0);
  if (staleness_policy_.max_staleness > 0) out.metrics["staleness/dropped"] = pending.dropped;
  out.groups = rounds_.finish(std::move(pending.round), out.metrics);
  return out;
}

std::vector<ProducedBatch> RolloutProducer::turn(int64_t newest) {
  publish(newest);
  while (may_begin(newest)) ask(pending_.emplace_back(PendingBatch{.number = next_++}));
  const Stopwatch watch;
  const bool writing = collector_.step();
  writing_seconds_ += watch.seconds();
  for (PendingBatch& pending : pending_) advance(pending);
  std::vector<ProducedBatch> out;
  for (; !pending_.empty() && !pending_.front().batch; pending_.pop_front())
    out.push_back(finish_batch(std::move(pending_.front())));
  constexpr std::chrono::milliseconds timeout(5);
  if (!writing && out.empty() && !pending_.empty())
    pending_.front().batch->complete(timeout);  // only rewards are missing
  return out;
}

void RolloutProducer::abandon() {
  std::vector<PendingTasks> tasks;
  for (PendingBatch& pending : pending_) tasks.push_back(std::move(pending.round));
  next_ -= std::ssize(pending_);
  pending_.clear();
  rounds_.abandon(tasks);
}

int64_t RolloutProducer::missing_completions() const {
  int64_t sum = 0;
  for (const PendingBatch& pending : pending_) sum += pending.batch ? pending.batch->missing() : 0;
  return sum;
}

}  // namespace hone
