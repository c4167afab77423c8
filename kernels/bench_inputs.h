#pragma once
// Tensors for benchmark cases, from the context's scratch.
#include "core/rng.h"
#include "kernels/op.h"

namespace hone {

// Uniform in [-0.5, 0.5) times `scale`.
inline Tensor bench_floats(Context& context, std::initializer_list<int64_t> dims, float scale = 1) {
  const Tensor out = context.scratch().take(DType::f32, dims);
  for (int64_t i = 0; i < out.size(); ++i) out.ptr<float>()[i] = scale * (unit_float(static_cast<uint32_t>(i) * 2654435769u) - 0.5f);
  return out;
}
// In [0, limit).
inline Tensor bench_ids(Context& context, int64_t count, int64_t limit) {
  const Tensor out = context.scratch().take(DType::i32, {count});
  for (int64_t i = 0; i < count; ++i) out.ptr<int32_t>()[i] = static_cast<int32_t>(i * 7919 % limit);
  return out;
}

}  // namespace hone
