#pragma once
// AsyncEngine: the one thread that drives an engine, for askers on other threads. It takes so many replies at once and
// no more.
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/stopwatch.h"
#include "rollout/engine.h"

namespace hone {

// Who asked. Called on the engine's thread, which waits meanwhile; `request` counts within one submit(). What a
// listener throws ends its own job: it is told so by on_failure(), and nobody else notices.
class CompletionListener {
 public:
  virtual ~CompletionListener() = default;
  virtual void on_token(size_t request, int64_t reply, const CompletionOutput& written) = 0;
  virtual void on_finish(size_t request, std::vector<CompletionOutput> replies) = 0;
  // Instead of what has not finished: the engine failed, or the listener threw this.
  virtual void on_failure(const std::string& reason) = 0;
};

class AsyncEngine {
 public:
  // max_replies: waiting or being written at the same time. The engine belongs to the loop from now on.
  AsyncEngine(Engine& engine, int64_t max_replies);
  // Ends after the step under way; what has not finished is dropped.
  ~AsyncEngine();

  // From any thread. 0 where there is no room for all of them; otherwise a number for cancel(). wants_tokens: on_token
  // is called, too.
  uint64_t submit(std::vector<GenerationRequest> requests, std::shared_ptr<CompletionListener> listener,
                  bool wants_tokens);
  // Gives its place and its cache back; the listener is not called again once the step under way is over. Nothing
  // happens if it has finished.
  void cancel(uint64_t job);
  // Does it on the engine's thread, between two steps, and returns once it is done; throws what it threw.
  void run_between_steps(std::function<void(Engine&)> action);

  struct State {
    EngineStats engine;   // after the last step
    int64_t replies = 0;  // waiting or being written
    int64_t jobs_cancelled = 0, jobs_finished = 0;
    double mean_seconds = 0;  // that jobs took lately
    std::string failure;      // why the engine stopped, "" while it runs
  };
  State state() const;

 private:
  struct AsyncRequest {
    std::shared_ptr<CompletionListener> listener;
    std::vector<uint64_t> tickets;
    int64_t replies = 0;
    size_t unfinished = 0;
    Stopwatch since;
  };
  void run();
  void finish(uint64_t number, size_t request, std::vector<CompletionOutput> replies);
  std::shared_ptr<CompletionListener> listener_of(uint64_t number) const;
  // Calls it; what it throws ends the job.
  void tell(uint64_t number, CompletionListener& listener, const std::function<void()>& call);
  static void tell_failure(CompletionListener& listener, const std::string& reason);
  void fail_all(const std::string& reason);

  Engine& engine_;
  const int64_t max_replies_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  bool stopping_ = false, pending_ = false;
  uint64_t next_job_ = 1;
  std::map<uint64_t, AsyncRequest> jobs_;
  std::vector<std::packaged_task<void(Engine&)>> actions_;
  State state_;
  std::thread thread_;
};

}  // namespace hone
