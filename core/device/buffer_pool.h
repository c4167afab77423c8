#pragma once
// BufferPool: caches freed buffers. cudaMalloc and cudaFree synchronize the device, and pinning host memory takes
// longer than copying it.
#include <memory>
#include <mutex>
#include <vector>

#include "core/device/device.h"

namespace hone {

// Thread-safe. The device must outlive the pool and its buffers. The pool caches the two buffers that were freed last.
class BufferPool {
 public:
  BufferPool(Device& device, MemoryKind place) : device_(device), place_(place) { free_->buffers.reserve(most_spare); }
  // Returns a cached buffer of at least `bytes`, else a new one; contents undefined. The buffer may outlive the pool.
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
