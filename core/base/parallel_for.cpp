#include "core/base/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "core/base/check.h"

namespace hone {
namespace {

thread_local bool inside_body = false;

// One job at a time. Threads claim pieces from a shared counter; which thread runs which piece does not affect results.
// The caller does not wait for threads that wake up too late. A thread spins for a short time before it sleeps, since
// small kernels follow each other closely.
class Pool {
 public:
  explicit Pool(int count) {
    for (int i = 1; i < count; ++i) workers_.emplace_back([this] { work(); });
  }
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      ++job_;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  int size() const { return static_cast<int>(workers_.size()) + 1; }

  void run(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
    const std::lock_guard one_job(job_mutex_);
    {
      const std::lock_guard lock(mutex_);
      body_ = &body, count_ = count, grain_ = grain, error_ = nullptr;
      next_.store(0, std::memory_order_relaxed);
      open_ = true;
      ++job_;
    }
    wake_.notify_all();
    take_pieces();
    std::unique_lock lock(mutex_);
    open_ = false;
    if (busy_ > 0) {
      lock.unlock();
      look_out([this] { return busy_ == 0; });
      lock.lock();
      done_.wait(lock, [this] { return busy_ == 0; });
    }
    if (error_) std::rethrow_exception(error_);
  }

 private:
  // Yields until the fact holds, at most 300 microseconds: longer than the gap between two kernels of a decode pass.
  template <class Fact>
  static void look_out(Fact fact) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(300);
    while (!fact() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  }
  void take_pieces() {
    inside_body = true;
    try {
      for (;;) {
        const int64_t begin = next_.fetch_add(grain_, std::memory_order_relaxed);
        if (begin >= count_) break;
        (*body_)(begin, std::min(count_, begin + grain_));
      }
    } catch (...) {
      next_.store(count_, std::memory_order_relaxed);
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
    inside_body = false;
  }
  void work() {
    uint64_t seen = 0;
    for (;;) {
      look_out([&] { return job_ != seen; });
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return job_ != seen; });
        if (stopping_) return;
        seen = job_;
        if (!open_) continue;
        ++busy_;
      }
      take_pieces();
      const std::lock_guard lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::vector<std::thread> workers_;
  std::mutex job_mutex_, mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(int64_t, int64_t)>* body_ = nullptr;
  int64_t count_ = 0, grain_ = 1;
  std::atomic<int64_t> next_{0};
  bool open_ = false, stopping_ = false;  // guarded by mutex_, as are all writes to the members below
  std::atomic<int> busy_{0};
  std::atomic<uint64_t> job_{0};
  std::exception_ptr error_;
};

int default_threads() {
  if (const char* set = std::getenv("HONE_NUM_THREADS")) {
    int count = 0;
    const auto [end, problem] = std::from_chars(set, set + std::strlen(set), count);
    HONE_CHECK(problem == std::errc() && *end == 0 && count > 0 && count <= 4096, "HONE_NUM_THREADS is '", set,
               "', it should be a count in [1, 4096]");
    return count;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::unique_ptr<Pool>& pool() {
  static std::unique_ptr<Pool> instance = std::make_unique<Pool>(default_threads());
  return instance;
}

}  // namespace

int num_threads() { return pool()->size(); }

void set_num_threads(int count) { pool() = std::make_unique<Pool>(std::max(1, count)); }

void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  if (inside_body || count <= grain || pool()->size() == 1) {
    for (int64_t begin = 0; begin < count; begin += grain) body(begin, std::min(count, begin + grain));
    return;
  }
  pool()->run(count, grain, body);
}

}  // namespace hone
