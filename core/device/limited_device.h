#pragma once
// A device with an upper bound of its memory: the recipe key device.memory.
#include <memory>

#include "core/device/device.h"

namespace hone {

// Returns `device` with at most limit_bytes of Buffers at a time. An allocation beyond the limit is an Error with the
// bytes asked for, the bytes in use and the limit. The limit counts what hone allocates: not the CUDA context, not the
// memory of CUDA's libraries, and not pinned host memory.
std::unique_ptr<Device> limit_memory(std::unique_ptr<Device> device, size_t limit_bytes);

}  // namespace hone
