#include "rollout/async_engine.h"

#include <new>

#include "core/base/log.h"

namespace hone {

AsyncEngine::AsyncEngine(Engine& engine, int64_t max_replies)
    : engine_(engine), max_replies_(max_replies), thread_([this] { run(); }) {}

AsyncEngine::~AsyncEngine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& [number, job] : jobs_)
      for (const uint64_t ticket : job.tickets) engine_.cancel(ticket);
  }
  arrived_.notify_all();
  thread_.join();
}

uint64_t AsyncEngine::submit(std::vector<GenerationRequest> requests, std::shared_ptr<CompletionListener> listener,
                             bool wants_tokens) {
  const std::lock_guard lock(mutex_);
  if (!state_.failure.empty()) fail("the engine has stopped: ", state_.failure);
  int64_t replies = 0;
  for (const GenerationRequest& request : requests) replies += request.n;
  if (replies > max_replies_ - state_.replies) return 0;
  const uint64_t number = next_job_++;
  AsyncRequest& job = jobs_[number];
  job = {.listener = listener, .tickets = {}, .replies = replies, .unfinished = requests.size(), .since = {}};
  for (size_t i = 0; i < requests.size(); ++i) {
    Engine::OnToken on_token;
    if (wants_tokens)
      on_token = [this, number, i](uint64_t, int64_t reply, const CompletionOutput& written) {
        if (const auto to = listener_of(number)) tell(number, *to, [&] { to->on_token(i, reply, written); });
      };
    job.tickets.push_back(engine_.submit(
        std::move(requests[i]),
        [this, number, i](uint64_t, std::vector<CompletionOutput> done) { finish(number, i, std::move(done)); },
        std::move(on_token)));
  }
  state_.replies += replies;
  pending_ = true;
  arrived_.notify_all();
  return number;
}

void AsyncEngine::cancel(uint64_t number) {
  std::shared_ptr<CompletionListener> dropped;  // released outside the lock
  const std::lock_guard lock(mutex_);
  const auto found = jobs_.find(number);
  if (found == jobs_.end()) return;
  for (const uint64_t ticket : found->second.tickets) engine_.cancel(ticket);
  state_.replies -= found->second.replies;
  ++state_.jobs_cancelled;
  dropped = std::move(found->second.listener);
  jobs_.erase(found);
  pending_ = true;
  arrived_.notify_all();
}

void AsyncEngine::run_between_steps(std::function<void(Engine&)> action) {
  std::future<void> done;
  {
    const std::lock_guard lock(mutex_);
    if (!state_.failure.empty()) fail("the engine has stopped: ", state_.failure);
    done = actions_.emplace_back(std::move(action)).get_future();
    engine_.end_step();
    pending_ = true;
    arrived_.notify_all();
  }
  try {
    done.get();
  } catch (const std::future_error&) {
    fail("the engine has stopped: ", state().failure);
  }
}

std::shared_ptr<CompletionListener> AsyncEngine::listener_of(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = jobs_.find(number);
  return found == jobs_.end() ? nullptr : found->second.listener;
}

void AsyncEngine::tell(uint64_t number, CompletionListener& listener, const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    const std::string reason = dynamic_cast<const std::bad_alloc*>(&error) ? "out of memory" : error.what();
    log::warning("an answer failed: ", reason);
    cancel(number);
    tell_failure(listener, reason);
  }
}

// There is nobody left to tell what this throws.
void AsyncEngine::tell_failure(CompletionListener& listener, const std::string& reason) {
  try {
    listener.on_failure(reason);
  } catch (const std::exception& error) {
    log::error("an asker could not be told of a failure: ", error.what());
  }
}

// Of a job that was cancelled meanwhile nobody is told.
void AsyncEngine::finish(uint64_t number, size_t request, std::vector<CompletionOutput> replies) {
  std::shared_ptr<CompletionListener> listener;
  {
    const std::lock_guard lock(mutex_);
    const auto found = jobs_.find(number);
    if (found == jobs_.end()) return;
    AsyncRequest& job = found->second;
    listener = job.listener;
    if (--job.unfinished == 0) {
      state_.replies -= job.replies;
      ++state_.jobs_finished;
      state_.mean_seconds += (job.since.seconds() - state_.mean_seconds) /
                             static_cast<double>(std::min<int64_t>(state_.jobs_finished, 32));
      jobs_.erase(found);
    }
  }
  tell(number, *listener, [&] { listener->on_finish(request, std::move(replies)); });
}

void AsyncEngine::fail_all(const std::string& reason) {
  log::error("the engine has stopped: ", reason);
  std::map<uint64_t, AsyncRequest> jobs;
  std::vector<std::packaged_task<void(Engine&)>> actions;  // whoever waits for one is told by its end
  {
    const std::lock_guard lock(mutex_);
    state_.failure = reason;
    state_.replies = 0;
    jobs.swap(jobs_);
    actions.swap(actions_);
  }
  for (const auto& [number, job] : jobs) tell_failure(*job.listener, reason);
}

void AsyncEngine::run() {
  try {
    for (bool more = false;;) {
      std::vector<std::packaged_task<void(Engine&)>> actions;
      {
        std::unique_lock lock(mutex_);
        if (!more) arrived_.wait(lock, [this] { return stopping_ || pending_; });
        if (stopping_) return;
        pending_ = false;
        actions.swap(actions_);
      }
      for (auto& action : actions) action(engine_);
      more = engine_.step();
      const std::lock_guard lock(mutex_);
      state_.engine = engine_.stats();
    }
  } catch (const std::exception& error) {
    fail_all(error.what());
  }
}

AsyncEngine::State AsyncEngine::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

}  // namespace hone
