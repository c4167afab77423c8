#pragma once
// Numbers on their way to the host.
#include "core/device/device.h"

namespace hone {

class HostFetch {
 public:
  explicit HostFetch(Context& context)
      : context_(context), arena_(context.device(), size_t{1} << 16, MemoryKind::pinned) {}
  // Queues a copy, flat: there after the next synchronize(), until clear().
  Tensor fetch(Tensor values) {
    const Tensor out = arena_.take(values.dtype, {values.size()});
    context_.copy_without_wait(out, values.view({values.size()}));
    return out;
  }
  void clear() { arena_.release({}); }

 private:
  Context& context_;
  Arena arena_;
};

}  // namespace hone
