#include "rollout/remote/worker_session.h"

#include <chrono>
#include <random>
#include <set>
#include <utility>

#include "core/base/format.h"
#include "core/net/http_error.h"

namespace hone {
namespace {

std::string random_id() {
  std::random_device random;
  return format_text("%08x%08x%08x%08x", random(), random(), random(), random());
}

}  // namespace

class WorkerSession::ResultListener final : public CompletionListener {
 public:
  ResultListener(uint64_t ticket, std::shared_ptr<ResultQueue> results)
      : ticket_(ticket), results_(std::move(results)) {}
  void on_token(size_t, int64_t, const CompletionOutput&) override {}
  void on_finish(size_t, std::vector<CompletionOutput> completions) override {
    const std::lock_guard lock(results_->mutex);
    results_->finished.push_back({ticket_, std::move(completions)});
    results_->changed.notify_all();
  }
  void on_failure(const std::string& reason) override {
    const std::lock_guard lock(results_->mutex);
    results_->failure = reason;
    results_->changed.notify_all();
  }

 private:
  const uint64_t ticket_;
  const std::shared_ptr<ResultQueue> results_;
};

// run_between_steps() returns after the previous session's last step, so that its tokens do not count for this one.
WorkerSession::WorkerSession(WorkerModel& model, std::string run)
    : model_(model), id_(random_id()), run_(std::move(run)) {
  model_.async_engine().run_between_steps(
      [this](Engine& engine) { computed_before_ = engine.stats().prompt_tokens + engine.stats().generated_tokens; });
}

WorkerSession::~WorkerSession() {
  for (const auto& [ticket, request_id] : request_ids_) model_.async_engine().cancel(request_id);
}

int64_t WorkerSession::computed_tokens() const {
  const EngineStats stats = model_.async_engine().state().engine;
  return stats.prompt_tokens + stats.generated_tokens;
}

// Submits all of them or none.
void WorkerSession::submit(const std::vector<WorkerPoll::Submission>& submissions) {
  for (size_t i = 0; i < submissions.size(); ++i) {
    const uint64_t request_id = model_.async_engine().submit(
        {submissions[i].request}, std::make_shared<ResultListener>(submissions[i].ticket, results_), false);
    if (request_id != 0) {
      request_ids_[submissions[i].ticket] = request_id;
      continue;
    }
    for (size_t done = 0; done < i; ++done) cancel(submissions[done].ticket);
    throw HttpError(429, "the worker has too many pending completions; submit fewer at once", {}, "queue_full");
  }
}

void WorkerSession::cancel(uint64_t ticket) {
  const auto request_id = request_ids_.find(ticket);
  if (request_id == request_ids_.end()) return;
  model_.async_engine().cancel(request_id->second);
  request_ids_.erase(request_id);
}

const std::string& WorkerSession::poll(const WorkerPoll& message) {
  if (message.number == last_poll_ && !last_result_.empty()) return last_result_;
  if (message.number != last_poll_ + 1)
    throw HttpError(409, concat("poll ", message.number, " came after poll ", last_poll_), "turn", "unknown_session");
  if (message.version > model_.version())
    throw HttpError(
        409, concat("the poll needs weights of version ", message.version, "; this worker has ", model_.version()),
        "version", "old_weights");
  std::set<uint64_t> tickets;
  for (const WorkerPoll::Submission& submission : message.submit)
    if (request_ids_.contains(submission.ticket) || !tickets.insert(submission.ticket).second)
      throw HttpError(409, concat("ticket ", submission.ticket, " is in use already"), "ticket");
  submit(message.submit);
  for (const uint64_t ticket : message.cancel) cancel(ticket);
  WorkerPollResult result;
  result.number = message.number;
  result.version = model_.version();
  {
    std::unique_lock lock(results_->mutex);
    if (!request_ids_.empty())
      results_->changed.wait_for(lock, std::chrono::duration<double>(message.wait),
                                 [&] { return !results_->finished.empty() || !results_->failure.empty(); });
    if (!results_->failure.empty()) throw HttpError(500, "the engine has stopped: " + results_->failure);
    result.finished = std::exchange(results_->finished, {});
  }
  std::erase_if(result.finished,
                [&](const WorkerPollResult::Finished& done) { return request_ids_.erase(done.ticket) == 0; });
  result.computed_tokens = computed_tokens() - computed_before_;
  last_poll_ = message.number;
  last_result_ = result.to_json().dump();
  return last_result_;
}

}  // namespace hone
