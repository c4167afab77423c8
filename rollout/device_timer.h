#pragma once
// DeviceTimer: sums the device time of spans of queued work. One thread.
#include <deque>
#include <memory>

#include "core/device/device.h"

namespace hone {

class DeviceTimer {
 public:
  explicit DeviceTimer(Context& context) : context_(context) {}
  // A span is the work queued between begin() and end(). A span without end(), after an error, does not count.
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
  // Waits for the end of the oldest unread span and adds it to seconds().
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
