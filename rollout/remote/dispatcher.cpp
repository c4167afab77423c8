#include "rollout/remote/dispatcher.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/log.h"
#include "core/text/detokenizer.h"
#include "rollout/remote/completion_check.h"

namespace hone {
namespace {

constexpr double kSlowFactor = 4;      // a request is slow after this many typical times
constexpr double kMaxStepWait = 0.02;  // seconds, of step()
constexpr int kMaxFailures = 8;        // of a worker's requests in a row
constexpr size_t kMaxTries = 3;        // of a request that fails

auto duration(double seconds) { return std::chrono::duration<double>(seconds); }

}  // namespace

Dispatcher::Dispatcher(std::vector<std::string> names, const Limits& limits) : limits_(limits), workers_(names.size()) {
  for (size_t i = 0; i < names.size(); ++i) workers_[i].name = std::move(names[i]);
}

uint64_t Dispatcher::submit(GenerationRequest request, Engine::OnFinish on_finish) {
  const std::lock_guard lock(mutex_);
  if (pending_.empty()) last_progress_ = {};
  const uint64_t ticket = next_ticket_++;
  const int64_t tokens = static_cast<int64_t>(request.prompt.size()) + request.n * request.sampling.max_tokens;
  pending_[ticket] = {.request = std::move(request),
                      .on_finish = std::move(on_finish),
                      .tokens = tokens,
                      .version = weights_ ? weights_->version() : 0,
                      .failed_by = {},
                      .assignments = {}};
  const GenerationRequest& pending = pending_.at(ticket).request;
  if (const std::string problem = limits_.requests ? request_problem(pending, *limits_.requests) : "";
      !problem.empty()) {
    finished_.push_back({ticket, rejected_completions(pending, problem)});
    return ticket;
  }
  queue_.push_back(ticket);
  assign();
  return ticket;
}

// Cancels the request on workers that it was sent to.
void Dispatcher::cancel_on_workers(uint64_t ticket, PendingRequest& pending) {
  for (const PendingRequest::Assignment& assignment : std::exchange(pending.assignments, {})) {
    WorkerState& worker = workers_[assignment.worker];
    worker.tokens -= pending.tokens;
    if (std::erase(worker.to_send, ticket) == 0) worker.to_cancel.push_back(ticket);
    update_idle(worker);
  }
}

void Dispatcher::cancel(uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  std::erase(queue_, ticket);
  std::erase_if(finished_, [&](const FinishedRequest& finished) { return finished.ticket == ticket; });
  if (const auto found = pending_.find(ticket); found != pending_.end()) {
    cancel_on_workers(ticket, found->second);
    pending_.erase(found);
  }
  assign();
}

void Dispatcher::assign(uint64_t ticket, size_t worker) {
  PendingRequest& pending = pending_.at(ticket);
  pending.assignments.push_back({worker, {}});
  WorkerState& assignee = workers_[worker];
  assignee.to_send.push_back(ticket);
  assignee.tokens += pending.tokens;
  update_idle(assignee);
}

void Dispatcher::assign() {
  for (; !queue_.empty(); queue_.pop_front()) {
    const PendingRequest& pending = pending_.at(queue_.front());
    const auto cost = [&](size_t i) { return std::pair(std::ranges::count(pending.failed_by, i), workers_[i].tokens); };
    size_t best = workers_.size();
    for (size_t i = 0; i < workers_.size(); ++i)
      if (workers_[i].alive && (best == workers_.size() || cost(i) < cost(best))) best = i;
    if (best == workers_.size()) break;
    const int64_t held = workers_[best].tokens;
    if (held > 0 && held + pending.tokens > limits_.max_tokens_per_worker) break;
    assign(queue_.front(), best);
  }
  changed_.notify_all();
}

// Assigns a slow request of another worker to this idle one as well.
void Dispatcher::duplicate_slow_requests(size_t worker) {
  if (typical_seconds_ == 0 || !queue_.empty()) return;
  const double slow_seconds = kSlowFactor * std::max(typical_seconds_, limits_.min_typical_seconds);
  for (auto& [ticket, pending] : pending_)
    if (pending.assignments.size() == 1 && pending.assignments.front().worker != worker &&
        pending.assignments.front().since.seconds() > slow_seconds) {
      log::warning("rollout: ", workers_[pending.assignments.front().worker].name, " is slow; ", workers_[worker].name,
                   " also generates one of its requests");
      ++counts_["workers/duplicated"];
      return assign(ticket, worker);
    }
}

bool Dispatcher::step() {
  std::deque<FinishedRequest> finished_now;
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, duration(kMaxStepWait), [this] { return !finished_.empty() || pending_.empty(); });
    finished_now = std::exchange(finished_, {});
    if (finished_now.empty() && !pending_.empty() && last_progress_.seconds() > limits_.timeout &&
        std::ranges::none_of(workers_, &WorkerState::alive)) {
      std::string reasons;
      for (const WorkerState& worker : workers_)
        reasons += concat("; ", worker.name, ": ", worker.reason.empty() ? "no response yet" : worker.reason);
      fail("rollout: no worker is connected, and none has finished a request for ", limits_.timeout,
           " seconds (rollout.worker_timeout)", reasons);
    }
  }
  for (FinishedRequest& finished : finished_now) {
    Engine::OnFinish on_finish;
    uint64_t id = 0;
    {
      const std::lock_guard lock(mutex_);
      const auto found = pending_.find(finished.ticket);
      if (found == pending_.end()) continue;  // cancelled by the previous on_finish
      on_finish = std::move(found->second.on_finish);
      id = found->second.request.id;
      pending_.erase(found);
    }
    on_finish(id, std::move(finished.completions));
  }
  const std::lock_guard lock(mutex_);
  return !pending_.empty();
}

void Dispatcher::set_weights(std::shared_ptr<const WeightSnapshot> weights) {
  const std::lock_guard lock(mutex_);
  weights_.swap(weights);  // the previous weights are freed after the lock is released
  changed_.notify_all();
}

void Dispatcher::wait_until_joined(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, duration(seconds),
                    [this] { return std::ranges::all_of(workers_, &WorkerState::join_attempted); });
}

void Dispatcher::update_idle(WorkerState& worker) {
  const bool idle = worker.tokens == 0;
  if (idle == worker.idle) return;
  if (worker.idle) worker.idle_seconds += worker.idle_since.seconds();
  worker.idle = idle;
  worker.idle_since = {};
}

Metrics Dispatcher::metrics() {
  const std::lock_guard lock(mutex_);
  const double seconds = std::exchange(since_metrics_, Stopwatch()).seconds();
  Metrics out = std::exchange(counts_, {});
  out["workers/alive"] = static_cast<double>(std::ranges::count_if(workers_, &WorkerState::alive));
  out["queue/requests"] = static_cast<double>(queue_.size());
  double generated = 0;
  for (size_t i = 0; i < workers_.size(); ++i) {
    WorkerState& worker = workers_[i];
    if (worker.idle) worker.idle_seconds += std::exchange(worker.idle_since, Stopwatch()).seconds();
    generated += static_cast<double>(worker.generated);
    out[concat("workers/", i, "/tokens_per_second")] =
        static_cast<double>(std::exchange(worker.generated, 0)) / seconds;
    out[concat("workers/", i, "/idle_ratio")] = std::min(1.0, std::exchange(worker.idle_seconds, 0) / seconds);
  }
  out["rollout/generated_tokens"] = generated;
  return out;
}

Dispatcher::Work Dispatcher::next_work(size_t worker_index, int64_t version, double max_wait) {
  std::unique_lock lock(mutex_);
  WorkerState& worker = workers_[worker_index];
  const auto outdated = [&] { return weights_ && weights_->version() > version; };
  changed_.wait_for(lock, duration(max_wait),
                    [&] { return stopping_ || outdated() || !worker.to_send.empty() || !worker.to_cancel.empty(); });
  Work out;
  out.stopping = stopping_;
  out.tokens = worker.tokens;
  if (stopping_) return out;
  if (outdated()) {
    out.weights = weights_;
    return out;
  }
  if (worker.alive && worker.tokens == 0 && version >= 0) duplicate_slow_requests(worker_index);
  if (version >= 0)
    for (const uint64_t ticket : std::exchange(worker.to_send, {}))
      out.submit.push_back({ticket, pending_.at(ticket).request});
  out.cancel = std::exchange(worker.to_cancel, {});
  out.tokens = worker.tokens;
  return out;
}

// Redistributes the assigned requests that no worker has been sent yet.
void Dispatcher::mark_joined(size_t worker_index) {
  const std::lock_guard lock(mutex_);
  WorkerState& joined = workers_[worker_index];
  joined.alive = true;
  joined.join_attempted = true;
  joined.reason.clear();
  joined.since_joined = {};
  for (WorkerState& worker : workers_)
    for (const uint64_t ticket : std::exchange(worker.to_send, {})) {
      PendingRequest& pending = pending_.at(ticket);
      pending.unassign(static_cast<size_t>(&worker - workers_.data()));
      worker.tokens -= pending.tokens;
      update_idle(worker);
      if (pending.assignments.empty()) queue_.push_back(ticket);
    }
  std::ranges::sort(queue_);
  assign();
}

void Dispatcher::mark_lost(size_t worker_index, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  WorkerState& worker = workers_[worker_index];
  const bool log_it = worker.alive || worker.reason != reason;
  if (worker.alive) ++counts_["workers/lost"];
  const bool first_failure =
      worker.alive && !worker.made_progress && !std::exchange(worker.failed_before_first_result, true);
  if (std::exchange(worker.made_progress, false) || first_failure) last_progress_ = {};
  worker.failed_before_first_result |= worker.alive && !std::exchange(worker.finished, false);
  worker.alive = false;
  worker.join_attempted = true;
  worker.reason = reason;
  worker.to_send.clear();
  worker.to_cancel.clear();
  int64_t requests = 0;
  for (auto& [ticket, pending] : pending_) {
    const bool late = pending.seconds_with(worker_index) > limits_.request_timeout;
    if (!pending.unassign(worker_index)) continue;
    if (late) pending.failed_by.push_back(worker_index);
    if (!pending.assignments.empty()) continue;
    ++requests;
    queue_or_fail(ticket, pending,
                  rejected_completions(pending.request, concat("no worker finished it within ", limits_.request_timeout,
                                                               " seconds (rollout.worker_request_timeout)")));
  }
  worker.tokens = 0;
  update_idle(worker);
  if (requests > 0) counts_["workers/retried"] += static_cast<double>(requests);
  if (log_it && !stopping_)
    log::warning("rollout: worker ", worker.name, " is lost: ", reason,
                 requests > 0 ? concat("; ", requests, " of its requests are assigned again") : std::string());
  assign();
}

// Throws if the completions are impossible. Decodes their text from the ids: the worker's text is not trusted.
void Dispatcher::check(const PendingRequest& pending, std::vector<CompletionOutput>& completions) const {
  HONE_CHECK(std::ssize(completions) == pending.request.n, "it sent ", completions.size(),
             " completions; the request has n = ", pending.request.n);
  const int64_t vocab_size = limits_.requests ? limits_.requests->vocab_size : INT32_MAX;
  for (CompletionOutput& completion : completions) {
    if (completion.failed) continue;
    check_columns(completion, pending.request, vocab_size, {pending.version, weights_->version()});
    if (!limits_.requests) continue;
    check_end(completion, pending.request, *limits_.requests);
    const Tokenizer* tokenizer = limits_.requests->tokenizer;
    const SamplingParams& sampling = pending.request.sampling;
    completion.text = tokenizer ? completion_text(*tokenizer, sampling.stop, sampling.min_tokens, completion.ids,
                                                  completion.finish_reason == "length")
                                : "";
  }
}

bool Dispatcher::accept_result(size_t worker_index, WorkerPollResult::Finished done) {
  const std::lock_guard lock(mutex_);
  const auto found = pending_.find(done.ticket);
  if (found == pending_.end()) return false;  // cancelled
  PendingRequest& pending = found->second;
  const auto assignment = std::ranges::find(pending.assignments, worker_index, &PendingRequest::Assignment::worker);
  if (assignment == pending.assignments.end()) return false;  // another worker was first
  WorkerState& worker = workers_[worker_index];
  if (std::ranges::find(worker.to_send, done.ticket) != worker.to_send.end())
    return false;  // not sent to it in this session
  check(pending, done.completions);
  if (std::ranges::any_of(done.completions, &CompletionOutput::failed)) {
    retry_failed(worker_index, done.ticket, pending, std::move(done.completions));
    return false;
  }
  worker.failures = 0;
  worker.finished = true;
  worker.made_progress = true;
  worker.failed_before_first_result = false;
  last_progress_ = {};
  for (const CompletionOutput& completion : done.completions) worker.generated += std::ssize(completion.ids);
  worker.tokens -= pending.tokens;
  update_idle(worker);
  const double seconds = assignment->since.seconds();
  pending.unassign(worker_index);
  typical_seconds_ += (typical_seconds_ == 0 ? 1.0 : 0.1) * (seconds - typical_seconds_);
  cancel_on_workers(done.ticket, pending);
  finished_.push_back({done.ticket, std::move(done.completions)});
  assign();
  return true;
}

void Dispatcher::retry_failed(size_t worker_index, uint64_t ticket, PendingRequest& pending,
                              std::vector<CompletionOutput> completions) {
  WorkerState& worker = workers_[worker_index];
  const std::string reason = std::ranges::find_if(completions, &CompletionOutput::failed)->finish_reason.substr(0, 300);
  HONE_CHECK(++worker.failures < kMaxFailures, "it failed ", worker.failures,
             " requests in a row, the last one with: ", reason);
  log::warning("rollout: ", worker.name, " failed a request: ", reason);
  pending.unassign(worker_index);
  pending.failed_by.push_back(worker_index);
  worker.tokens -= pending.tokens;
  update_idle(worker);
  if (!pending.assignments.empty()) return;  // another worker has it as well
  queue_or_fail(ticket, pending, std::move(completions));
  assign();
}

// Queues a request that no worker has. After several failures it finishes with these completions instead.
void Dispatcher::queue_or_fail(uint64_t ticket, PendingRequest& pending, std::vector<CompletionOutput> completions) {
  if (pending.failed_by.size() >= kMaxTries) {
    finished_.push_back({ticket, std::move(completions)});
    return;
  }
  queue_.insert(std::ranges::lower_bound(queue_, ticket), ticket);
}

bool Dispatcher::overdue(size_t worker_index) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(
      pending_, [&](const auto& entry) { return entry.second.seconds_with(worker_index) > limits_.request_timeout; });
}

void Dispatcher::record_weight_sync(double seconds) {
  const std::lock_guard lock(mutex_);
  double& slowest = counts_["time/weight_sync"];
  slowest = std::max(slowest, seconds);
}

void Dispatcher::record_progress(size_t worker_index) {
  const std::lock_guard lock(mutex_);
  WorkerState& worker = workers_[worker_index];
  worker.made_progress |= !worker.failed_before_first_result && worker.since_joined.seconds() > limits_.timeout;
}

void Dispatcher::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

void Dispatcher::pause(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, duration(seconds), [this] { return stopping_; });
}

bool Dispatcher::stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

}  // namespace hone
