#pragma once
// BufferPool: memory that is used again. To take it from a device and to give it back holds the device up, and to pin
// it takes longer than to fill it.
#include <memory>
#include <mutex>
#include <vector>

#include "core/device/device.h"

namespace hone {

// Any thread. The device outlives it and what it gave. It keeps two that nobody has, those that came back last.
class BufferPool {
 public:
  BufferPool(Device& device, MemoryKind place) : device_(device), place_(place) { free_->buffers.reserve(most_spare); }
  // One that nobody has any more, if it is as large; contents undefined. It may be held longer than this lives.
  std::shared_ptr<Buffer> take(size_t bytes);

 private:
  static constexpr size_t most_spare = 2;
  struct Free {
    std::mutex mutex;
    std::vector<Buffer> buffers;
  };
  Device& device_;
  const MemoryKind place_;
  const std::shared_ptr<Free> free_ = std::make_shared<Free>();
};

}  // namespace hone
