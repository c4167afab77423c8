#pragma once
// DeviceLink: two processes whose devices hand tensors to each other, past the hosts' memory where the machine can.
// Each kind is one file that joins device_links(); a build may have none.
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "core/device/device.h"

namespace hone {

// How long one side waits for the other, from now on. A link does not notice by itself that the other process has died:
// `there` says whether it lives, by whatever else connects the two; the thread that waits asks again and again. None:
// nothing says so.
class Deadline {
 public:
  using StillConnected = std::function<bool()>;
  explicit Deadline(double seconds, StillConnected there = {});
  // An Error once the time is over, or the other side is gone.
  void check() const;

 private:
  std::chrono::steady_clock::time_point end_;
  StillConnected there_;
};

// One side of two. One thread at a time. After an Error the link is of no use, and nothing of it is left on the stream.
class DeviceLink {
 public:
  // Never waits for the other side: what is under way is aborted.
  virtual ~DeviceLink() = default;
  // Queued on the context's stream, in order with the other side's receive() or send() of as many bytes. The tensor is
  // contiguous, on the link's device, and stays until finish(). An Error where patience ends before it is queued.
  virtual void send(Context& context, Tensor x, const Deadline& patience) = 0;
  virtual void receive(Context& context, Tensor x, const Deadline& patience) = 0;
  // Waits until what was queued is done; an Error where patience ends. That a send is done does not say that the other
  // side has it: ask the other side.
  virtual void finish(Context& context, const Deadline& patience) = 0;
};

struct DeviceLinkKind {
  bool (*serves)(const Device&);
  // What both sides open one link with, made by either: opaque bytes, for one use, good while the process that made
  // them lives.
  std::string (*new_id)();
  // Rank 0 or 1. Returns once a byte has gone each way; an Error where patience ends.
  std::unique_ptr<DeviceLink> (*open)(Device&, const std::string& id, int rank, const Deadline& patience);
};
Registry<DeviceLinkKind>& device_links();

}  // namespace hone
