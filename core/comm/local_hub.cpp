#include "core/comm/local_hub.h"

#include <algorithm>
#include <thread>

#include "core/base/log.h"

namespace hone {

LocalHub::LocalHub(std::vector<std::string> labels, double timeout)
    : labels_(std::move(labels)), timeout_(timeout), ranks_(labels_.size()) {}

void LocalHub::notify() {
  changes_.fetch_add(1, std::memory_order_relaxed);
  changed_.notify_all();
}

void LocalHub::throw_if_failed() const {
  if (failed_) throw RankFailed(failure_);
}

bool LocalHub::all_wait() const {
  return std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.waiting; });
}

// Says what is missing every 30 seconds, and gives up after the timeout. A rank that itself waits is not the one that
// hangs, unless all wait.
void LocalHub::look_at(Watch& watch, int missing, int rank, const std::string& what) {
  const Rank& other = ranks_[static_cast<size_t>(missing)];
  if (other.ended)
    return fail_all(concat(label(missing), " has ended its work; ", label(rank), " waits for it at '", what, "'"));
  const auto now = Clock::now();
  const uint64_t progress = other.progress.load(std::memory_order_relaxed);
  if (watch.rank != missing || watch.progress != progress)
    watch = {.rank = missing, .progress = progress, .since = now, .noticed = now};
  if (now - watch.noticed >= std::chrono::seconds(30)) {
    watch.noticed = now;
    log::info(label(rank), " waits at '", what, "' for ", label(missing), ", which is at '", other.phase, "'");
  }
  if (std::chrono::duration<double>(now - watch.since).count() < timeout_) return;
  if (other.waiting && !all_wait()) return;
  fail_all(concat(label(missing), " has made no progress for ", timeout_, " s (parallel.timeout) at '", other.phase,
                  "'; ", label(rank), " waits for it at '", what, "'"));
}

void LocalHub::fail_all(const std::string& message) {
  if (!failed_) failure_ = message;
  failed_ = true;
  notify();
}

// A rank often comes within microseconds; to sleep and wake up takes longer.
void LocalHub::spin(std::unique_lock<std::mutex>& lock, uint64_t seen) const {
  lock.unlock();
  const auto until = Clock::now() + std::chrono::microseconds(50);
  while (changes_.load(std::memory_order_relaxed) == seen && Clock::now() < until) std::this_thread::yield();
  lock.lock();
}

void LocalHub::wait(std::unique_lock<std::mutex>& lock, int rank, const std::string& what,
                    const std::function<int()>& missing) {
  Rank& own = ranks_[static_cast<size_t>(rank)];
  own.phase = what;
  own.progress.fetch_add(1, std::memory_order_relaxed);
  throw_if_failed();
  Watch watch;
  for (bool first = true;; first = false) {
    const int other = missing();
    if (other < 0) break;
    own.waiting = true;
    look_at(watch, other, rank, what);
    if (!failed_) {
      const uint64_t seen = changes_.load(std::memory_order_relaxed);
      if (first)
        spin(lock, seen);
      else
        changed_.wait_for(lock, std::chrono::milliseconds(100),
                          [&] { return changes_.load(std::memory_order_relaxed) != seen; });
    }
    own.waiting = false;
    throw_if_failed();
  }
}

void LocalHub::set_phase(int rank, const std::string& phase) {
  const std::lock_guard guard(mutex_);
  Rank& own = ranks_[static_cast<size_t>(rank)];
  own.phase = phase;
  own.progress.fetch_add(1, std::memory_order_relaxed);
}

void LocalHub::note_failure(int rank, const std::string& error) {
  const std::lock_guard guard(mutex_);
  ranks_[static_cast<size_t>(rank)].noted = error;
  notify();
}

void LocalHub::throw_if_noted(int rank) const {
  if (const std::string& noted = ranks_[static_cast<size_t>(rank)].noted; !noted.empty())
    throw RankFailed(concat(label(rank), ": ", noted));
}

void LocalHub::abort(const std::string& message) {
  const std::lock_guard guard(mutex_);
  fail_all(message);
}

void LocalHub::leave(int rank) {
  const std::lock_guard guard(mutex_);
  ranks_[static_cast<size_t>(rank)].ended = true;
  notify();
}

std::string LocalHub::failure() {
  const std::lock_guard guard(mutex_);
  return failure_;
}

}  // namespace hone
