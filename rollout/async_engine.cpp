#include "rollout/async_engine.h"

#include <new>

#include "core/base/log.h"

namespace hone {

AsyncEngine::AsyncEngine(Engine& engine, int64_t max_pending_completions)
    : engine_(engine), max_pending_completions_(max_pending_completions), thread_([this] { run(); }) {
  const std::lock_guard lock(mutex_);
  state_.engine = engine.stats();  // nothing is submitted yet: the thread does not step
}

AsyncEngine::~AsyncEngine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& [id, request] : requests_)
      for (const uint64_t ticket : request.tickets) engine_.cancel(ticket);
  }
  changed_.notify_all();
  thread_.join();
}

uint64_t AsyncEngine::submit(std::vector<GenerationRequest> requests, std::shared_ptr<CompletionListener> listener,
                             bool wants_tokens) {
  const std::lock_guard lock(mutex_);
  if (!state_.failure.empty()) fail("the engine has stopped: ", state_.failure);
  int64_t completions = 0;
  for (const GenerationRequest& request : requests) completions += request.n;
  if (completions > max_pending_completions_ - state_.pending_completions) return 0;
  const uint64_t id = next_id_++;
  AsyncRequest& request = requests_[id];
  request = {.listener = std::move(listener),
             .tickets = {},
             .completions = completions,
             .unfinished = requests.size(),
             .since = {}};
  for (size_t i = 0; i < requests.size(); ++i) {
    Engine::OnToken on_token;
    if (wants_tokens)
      on_token = [this, id, i](uint64_t, int64_t completion_index, const CompletionOutput& completion) {
        if (const auto to = listener_of(id)) notify(id, *to, [&] { to->on_token(i, completion_index, completion); });
      };
    request.tickets.push_back(engine_.submit(
        std::move(requests[i]),
        [this, id, i](uint64_t, std::vector<CompletionOutput> done) { finish(id, i, std::move(done)); },
        std::move(on_token)));
  }
  state_.pending_completions += completions;
  pending_ = true;
  changed_.notify_all();
  return id;
}

void AsyncEngine::cancel(uint64_t id) {
  std::shared_ptr<CompletionListener> dropped;  // released outside the lock
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  for (const uint64_t ticket : found->second.tickets) engine_.cancel(ticket);
  state_.pending_completions -= found->second.completions;
  ++state_.requests_cancelled;
  dropped = std::move(found->second.listener);
  requests_.erase(found);
  pending_ = true;
  changed_.notify_all();
}

std::future<void> AsyncEngine::queue(std::function<void(Engine&)> action) {
  const std::lock_guard lock(mutex_);
  if (!state_.failure.empty()) fail("the engine has stopped: ", state_.failure);
  std::future<void> done = actions_.emplace_back(std::move(action)).get_future();
  engine_.end_step();
  pending_ = true;
  changed_.notify_all();
  return done;
}

void AsyncEngine::run_between_steps(std::function<void(Engine&)> action) {
  std::future<void> done = queue(std::move(action));
  try {
    done.get();
  } catch (const std::future_error&) {
    fail("the engine has stopped: ", state().failure);
  }
}

std::shared_ptr<CompletionListener> AsyncEngine::listener_of(uint64_t id) const {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : found->second.listener;
}

void AsyncEngine::notify(uint64_t id, CompletionListener& listener, const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    const std::string reason = dynamic_cast<const std::bad_alloc*>(&error) ? "out of memory" : error.what();
    log::warning("a response failed: ", reason);
    cancel(id);
    notify_failure(listener, reason);
  }
}

// An exception of on_failure() is only logged: there is no further callback.
void AsyncEngine::notify_failure(CompletionListener& listener, const std::string& reason) {
  try {
    listener.on_failure(reason);
  } catch (const std::exception& error) {
    log::error("on_failure() of a listener failed: ", error.what());
  }
}

// Results of cancelled requests are dropped.
void AsyncEngine::finish(uint64_t id, size_t request_index, std::vector<CompletionOutput> completions) {
  std::shared_ptr<CompletionListener> listener;
  {
    const std::lock_guard lock(mutex_);
    const auto found = requests_.find(id);
    if (found == requests_.end()) return;
    AsyncRequest& request = found->second;
    listener = request.listener;
    if (--request.unfinished == 0) {
      state_.pending_completions -= request.completions;
      ++state_.requests_finished;
      state_.mean_seconds += (request.since.seconds() - state_.mean_seconds) /
                             static_cast<double>(std::min<int64_t>(state_.requests_finished, 32));
      requests_.erase(found);
    }
  }
  notify(id, *listener, [&] { listener->on_finish(request_index, std::move(completions)); });
}

void AsyncEngine::fail_all(const std::string& reason) {
  log::error("the engine has stopped: ", reason);
  std::map<uint64_t, AsyncRequest> requests;
  // Destroying an action breaks its promise, which wakes run_between_steps().
  std::vector<std::packaged_task<void(Engine&)>> actions;
  {
    const std::lock_guard lock(mutex_);
    state_.failure = reason;
    state_.pending_completions = 0;
    requests.swap(requests_);
    actions.swap(actions_);
  }
  for (const auto& [id, request] : requests) notify_failure(*request.listener, reason);
}

void AsyncEngine::run() {
  try {
    for (bool more = false;;) {
      std::vector<std::packaged_task<void(Engine&)>> actions;
      {
        std::unique_lock lock(mutex_);
        if (!more) changed_.wait(lock, [this] { return stopping_ || pending_; });
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
