#pragma once
// Tensors for benchmark cases, on the context's device.
#include "kernels/op.h"

namespace hone {

// What a model's numbers are there.
inline DType bench_dtype(const Context& context) {
  return context.kind() == DeviceKind::cuda ? DType::bf16 : DType::f32;
}

// Uniform in [-0.5, 0.5) times `scale`, f32 or bench_dtype().
Tensor bench_floats(Context& context, std::initializer_list<int64_t> dims, float scale = 1);
Tensor bench_numbers(Context& context, std::initializer_list<int64_t> dims, float scale = 1);
Tensor bench_numbers(Context& context, Arena& arena, std::initializer_list<int64_t> dims, float scale = 1);
// In [0, limit).
Tensor bench_ids(Context& context, int64_t count, int64_t limit);
// i32 as given.
Tensor bench_values(Context& context, const std::vector<int32_t>& values);
// 0, length, 2 length, ...: sequences of one length.
Tensor bench_offsets(Context& context, int64_t sequences, int64_t length);

}  // namespace hone
