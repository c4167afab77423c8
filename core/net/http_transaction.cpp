#include "core/net/http_transaction.h"

namespace hone {

HttpTransaction::HttpTransaction(HttpRequestInfo head, std::string body, size_t max_unsent, std::function<void()> wake,
                                 std::shared_ptr<const std::atomic<bool>> ended, std::shared_ptr<void> body_share)
    : head_(std::move(head)),
      body_(std::move(body)),
      max_unsent_(max_unsent),
      wake_(std::move(wake)),
      ended_(std::move(ended)),
      body_share_(std::move(body_share)) {}

void HttpTransaction::reply(HttpServerResponse whole) {
  {
    const std::lock_guard lock(mutex_);
    outgoing_.bytes = std::move(whole.body);
    outgoing_.start = std::move(whole);
    outgoing_.ended = true;
  }
  wake_();
}

void HttpTransaction::begin(HttpServerResponse first) { reply(std::move(first), nullptr); }

void HttpTransaction::reply(HttpServerResponse first, NextPiece next) {
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
  bool idle = false;  // whether the connection has to be woken: it takes all that waits at once
  {
    const std::lock_guard lock(mutex_);
    if (gone_) return false;
    idle = outgoing_.bytes.empty();
    if (outgoing_.bytes.size() + piece.size() <= max_unsent_) {
      outgoing_.bytes += piece;
      if (idle) wake_();
      return true;
    }
  }
  leave();
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
    if (!gone_) {
      when_gone_ = std::move(action);
      return;
    }
  }
  action();
}

HttpTransaction::Outgoing HttpTransaction::take() {
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

void HttpTransaction::leave() {
  std::function<void()> action;
  {
    const std::lock_guard lock(mutex_);
    if (gone_) return;
    gone_ = true;
    action.swap(when_gone_);
  }
  if (action) action();
}

void HttpTransaction::sent() {
  std::function<void()> dropped;  // outside the lock: what it holds may be the last to hold this
  const std::lock_guard lock(mutex_);
  sent_ = true;
  dropped.swap(when_gone_);
}

bool HttpTransaction::gone() const {
  const std::lock_guard lock(mutex_);
  return gone_ || *ended_;
}

}  // namespace hone
