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

class WorkerSession::Asked final : public CompletionListener {
 public:
  Asked(uint64_t ticket, std::shared_ptr<ResultQueue> inbox) : ticket_(ticket), inbox_(std::move(inbox)) {}
  void on_token(size_t, int64_t, const CompletionOutput&) override {}
  void on_finish(size_t, std::vector<CompletionOutput> replies) override {
    const std::lock_guard lock(inbox_->mutex);
    inbox_->finished.push_back({ticket_, std::move(replies)});
    inbox_->changed.notify_all();
  }
  void on_failure(const std::string& reason) override {
    const std::lock_guard lock(inbox_->mutex);
    inbox_->failure = reason;
    inbox_->changed.notify_all();
  }

 private:
  const uint64_t ticket_;
  const std::shared_ptr<ResultQueue> inbox_;
};

// What the session before left under way is over then, so that none of it counts as this one's.
WorkerSession::WorkerSession(WorkerModel& model, std::string run)
    : model_(model), id_(random_id()), run_(std::move(run)) {
  model_.loop().run_between_steps(
      [this](Engine& engine) { computed_before_ = engine.stats().prompt_tokens + engine.stats().generated_tokens; });
}

WorkerSession::~WorkerSession() {
  for (const auto& [ticket, job] : jobs_) model_.loop().cancel(job);
}

int64_t WorkerSession::computed_tokens() const {
  const EngineStats stats = model_.loop().state().engine;
  return stats.prompt_tokens + stats.generated_tokens;
}

// All of them or none.
void WorkerSession::submit(const std::vector<WorkerPoll::Ask>& asks) {
  for (size_t i = 0; i < asks.size(); ++i) {
    const uint64_t job =
        model_.loop().submit({asks[i].request}, std::make_shared<Asked>(asks[i].ticket, inbox_), false);
    if (job != 0) {
      jobs_[asks[i].ticket] = job;
      continue;
    }
    for (size_t done = 0; done < i; ++done) drop(asks[done].ticket);
    throw HttpError(429, "the worker has no room for more replies", {}, "queue_full");
  }
}

void WorkerSession::drop(uint64_t ticket) {
  const auto job = jobs_.find(ticket);
  if (job == jobs_.end()) return;
  model_.loop().cancel(job->second);
  jobs_.erase(job);
}

const std::string& WorkerSession::turn(const WorkerPoll& turn) {
  if (turn.number == last_turn_ && !last_report_.empty()) return last_report_;
  if (turn.number != last_turn_ + 1)
    throw HttpError(409, concat("turn ", turn.number, " came after turn ", last_turn_), "turn", "unknown_session");
  if (turn.version > model_.version())
    throw HttpError(409,
                    concat("the turn needs version ", turn.version, " of the weights, ", model_.version(), " is here"),
                    "version", "old_weights");
  std::set<uint64_t> tickets;
  for (const WorkerPoll::Ask& ask : turn.submit)
    if (jobs_.contains(ask.ticket) || !tickets.insert(ask.ticket).second)
      throw HttpError(409, concat("ticket ", ask.ticket, " is given twice"), "ticket");
  submit(turn.submit);
  for (const uint64_t ticket : turn.cancel) drop(ticket);
  WorkerPollResult report;
  report.number = turn.number;
  report.version = model_.version();
  {
    std::unique_lock lock(inbox_->mutex);
    if (!jobs_.empty())
      inbox_->changed.wait_for(lock, std::chrono::duration<double>(turn.wait),
                               [&] { return !inbox_->finished.empty() || !inbox_->failure.empty(); });
    if (!inbox_->failure.empty()) throw HttpError(500, "the engine has stopped: " + inbox_->failure);
    report.finished = std::exchange(inbox_->finished, {});
  }
  std::erase_if(report.finished, [&](const WorkerPollResult::Done& done) { return jobs_.erase(done.ticket) == 0; });
  report.computed_tokens = computed_tokens() - computed_before_;
  last_turn_ = turn.number;
  last_report_ = report.to_json().dump();
  return last_report_;
}

}  // namespace hone
