#pragma once
// WorkerSession: a worker's side of its talk with one learner, in plain calls: what it was asked, and what is whole and
// not taken yet.
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
  // The model outlives it.
  WorkerSession(WorkerModel& model, std::string run);
  // Cancels what is not written yet.
  ~WorkerSession();
  const std::string& id() const { return id_; }
  const std::string& run() const { return run_; }
  double seconds_since_contact() const { return heard_.seconds(); }  // since the learner's last sign of life
  void touch() { heard_ = Stopwatch(); }
  // Takes what is asked, waits for something to be whole, and says what is. The turn that was last is answered as it
  // was. A HttpError (409) if a turn is missing between them, the weights are older than it names, or a ticket is
  // known already; nothing of the turn is done then.
  const std::string& turn(const WorkerPoll& turn);

 private:
  // What has ended, from the engine's thread, which may outlive the session.
  struct ResultQueue {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<WorkerPollResult::Done> finished;
    std::string failure;
  };
  class Asked;
  void submit(const std::vector<WorkerPoll::Ask>& asks);
  void drop(uint64_t ticket);
  int64_t computed_tokens() const;

  WorkerModel& model_;
  const std::string id_, run_;
  const std::shared_ptr<ResultQueue> inbox_ = std::make_shared<ResultQueue>();
  int64_t computed_before_ = 0;
  std::map<uint64_t, uint64_t> jobs_;  // the engine loop's numbers by ticket
  int64_t last_turn_ = 0;
  std::string last_report_;
  Stopwatch heard_;
};

}  // namespace hone
