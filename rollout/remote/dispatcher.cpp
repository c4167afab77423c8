#include "rollout/remote/dispatcher.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/log.h"
#include "core/text/detokenizer.h"
#include "rollout/remote/completion_check.h"

namespace hone {
namespace {

constexpr double far_longer = 4;        // times the usual
constexpr double most_patience = 0.02;  // seconds that step() waits
constexpr int most_failures = 8;        // requests that a worker may fail one after the other
constexpr size_t most_tries = 3;        // of a request that workers fail

auto duration(double seconds) { return std::chrono::duration<double>(seconds); }

}  // namespace

Dispatcher::Dispatcher(std::vector<std::string> names, const Limits& limits) : limits_(limits), workers_(names.size()) {
  for (size_t i = 0; i < names.size(); ++i) workers_[i].name = std::move(names[i]);
}

uint64_t Dispatcher::submit(GenerationRequest request, Engine::OnFinish on_finish) {
  const std::lock_guard lock(mutex_);
  if (asked_.empty()) none_since_ = {};
  const uint64_t ticket = next_ticket_++;
  const int64_t tokens = static_cast<int64_t>(request.prompt.size()) + request.n * request.sampling.max_tokens;
  asked_[ticket] = {.request = std::move(request),
                    .on_finish = std::move(on_finish),
                    .tokens = tokens,
                    .version = weights_ ? weights_->version() : 0,
                    .failed_by = {},
                    .writers = {}};
  const GenerationRequest& asked = asked_.at(ticket).request;
  if (const std::string problem = limits_.requests ? request_problem(asked, *limits_.requests) : ""; !problem.empty()) {
    whole_.push_back({ticket, refused_replies(asked, problem)});
    return ticket;
  }
  queue_.push_back(ticket);
  assign();
  return ticket;
}

// Its writers are told, if they know of it.
void Dispatcher::cancel_on_workers(uint64_t ticket, PendingRequest& asked) {
  for (const PendingRequest::Writer& writer : std::exchange(asked.writers, {})) {
    WorkerState& worker = workers_[writer.worker];
    worker.tokens -= asked.tokens;
    if (std::erase(worker.to_send, ticket) == 0) worker.dropped.push_back(ticket);
    mark_idle(worker);
  }
}

void Dispatcher::cancel(uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  std::erase(queue_, ticket);
  std::erase_if(whole_, [&](const FinishedRequest& of) { return of.ticket == ticket; });
  if (const auto found = asked_.find(ticket); found != asked_.end()) {
    cancel_on_workers(ticket, found->second);
    asked_.erase(found);
  }
  assign();
}

void Dispatcher::assign(uint64_t ticket, size_t worker) {
  PendingRequest& asked = asked_.at(ticket);
  asked.writers.push_back({worker, {}});
  WorkerState& to = workers_[worker];
  to.to_send.push_back(ticket);
  to.tokens += asked.tokens;
  mark_idle(to);
}

void Dispatcher::assign() {
  for (; !queue_.empty(); queue_.pop_front()) {
    const PendingRequest& asked = asked_.at(queue_.front());
    const auto reluctance = [&](size_t i) {
      return std::pair(std::ranges::count(asked.failed_by, i), workers_[i].tokens);
    };
    size_t best = workers_.size();
    for (size_t i = 0; i < workers_.size(); ++i)
      if (workers_[i].alive && (best == workers_.size() || reluctance(i) < reluctance(best))) best = i;
    if (best == workers_.size()) break;
    const int64_t held = workers_[best].tokens;
    if (held > 0 && held + asked.tokens > limits_.tokens_at_once) break;
    assign(queue_.front(), best);
  }
  changed_.notify_all();
}

// A worker with nothing to do also writes what has taken another one far longer than usual.
void Dispatcher::duplicate_slow_requests(size_t worker) {
  if (typical_seconds_ == 0 || !queue_.empty()) return;
  const double patience = far_longer * std::max(typical_seconds_, limits_.min_typical_seconds);
  for (auto& [ticket, asked] : asked_)
    if (asked.writers.size() == 1 && asked.writers.front().worker != worker &&
        asked.writers.front().since.seconds() > patience) {
      log::warning("rollout: ", workers_[asked.writers.front().worker].name, " is slow; ", workers_[worker].name,
                   " writes a request of it, too");
      ++counts_["workers/duplicated"];
      return assign(ticket, worker);
    }
}

bool Dispatcher::step() {
  std::deque<FinishedRequest> whole;
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, duration(most_patience), [this] { return !whole_.empty() || asked_.empty(); });
    whole = std::exchange(whole_, {});
    if (whole.empty() && !asked_.empty() && none_since_.seconds() > limits_.timeout &&
        std::ranges::none_of(workers_, &WorkerState::alive)) {
      std::string reasons;
      for (const WorkerState& worker : workers_)
        reasons += concat("; ", worker.name, ": ", worker.reason.empty() ? "no answer yet" : worker.reason);
      fail("rollout: no worker has finished anything for ", limits_.timeout,
           " seconds (rollout.worker_timeout), and none is there", reasons);
    }
  }
  for (FinishedRequest& of : whole) {
    Engine::OnFinish on_finish;
    uint64_t id = 0;
    {
      const std::lock_guard lock(mutex_);
      const auto found = asked_.find(of.ticket);
      if (found == asked_.end()) continue;  // cancelled by the call before
      on_finish = std::move(found->second.on_finish);
      id = found->second.request.id;
      asked_.erase(found);
    }
    on_finish(id, std::move(of.replies));
  }
  const std::lock_guard lock(mutex_);
  return !asked_.empty();
}

void Dispatcher::publish(std::shared_ptr<const WeightSnapshot> weights) {
  const std::lock_guard lock(mutex_);
  weights_.swap(weights);  // those before end with the call, outside of the lock
  changed_.notify_all();
}

void Dispatcher::wait_until_joined(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, duration(seconds), [this] { return std::ranges::all_of(workers_, &WorkerState::settled); });
}

void Dispatcher::mark_idle(WorkerState& worker) {
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

Dispatcher::Work Dispatcher::next(size_t place, int64_t version, double patience) {
  std::unique_lock lock(mutex_);
  WorkerState& worker = workers_[place];
  const auto outdated = [&] { return weights_ && weights_->version() > version; };
  changed_.wait_for(lock, duration(patience),
                    [&] { return stopping_ || outdated() || !worker.to_send.empty() || !worker.dropped.empty(); });
  Work out;
  out.stopping = stopping_;
  out.tokens = worker.tokens;
  if (stopping_) return out;
  if (outdated()) {
    out.weights = weights_;
    return out;
  }
  if (worker.alive && worker.tokens == 0 && version >= 0) duplicate_slow_requests(place);
  if (version >= 0)
    for (const uint64_t ticket : std::exchange(worker.to_send, {}))
      out.submit.push_back({ticket, asked_.at(ticket).request});
  out.cancel = std::exchange(worker.dropped, {});
  out.tokens = worker.tokens;
  return out;
}

// What was for others, and they have not been told of, is shared out again.
void Dispatcher::joined(size_t place) {
  const std::lock_guard lock(mutex_);
  workers_[place].alive = workers_[place].settled = true;
  workers_[place].reason.clear();
  workers_[place].since_joined = {};
  for (WorkerState& worker : workers_)
    for (const uint64_t ticket : std::exchange(worker.to_send, {})) {
      PendingRequest& asked = asked_.at(ticket);
      asked.drop(static_cast<size_t>(&worker - workers_.data()));
      worker.tokens -= asked.tokens;
      mark_idle(worker);
      if (asked.writers.empty()) queue_.push_back(ticket);
    }
  std::ranges::sort(queue_);
  assign();
}

void Dispatcher::lost(size_t place, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  WorkerState& worker = workers_[place];
  const bool news = worker.alive || worker.reason != reason;
  if (worker.alive) ++counts_["workers/lost"];
  const bool first_fruitless =
      worker.alive && !worker.made_progress && !std::exchange(worker.failed_before_first_result, true);
  if (std::exchange(worker.made_progress, false) || first_fruitless) none_since_ = {};
  worker.failed_before_first_result |= worker.alive && !std::exchange(worker.finished, false);
  worker.alive = false;
  worker.settled = true;
  worker.reason = reason;
  worker.to_send.clear();
  worker.dropped.clear();
  int64_t requests = 0;
  for (auto& [ticket, asked] : asked_) {
    const bool late = asked.seconds_with(place) > limits_.request_timeout;
    if (!asked.drop(place)) continue;
    if (late) asked.failed_by.push_back(place);
    if (!asked.writers.empty()) continue;
    ++requests;
    queue_or_fail(ticket, asked,
                  refused_replies(asked.request, concat("no worker finished it within ", limits_.request_timeout,
                                                        " seconds (rollout.worker_request_timeout)")));
  }
  worker.tokens = 0;
  mark_idle(worker);
  if (requests > 0) counts_["workers/retried"] += static_cast<double>(requests);
  if (news && !stopping_)
    log::warning("rollout: worker ", worker.name, " is lost: ", reason,
                 requests > 0 ? concat("; ", requests, " requests of it are asked again") : std::string());
  assign();
}

// The text is the learner's own reading of the ids, whatever the worker says it is.
void Dispatcher::check(const PendingRequest& asked, std::vector<CompletionOutput>& replies) const {
  HONE_CHECK(std::ssize(replies) == asked.request.n, asked.request.n, " replies were asked for, ", replies.size(),
             " came");
  const int64_t vocab_size = limits_.requests ? limits_.requests->vocab_size : INT32_MAX;
  for (CompletionOutput& reply : replies) {
    if (reply.failed) continue;
    check_columns(reply, asked.request, vocab_size, {asked.version, weights_->version()});
    if (!limits_.requests) continue;
    check_end(reply, asked.request, *limits_.requests);
    const Tokenizer* tokenizer = limits_.requests->tokenizer;
    const SamplingParams& sampling = asked.request.sampling;
    reply.text = tokenizer ? completion_text(*tokenizer, sampling.stop, sampling.min_tokens, reply.ids,
                                             reply.finish_reason == "length")
                           : "";
  }
}

bool Dispatcher::finished(size_t place, WorkerPollResult::Done done) {
  const std::lock_guard lock(mutex_);
  const auto found = asked_.find(done.ticket);
  if (found == asked_.end()) return false;  // cancelled meanwhile
  PendingRequest& asked = found->second;
  const auto writer = std::ranges::find(asked.writers, place, &PendingRequest::Writer::worker);
  if (writer == asked.writers.end()) return false;  // another one was first
  WorkerState& worker = workers_[place];
  if (std::ranges::find(worker.to_send, done.ticket) != worker.to_send.end())
    return false;  // it has not been told of it since it joined
  check(asked, done.replies);
  if (std::ranges::any_of(done.replies, &CompletionOutput::failed)) {
    failed(place, done.ticket, asked, std::move(done.replies));
    return false;
  }
  worker.failures = 0;
  worker.finished = true;
  worker.made_progress = true;
  worker.failed_before_first_result = false;
  none_since_ = {};
  for (const CompletionOutput& reply : done.replies) worker.generated += std::ssize(reply.ids);
  worker.tokens -= asked.tokens;
  mark_idle(worker);
  const double seconds = writer->since.seconds();
  asked.drop(place);
  typical_seconds_ += (typical_seconds_ == 0 ? 1.0 : 0.1) * (seconds - typical_seconds_);
  cancel_on_workers(done.ticket, asked);
  whole_.push_back({done.ticket, std::move(done.replies)});
  assign();
  return true;
}

void Dispatcher::failed(size_t place, uint64_t ticket, PendingRequest& asked, std::vector<CompletionOutput> replies) {
  WorkerState& worker = workers_[place];
  const std::string reason = std::ranges::find_if(replies, &CompletionOutput::failed)->finish_reason.substr(0, 300);
  HONE_CHECK(++worker.failures < most_failures, "it failed ", worker.failures,
             " requests one after the other, the last one: ", reason);
  log::warning("rollout: ", worker.name, " failed a request: ", reason);
  asked.drop(place);
  asked.failed_by.push_back(place);
  worker.tokens -= asked.tokens;
  mark_idle(worker);
  if (!asked.writers.empty()) return;  // another one has it, too
  queue_or_fail(ticket, asked, std::move(replies));
  assign();
}

// Of no worker now: others are asked, or after several tries it ends with these replies.
void Dispatcher::queue_or_fail(uint64_t ticket, PendingRequest& asked, std::vector<CompletionOutput> replies) {
  if (asked.failed_by.size() >= most_tries) return whole_.push_back({ticket, std::move(replies)});
  queue_.insert(std::ranges::lower_bound(queue_, ticket), ticket);
}

bool Dispatcher::overdue(size_t place) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(asked_,
                             [&](const auto& of) { return of.second.seconds_with(place) > limits_.request_timeout; });
}

void Dispatcher::record_weight_sync(double seconds) {
  const std::lock_guard lock(mutex_);
  double& slowest = counts_["time/weight_sync"];
  slowest = std::max(slowest, seconds);
}

void Dispatcher::record_progress(size_t place) {
  const std::lock_guard lock(mutex_);
  WorkerState& worker = workers_[place];
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
