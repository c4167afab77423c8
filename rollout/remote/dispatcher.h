#pragma once
// Dispatcher: assigns requests to workers. A request goes to the worker with the fewest assigned tokens. Requests of a
// lost worker go to other workers. A request that takes far longer than is typical goes to an idle worker as well. The
// first result counts and others are dropped, so that no request is lost or counted twice.
#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/stopwatch.h"
#include "core/io/metrics.h"
#include "rollout/remote/weight_snapshot.h"
#include "rollout/remote/worker_messages.h"
#include "rollout/request_check.h"

namespace hone {

class Dispatcher {
 public:
  struct Limits {
    // Maximum tokens (prompts and longest completions) of a worker's requests; further requests wait here.
    int64_t max_tokens_per_worker = 65536;
    double timeout = 60;             // seconds without a live worker and without progress before step() throws
    double request_timeout = 3600;   // seconds that one worker may take for a request (overdue())
    double min_typical_seconds = 2;  // lower bound of the typical request time that duplication compares with
    // The limits of every worker's engine, if known. A request outside them is sent to no worker, and completions must
    // end as their ids say.
    std::optional<RequestLimits> requests = std::nullopt;
  };
  // A worker is identified by its index in `names`, which messages use.
  Dispatcher(std::vector<std::string> names, const Limits& limits);

  // ---- Called by the learner's thread.
  uint64_t submit(GenerationRequest request, Engine::OnFinish on_finish);
  void cancel(uint64_t ticket);
  // Waits a moment for finished requests and calls their on_finish. Returns false when no request is left. Throws if
  // there has been no worker for longer than the timeout.
  bool step();
  // Requests that are sent from now on are sampled from these weights or newer ones.
  void set_weights(std::shared_ptr<const WeightSnapshot> weights);
  // Waits until each worker has joined or failed to, at most `seconds`.
  void wait_until_joined(double seconds);
  // Metrics since the last call (docs/reference/metrics.md).
  Metrics metrics();

  // ---- Called by a worker's thread.
  struct Work {
    bool stopping = false;
    // Set if the worker's weights are older. The worker must load them first; `submit` is then empty.
    std::shared_ptr<const WeightSnapshot> weights;
    std::vector<WorkerPoll::Submission> submit;
    std::vector<uint64_t> cancel;
    int64_t tokens = 0;  // of all requests assigned to the worker
  };
  // Returns work for the worker, whose weights are `version` (-1: none). Waits for work at most max_wait seconds.
  Work next_work(size_t worker, int64_t version, double max_wait);
  void mark_joined(size_t worker);
  // True if the worker has had a request for longer than Limits::request_timeout, whatever progress it reports.
  bool overdue(size_t worker) const;
  // Reassigns the worker's requests. A request that was overdue with several workers has failed.
  void mark_lost(size_t worker, const std::string& reason);
  // Returns true if the completions count: the request is assigned to this worker, and no other result came first.
  // Throws if they are not possible completions of the request (rollout/remote/completion_check.h). A failed completion
  // is retried on another worker and counts after several failures. Throws if the worker fails many requests in a row.
  bool accept_result(size_t worker, WorkerPollResult::Finished done);
  // Records how long a worker took to load new weights.
  void record_weight_sync(double seconds);
  // Records that the worker computes. In one session this counts once as progress; after that only finished requests
  // do.
  void record_progress(size_t worker);
  // Makes next_work() return `stopping` at once from now on.
  void stop();
  bool stopping() const;
  // Returns after `seconds`, or when stop() is called.
  void pause(double seconds);

 private:
  struct PendingRequest {
    GenerationRequest request;
    Engine::OnFinish on_finish;
    int64_t tokens = 0;
    int64_t version = 0;            // of the weights at submission
    std::vector<size_t> failed_by;  // workers, once for each failure
    struct Assignment {
      size_t worker = 0;
      Stopwatch since;
    };
    std::vector<Assignment> assignments;
    // Seconds since the request was assigned to the worker; 0 if it is not.
    double seconds_with(size_t worker) const {
      const auto found = std::ranges::find(assignments, worker, &Assignment::worker);
      return found == assignments.end() ? 0 : found->since.seconds();
    }
    bool unassign(size_t worker) {
      return std::erase_if(assignments, [&](const Assignment& assignment) { return assignment.worker == worker; }) > 0;
    }
  };
  struct WorkerState {
    std::string name, reason;  // reason: why it was lost
    bool alive = false, join_attempted = false;
    bool failed_before_first_result = false;  // lost without progress in its last session
    bool made_progress = false;               // in this session: finished a request, or computed for over the timeout
    bool finished = false;                    // in this session: finished a request
    int failures = 0;                         // failed requests in a row
    Stopwatch since_joined;
    int64_t tokens = 0;            // of its assigned requests
    std::deque<uint64_t> to_send;  // assigned, not yet returned by next_work()
    std::vector<uint64_t> to_cancel;
    // For metrics, since the last call:
    int64_t generated = 0;
    double idle_seconds = 0;
    Stopwatch idle_since;
    bool idle = true;
  };
  struct FinishedRequest {
    uint64_t ticket = 0;
    std::vector<CompletionOutput> completions;
  };
  void assign();
  void assign(uint64_t ticket, size_t worker);
  void queue_or_fail(uint64_t ticket, PendingRequest& pending, std::vector<CompletionOutput> completions);
  void cancel_on_workers(uint64_t ticket, PendingRequest& pending);
  void duplicate_slow_requests(size_t worker);
  void check(const PendingRequest& pending, std::vector<CompletionOutput>& completions) const;
  void retry_failed(size_t worker, uint64_t ticket, PendingRequest& pending, std::vector<CompletionOutput> completions);
  void update_idle(WorkerState& worker);

  const Limits limits_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<WorkerState> workers_;
  std::map<uint64_t, PendingRequest> pending_;
  std::deque<uint64_t> queue_;  // requests without a worker
  std::deque<FinishedRequest> finished_;
  std::shared_ptr<const WeightSnapshot> weights_;
  uint64_t next_ticket_ = 1;
  Stopwatch last_progress_;     // of any worker; a worker that joins again and again without progress does not count
  double typical_seconds_ = 0;  // moving average of a request's seconds
  Metrics counts_;              // since the last metrics()
  Stopwatch since_metrics_;
  bool stopping_ = false;
};

}  // namespace hone
