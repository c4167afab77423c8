#include "core/net/http_transaction.h"

namespace hone {

HttpTransaction::HttpTransaction(HttpRequestInfo info, std::string body, size_t max_unsent, std::function<void()> wake,
                                 std::shared_ptr<const std::atomic<bool>> ended, std::shared_ptr<void> body_share)
    : info_(std::move(info)),
      body_(std::move(body)),
      max_unsent_(max_unsent),
      wake_(std::move(wake)),
      ended_(std::move(ended)),
      body_share_(std::move(body_share)) {}

void HttpTransaction::respond(HttpServerResponse response) {
  {
    const std::lock_guard lock(mutex_);
    outgoing_.bytes = std::move(response.body);
    outgoing_.start = std::move(response);
    outgoing_.ended = true;
  }
  wake_();
}

void HttpTransaction::begin(HttpServerResponse first) { respond(std::move(first), nullptr); }

void HttpTransaction::respond(HttpServerResponse first, NextPiece next) {
  {
    const std::lock_guard lock(mutex_);
    next_ = std::move(next);
    outgoing_.bytes = std::move(first.body);
    outgoing_.start = std::move(first);
    outgoing_.streamed = true;
  }
  wake_();
}

bool HttpTransaction::write(std::string_view piece) {
  bool idle = false;  // wake the connection only if nothing was waiting: it takes all bytes at once
  {
    const std::lock_guard lock(mutex_);
    if (disconnected_) return false;
    idle = outgoing_.bytes.empty();
    if (outgoing_.bytes.size() + piece.size() <= max_unsent_) {
      outgoing_.bytes += piece;
      if (idle) wake_();
      return true;
    }
  }
  mark_disconnected();
  wake_();
  return false;
}

void HttpTransaction::end() {
  {
    const std::lock_guard lock(mutex_);
    outgoing_.ended = true;
  }
  wake_();
}

void HttpTransaction::on_disconnect(std::function<void()> action) {
  {
    const std::lock_guard lock(mutex_);
    if (sent_) return;
    if (!disconnected_) {
      on_disconnect_ = std::move(action);
      return;
    }
  }
  action();
}

HttpTransaction::Outgoing HttpTransaction::take_outgoing() {
  Outgoing out;
  NextPiece next;
  {
    const std::lock_guard lock(mutex_);
    out = std::move(outgoing_);
    outgoing_ = {.start = std::nullopt, .bytes = {}, .streamed = out.streamed, .ended = false};
    if (!out.start) next.swap(next_);
  }
  if (out.start) out.start->body.clear();
  if (!next) return out;
  out.ended = !next(out.bytes);
  if (out.ended) return out;
  const std::lock_guard lock(mutex_);
  next_.swap(next);
  return out;
}

void HttpTransaction::mark_disconnected() {
  std::function<void()> action;
  {
    const std::lock_guard lock(mutex_);
    if (disconnected_) return;
    disconnected_ = true;
    action.swap(on_disconnect_);
  }
  if (action) action();
}

void HttpTransaction::mark_sent() {
  std::function<void()> dropped;  // destroyed without the lock: it may hold the last reference to this object
  const std::lock_guard lock(mutex_);
  sent_ = true;
  dropped.swap(on_disconnect_);
}

bool HttpTransaction::disconnected() const {
  const std::lock_guard lock(mutex_);
  return disconnected_ || *ended_;
}

}  // namespace hone
