#pragma once
// Units of work of uneven size, each with scratch memory of the thread that has it.
#include <algorithm>
#include <atomic>

#include "core/base/parallel_for.h"
#include "core/device/device.h"

namespace hone {

// Calls unit(index, scratch) for every index in [0, count), on all threads, the next free index to the next free
// thread. scratch: `floats` f32, aligned to 256 bytes, contents undefined; taken from the context and given back.
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
