#pragma once
// Work units of uneven size on all threads, with scratch memory per thread.
#include <algorithm>
#include <atomic>

#include "core/base/parallel_for.h"
#include "core/device/device.h"

namespace hone {

// Calls unit(index, scratch) for each index in [0, count). A thread that is done takes the next index. scratch:
// `floats` f32 of the context's scratch memory, aligned to 256 bytes, uninitialized, valid during the call.
template <class Unit>
void for_each_unit(Context& context, int64_t count, int64_t floats, Unit unit) {
  if (count <= 0) return;
  const ScratchScope scope(context);
  const int64_t lanes = std::min<int64_t>(count, num_threads()), per_lane = (floats + 63) / 64 * 64;
  float* memory = context.scratch().take(DType::f32, {lanes, per_lane}).ptr<float>();
  std::atomic<int64_t> next{0};
  parallel_for(lanes, 1, [&](int64_t lane, int64_t) {
    for (int64_t index = next++; index < count; index = next++) unit(index, memory + lane * per_lane);
  });
}

}  // namespace hone
