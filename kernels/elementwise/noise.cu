// CUDA body of add_embedding_noise (kernel: kernels/cuda/elementwise.cuh).
#include "core/base/rng.h"
#include "kernels/check_shape.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/elementwise/noise.h"

namespace hone {
namespace {

template <class T>
struct Add {
  T* x;
  const int32_t* offsets;
  int64_t stride, dim, sequences;
  EmbeddingNoise noise;

  // The sequence of a row: the last one that begins at or before it.
  __device__ int64_t sequence_of(int64_t row) const {
    int64_t low = 0, high = sequences;
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (offsets[middle] <= row ? low : high) = middle;
    }
    return low;
  }
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    const int64_t s = sequence_of(row), begin = offsets[s], quads = (dim + 3) / 4;
    const float scale = noise.alpha / sqrtf(static_cast<float>(offsets[s + 1] - begin) * static_cast<float>(dim));
    float value[N];
    T* to = x + row * stride + column;
    load_numbers(value, to);
    Philox4 words;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int64_t at = column + i;
      if (i == 0 || at % 4 == 0)
        words = philox(noise.seed, noise.first + static_cast<uint64_t>(s),
                       static_cast<uint64_t>((row - begin) * quads + at / 4));
      value[i] += (2 * unit_float(words.word[at % 4]) - 1) * scale;
    }
    store_numbers(to, value);
  }
};

void run(Context& context, Tensor x, Tensor offsets, EmbeddingNoise noise) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(add_embedding_noise, "x", x, {rows, dim}, x.dtype);
  check_shape(add_embedding_noise, "offsets", offsets, {offsets.size()}, DType::i32);
  with_storage(add_embedding_noise, x.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = vec_size<T>;
    launch_elementwise<N, true>(
        cuda_stream(context), {rows, dim}, packs_of(N, rows, x),
        Add<T>{numbers<T>(x), numbers<const int32_t>(offsets), x.row_stride, dim, offsets.size() - 1, noise});
  });
  check_launch(add_embedding_noise);
}

[[maybe_unused]] const bool added = add_embedding_noise.add({"rows", DeviceKind::cuda, run});

}  // namespace
}  // namespace hone
