// CUDA body of dropout (kernel: kernels/cuda/elementwise.cuh). One Philox block decides four adjacent elements.
#include "core/base/rng.h"
#include "kernels/check_shape.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/elementwise/dropout.h"

namespace hone {
namespace {

template <class T>
struct Drop {
  T* y;
  const T* x;
  int64_t y_stride, x_stride, draws;
  float factor;
  Dropout which;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    float value[N];
    load_numbers(value, x + row * x_stride + column);
    const uint64_t first = static_cast<uint64_t>((which.first_row + row) * draws + column / 4);
    Philox4 drawn{};
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (which.rate > 0 && i % 4 == 0) drawn = philox(which.seed, which.stream, first + i / 4);
      const int word = N == 1 ? static_cast<int>(column % 4) : i % 4;
      value[i] = which.rate == 0 || unit_float(drawn.word[word]) >= which.rate ? factor * value[i] : 0;
    }
    store_numbers(y + row * y_stride + column, value);
  }
};

void run(Context& context, Tensor y, Tensor x, float factor, Dropout which) {
  const int64_t rows = x.dim(0), columns = x.dim(1);
  check_shape(dropout, "x", x, {rows, columns}, x.dtype);
  check_shape(dropout, "y", y, {rows, columns}, x.dtype);
  with_storage(dropout, x.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = vec_size<T>;
    static_assert(N % 4 == 0);  // a vector starts with the first word of a Philox block
    launch_elementwise<N, true>(
        cuda_stream(context), {rows, columns}, packs_of(N, rows, y) && packs_of(N, rows, x),
        Drop<T>{numbers<T>(y), numbers<const T>(x), y.row_stride, x.row_stride, (columns + 3) / 4, factor, which});
  });
  check_launch(dropout);
}

[[maybe_unused]] const bool added = dropout.add({"elementwise", DeviceKind::cuda, run});

}  // namespace
}  // namespace hone
