#pragma once
// LocalHub: what the ranks of one process share. Ranks are threads; every wait of a rank for another one passes here,
// so that a failed or hanging rank is noticed in one place.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/comm/control_channel.h"

namespace hone {

// Any thread. Ranks call with their own number.
class LocalHub {
 public:
  // labels: "rank 0 (cuda:0)", ...; one per rank. timeout: seconds without progress of a rank that others wait for.
  LocalHub(std::vector<std::string> labels, double timeout);
  int size() const { return static_cast<int>(labels_.size()); }
  const std::string& label(int rank) const { return labels_[static_cast<size_t>(rank)]; }
  // Counts a rank's calls, phases and note_progress().
  std::atomic<uint64_t>& progress(int rank) { return ranks_[static_cast<size_t>(rank)].progress; }

  // Guards what ranks exchange. A change of it is followed by notify().
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  void notify();
  // Waits until missing() is -1: the number of a rank that this rank still waits for. Called under the lock. Throws
  // RankFailed as ControlChannel says.
  void wait(std::unique_lock<std::mutex>& lock, int rank, const std::string& what, const std::function<int()>& missing);

  void set_phase(int rank, const std::string& phase);
  void note_failure(int rank, const std::string& error);
  // Throws RankFailed if a rank noted a failure. Called under the lock, for a wait that the rank will not end.
  void throw_if_noted(int rank) const;
  void abort(const std::string& message);
  // This rank makes no more calls. Ranks that wait for it fail.
  void leave(int rank);
  // The message of the first abort(); empty: none.
  std::string failure();

 private:
  using Clock = std::chrono::steady_clock;
  struct Rank {
    std::atomic<uint64_t> progress{0};
    std::string phase = "its start", noted = {};
    bool waiting = false, ended = false;
  };
  // When a waiting rank saw the progress of the rank that it waits for last.
  struct Watch {
    int rank = -1;
    uint64_t progress = 0;
    Clock::time_point since = {}, noticed = {};
  };
  void throw_if_failed() const;
  void look_at(Watch& watch, int missing, int rank, const std::string& what);
  void fail_all(const std::string& message);
  bool all_wait() const;
  void spin(std::unique_lock<std::mutex>& lock, uint64_t seen) const;

  const std::vector<std::string> labels_;
  const double timeout_;
  std::vector<Rank> ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<uint64_t> changes_{0};
  bool failed_ = false;
  std::string failure_;
};

}  // namespace hone
