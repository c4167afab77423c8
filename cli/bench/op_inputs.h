#pragma once
// Inputs of the op benchmarks: the layer shapes of the benchmarked models, and tensors on the context's device, in its
// scratch memory.
#include "kernels/op.h"

namespace hone {

// The models whose layers give the shapes on a GPU: Qwen 2.5 with 0.5B and with 1.5B parameters.
struct BenchModel {
  const char* name;
  int64_t width, heads, kv_heads, head_dim, mlp, vocabulary;
  int64_t projected() const { return (heads + 2 * kv_heads) * head_dim; }
};
inline constexpr BenchModel bench_models[] = {{"0.5B", 896, 14, 2, 64, 4864, 151936},
                                              {"1.5B", 1536, 12, 2, 128, 8960, 151936}};
inline constexpr int64_t bench_tokens = 8192;  // tokens of a micro-batch

// The dtype of a model on the context's device.
inline DType bench_dtype(const Context& context) {
  return context.kind() == DeviceKind::cuda ? DType::bf16 : DType::f32;
}

// Uniform in [-0.5, 0.5) times `scale`: bench_floats in f32, bench_numbers in bench_dtype(). The second bench_numbers
// takes the memory from `arena`.
Tensor bench_floats(Context& context, std::initializer_list<int64_t> dims, float scale = 1);
Tensor bench_numbers(Context& context, std::initializer_list<int64_t> dims, float scale = 1);
Tensor bench_numbers(Context& context, Arena& arena, std::initializer_list<int64_t> dims, float scale = 1);
// i32 [count], in [0, limit).
Tensor bench_ids(Context& context, int64_t count, int64_t limit);
// i32 with these values.
Tensor bench_values(Context& context, const std::vector<int32_t>& values);
// i32 [sequences + 1]: 0, length, 2 * length, ...
Tensor bench_offsets(Context& context, int64_t sequences, int64_t length);

}  // namespace hone
