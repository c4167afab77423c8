#pragma once
// DeviceLink: sends tensors from the device of one process to the device of another, without host memory where the
// machine can. Each kind is one file that joins device_links(). A build may have none.
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "core/device/device.h"

namespace hone {

// How long one side waits for the other, counted from construction. A link does not notice that the other process died.
// The waiting thread therefore polls `still_connected`, which says whether the other process lives (by its HTTP
// connection, say). Without it only the time counts.
class Deadline {
 public:
  using StillConnected = std::function<bool()>;
  explicit Deadline(double seconds, StillConnected still_connected = {});
  // Throws Error if the time is over or the other side is gone.
  void check() const;

 private:
  std::chrono::steady_clock::time_point end_;
  StillConnected still_connected_;
};

// One of two sides. One thread at a time. After an Error the link is unusable and has no work left on the stream.
class DeviceLink {
 public:
  // Aborts unfinished transfers; never waits for the other side.
  virtual ~DeviceLink() = default;
  // Queue a transfer on the context's stream. The other side must call receive() or send() for as many bytes, in the
  // same order. The tensor is contiguous, on the link's device, and valid until finish(). Throws Error at the deadline.
  virtual void send(Context& context, Tensor x, const Deadline& deadline) = 0;
  virtual void receive(Context& context, Tensor x, const Deadline& deadline) = 0;
  // Waits for the queued transfers. Throws Error at the deadline. A finished send does not mean that the other side has
  // the data: only the other side knows.
  virtual void finish(Context& context, const Deadline& deadline) = 0;
};

struct DeviceLinkKind {
  bool (*serves)(const Device&);
  // An id that both sides open one link with: opaque bytes, for one use, valid while the process that made it lives.
  std::string (*new_id)();
  // rank: 0 or 1. Returns after one byte went each way. Throws Error at the deadline.
  std::unique_ptr<DeviceLink> (*open)(Device&, const std::string& id, int rank, const Deadline& deadline);
};
Registry<DeviceLinkKind>& device_links();

}  // namespace hone
