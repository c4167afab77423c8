#pragma once
// DeviceTimer: how long a device works on spans of its queue. One thread.
#include <deque>
#include <memory>

#include "core/device/device.h"

namespace hone {

class DeviceTimer {
 public:
  explicit DeviceTimer(Context& context) : context_(context) {}
  // What is queued from begin() to end() is a span. One that never ends, for an error, is none.
  void begin() {
    if (!open_.from) open_ = {context_.device().make_event(true), context_.device().make_event(true)};
    open_.from->record(context_.stream());
  }
  void end() {
    open_.to->record(context_.stream());
    spans_.push_back(std::move(open_));
    open_ = spare_.empty() ? Span() : std::move(spare_.back());
    if (!spare_.empty()) spare_.pop_back();
  }
  // Waits for the end of the oldest span that was not read, and adds it to seconds().
  void read() {
    spans_.front().to->wait();
    seconds_ += spans_.front().to->seconds_since(*spans_.front().from);
    spare_.push_back(std::move(spans_.front()));
    spans_.pop_front();
  }
  bool all_read() const { return spans_.empty(); }
  double seconds() const { return seconds_; }

 private:
  struct Span {
    std::unique_ptr<Event> from, to;
  };
  Context& context_;
  Span open_;
  std::deque<Span> spans_, spare_;
  double seconds_ = 0;
};

}  // namespace hone
