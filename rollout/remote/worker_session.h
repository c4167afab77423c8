#pragma once
// WorkerSession: a worker's session with one learner, without HTTP: the submitted requests, and the finished ones that
// the learner has not collected yet.
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "rollout/remote/worker_model.h"

namespace hone {

// One thread.
class WorkerSession {
 public:
  // The model must outlive it.
  WorkerSession(WorkerModel& model, std::string run);
  // Cancels unfinished requests.
  ~WorkerSession();
  const std::string& id() const { return id_; }
  const std::string& run() const { return run_; }
  double seconds_since_contact() const { return last_contact_.seconds(); }  // since the learner's last message
  void touch() { last_contact_ = Stopwatch(); }
  // Submits and cancels requests, waits for a finished one, and returns a WorkerPollResult as JSON. A repeat of the
  // last poll gets the same response. Throws HttpError (409) if a poll was skipped, the weights are older than the
  // poll's version, or a ticket is already in use; nothing of the poll is done then.
  const std::string& poll(const WorkerPoll& message);

 private:
  // Results from the engine's thread, whose callbacks may outlive the session.
  struct ResultQueue {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<WorkerPollResult::Finished> finished;
    std::string failure;
  };
  class ResultListener;
  void submit(const std::vector<WorkerPoll::Submission>& submissions);
  void cancel(uint64_t ticket);
  int64_t computed_tokens() const;

  WorkerModel& model_;
  const std::string id_, run_;
  const std::shared_ptr<ResultQueue> results_ = std::make_shared<ResultQueue>();
  int64_t computed_before_ = 0;
  std::map<uint64_t, uint64_t> request_ids_;  // AsyncEngine ids by ticket
  int64_t last_poll_ = 0;
  std::string last_result_;
  Stopwatch last_contact_;
};

}  // namespace hone
