// CUDA bodies of cast and add_into (kernel: kernels/cuda/elementwise.cuh).
#include "kernels/cuda/elementwise.cuh"
#include "kernels/elementwise/cast.h"

namespace hone {
namespace {

template <class To, class From>
struct Cast {
  To* y;
  const From* x;
  int64_t y_stride, x_stride;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    float value[N];
    load_numbers(value, x + row * x_stride + column);
    store_numbers(y + row * y_stride + column, value);
  }
};

template <class T>
struct Add {
  T* y;
  const T* x;
  int64_t y_stride, x_stride;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    float sum[N], more[N];
    T* to = y + row * y_stride + column;
    load_numbers(sum, to);
    load_numbers(more, x + row * x_stride + column);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += more[i];
    store_numbers(to, sum);
  }
};

void check_sizes(const OpBase& op, const Tensor& y, const Tensor& x) {
  HONE_CHECK(y.size() == x.size() && (x.size() == 0 || y.row_size() == x.row_size()), "op ", op.name(), ": x has ",
             x.size(), " elements, y has ", y.size(), "; sizes and row sizes must be equal");
}

void run_cast(Context& context, Tensor y, Tensor x) {
  check_sizes(cast, y, x);
  const Extent all = extent(y, x);
  with_storage(cast, y.dtype, [&](auto to) {
    with_storage(cast, x.dtype, [&](auto from) {
      using To = decltype(to);
      using From = decltype(from);
      constexpr int N = vec_size<To>;  // one 16-byte store: 95% of copy bandwidth; two f32 stores per row give 86%
      launch_elementwise<N>(cuda_stream(context), all, packs_of(N, all.rows, y) && packs_of(N, all.rows, x),
                            Cast<To, From>{numbers<To>(y), numbers<const From>(x), y.row_stride, x.row_stride});
    });
  });
  check_launch(cast);
}

void run_add(Context& context, Tensor y, Tensor x) {
  check_sizes(add_into, y, x);
  HONE_CHECK(y.dtype == x.dtype, "op add_into: x is ", name_of(x.dtype), ", y is ", name_of(y.dtype),
             "; they must be equal");
  const Extent all = extent(y, x);
  with_storage(add_into, y.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = vec_size<T>;
    launch_elementwise<N>(cuda_stream(context), all, packs_of(N, all.rows, y) && packs_of(N, all.rows, x),
                          Add<T>{numbers<T>(y), numbers<const T>(x), y.row_stride, x.row_stride});
  });
  check_launch(add_into);
}

[[maybe_unused]] const bool added =
    cast.add({"elementwise", DeviceKind::cuda, run_cast}) && add_into.add({"elementwise", DeviceKind::cuda, run_add});

}  // namespace
}  // namespace hone
