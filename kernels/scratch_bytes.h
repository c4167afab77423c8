#pragma once
// Bytes of scratch memory, for the functions that say what an op takes (Op::ScratchBytes).
#include <algorithm>
#include <cstddef>

namespace hone {

// What Arena::take() uses for a tensor of this many bytes.
inline size_t scratch_bytes(size_t bytes) { return (std::max<size_t>(bytes, 1) + 255) / 256 * 256; }

}  // namespace hone
