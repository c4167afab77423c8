#include "core/device/buffer_pool.h"

#include <algorithm>

namespace hone {

std::shared_ptr<Buffer> BufferPool::take(size_t bytes) {
  Buffer out;
  {
    const std::lock_guard lock(free_->mutex);
    const auto found = std::ranges::find(free_->buffers, bytes, &Buffer::size);
    if (found != free_->buffers.end()) {
      out = std::move(*found);
      free_->buffers.erase(found);
    }
  }
  if (!out.data()) out = Buffer(device_, bytes, place_);
  return {new Buffer(std::move(out)), [free = free_](Buffer* used) {
            Buffer dropped;  // goes outside of the lock
            {
              const std::lock_guard lock(free->mutex);
              if (free->buffers.size() == most_spare) {
                dropped = std::move(free->buffers.front());
                free->buffers.erase(free->buffers.begin());
              }
              free->buffers.push_back(std::move(*used));
            }
            delete used;
          }};
}

}  // namespace hone
