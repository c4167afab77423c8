#pragma once
// Dispatcher: which worker writes which request. A request goes to the worker with the fewest tokens to write; what a
// lost worker had goes to others, and so does, a second time, what takes far longer than usual. The first answer
// counts, the others are dropped: nothing is lost or counted twice.
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
#include "rollout/remote/weight_image.h"
#include "rollout/remote/worker_messages.h"
#include "rollout/request_check.h"

namespace hone {

class Dispatcher {
 public:
  struct Limits {
    int64_t tokens_at_once = 65536;  // of a worker's requests, prompts and longest replies; what is more waits here
    double timeout = 60;             // seconds without any worker, and without progress, after which step() gives up
    double request_timeout = 3600;   // seconds that one worker may take for a request (overdue())
    double min_typical_seconds = 2;  // seconds: requests that take less are no reason to ask twice
    // Of every worker's engine, where it is known: what it cannot serve is asked of none, and ends and texts of replies
    // must follow from their ids.
    std::optional<RequestLimits> requests = std::nullopt;
  };
  // Workers are known by their place among the names, which messages use.
  Dispatcher(std::vector<std::string> names, const Limits& limits);

  // The asker's thread.
  uint64_t submit(GenerationRequest request, Engine::OnFinish on_finish);
  void cancel(uint64_t ticket);
  // Calls back what is whole, after a moment's wait for it. False when nothing is left. An Error where there has been
  // no worker for too long.
  bool step();
  // What is handed out from now on is drawn from these weights, or newer ones.
  void publish(std::shared_ptr<const WeightSnapshot> weights);
  // Waits until each worker has joined, or was lost, once.
  void wait_until_joined(double seconds);
  // Since the last call: docs/reference/metrics.md.
  Metrics metrics();

  // A worker's thread.
  struct Work {
    bool stopping = false;
    std::shared_ptr<const WeightSnapshot>
        weights;  // if the worker has older ones: to be taken before the rest, which may be asked for again then
    std::vector<WorkerPoll::Ask> submit;
    std::vector<uint64_t> cancel;
    int64_t tokens = 0;  // of requests whose replies are awaited from it
  };
  // Something to do for the worker, whose weights are this version (-1: none); after so many seconds even if there is
  // nothing.
  Work next(size_t worker, int64_t version, double patience);
  void joined(size_t worker);
  // The worker has had a request for longer than Limits::request_timeout, whatever it says of its progress.
  bool overdue(size_t worker) const;
  // With what it was asked, which others are asked now. A request that was overdue with several workers has failed.
  void lost(size_t worker, const std::string& reason);
  // Whether they count: not if they were not asked of it, or another one was first. An Error if these are no replies to
  // what it was asked (rollout/remote/completion_check.h): what a learner could not learn from is not believed. A
  // failed reply is asked of another worker, and believed where that has failed several times; a worker that fails one
  // request after the other is an Error, too.
  bool finished(size_t worker, WorkerPollResult::Done done);
  void record_weight_sync(double seconds);  // a worker has taken new weights
  void record_progress(size_t worker);  // it gets on: for one stay that counts as much as a finished request, and then
                                        // no more until it has finished one
  // From now on next() says `stopping`, at once.
  void stop();
  bool stopping() const;
  // Returns after so many seconds, or once it is stopping.
  void pause(double seconds);

 private:
  struct PendingRequest {
    GenerationRequest request;
    Engine::OnFinish on_finish;
    int64_t tokens = 0;
    int64_t version = 0;            // of the weights when it was asked
    std::vector<size_t> failed_by;  // workers, once for each time
    struct Writer {
      size_t worker = 0;
      Stopwatch since;  // it was given the request
    };
    std::vector<Writer> writers;  // workers that have it, or will be told
    // Since the worker was given it; 0 if it was not.
    double seconds_with(size_t worker) const {
      const auto found = std::ranges::find(writers, worker, &Writer::worker);
      return found == writers.end() ? 0 : found->since.seconds();
    }
    bool drop(size_t worker) {
      return std::erase_if(writers, [&](const Writer& of) { return of.worker == worker; }) > 0;
    }
  };
  struct WorkerState {
    std::string name, reason;  // why it is not there
    bool alive = false, settled = false;
    bool failed_before_first_result = false;  // it was lost before it was useful
    bool made_progress =
        false;  // since it joined: it has finished something, or been getting on for longer than the timeout
    bool finished = false;  // something since it joined
    int failures = 0;       // requests that it failed, one after the other
    Stopwatch since_joined;
    int64_t tokens = 0;            // of what it is to write
    std::deque<uint64_t> to_send;  // what next() will say
    std::vector<uint64_t> dropped;
    // For metrics, since the last call:
    int64_t generated = 0;
    double idle_seconds = 0;
    Stopwatch idle_since;
    bool idle = true;
  };
  struct FinishedRequest {
    uint64_t ticket = 0;
    std::vector<CompletionOutput> replies;
  };
  void assign();
  void assign(uint64_t ticket, size_t worker);
  void queue_or_fail(uint64_t ticket, PendingRequest& asked, std::vector<CompletionOutput> replies);
  void cancel_on_workers(uint64_t ticket, PendingRequest& asked);
  void duplicate_slow_requests(size_t worker);
  void check(const PendingRequest& asked, std::vector<CompletionOutput>& replies) const;
  void failed(size_t worker, uint64_t ticket, PendingRequest& asked, std::vector<CompletionOutput> replies);
  void mark_idle(WorkerState& worker);

  const Limits limits_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<WorkerState> workers_;
  std::map<uint64_t, PendingRequest> asked_;
  std::deque<uint64_t> queue_;  // of no worker
  std::deque<FinishedRequest> whole_;
  std::shared_ptr<const WeightSnapshot> weights_;
  uint64_t next_ticket_ = 1;
  Stopwatch none_since_;  // there has been no useful worker: one that joins, and gets nowhere, again and again is none
  double typical_seconds_ = 0;  // that a request takes
  Metrics counts_;              // since the last metrics()
  Stopwatch since_metrics_;
  bool stopping_ = false;
};

}  // namespace hone
