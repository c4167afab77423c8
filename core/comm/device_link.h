#pragma once
// DeviceLink: two processes whose devices hand tensors to each other, past the hosts' memory where the machine can. Each kind is one file that joins
// device_links(); a build may have none.
#include <memory>
#include <string>

#include "core/device.h"

namespace hone {

// One side of two. One thread at a time. After an Error the link is of no use, and nothing of it is left on the stream.
class DeviceLink {
 public:
  // Never waits for the other side: what is under way is aborted.
  virtual ~DeviceLink() = default;
  // Queued on the context's stream, in order with the other side's receive() or send() of as many bytes. The tensor is contiguous, on the link's
  // device, and stays until finish().
  virtual void send(Context& context, Tensor x) = 0;
  virtual void receive(Context& context, Tensor x) = 0;
  // Waits until what was queued is done. An Error after so many seconds, or once the other side is known to be gone. That a send is done does not say
  // that the other side has it: ask the other side.
  virtual void finish(Context& context, double seconds) = 0;
};

struct DeviceLinkKind {
  bool (*serves)(const Device&);
  // What both sides open one link with, made by either: opaque bytes, for one use, good while the process that made them lives.
  std::string (*new_id)();
  // Rank 0 or 1. Returns once a byte has gone each way; an Error after so many seconds. They are also how long send() and receive() may take to
  // queue.
  std::unique_ptr<DeviceLink> (*open)(Device&, const std::string& id, int rank, double seconds);
};
Registry<DeviceLinkKind>& device_links();

}  // namespace hone
