#include "kernels/cast.h"
#include "kernels/cuda.cuh"

namespace hone {
namespace {

constexpr int threads = 256;

template <class To, class From>
__global__ void cast_kernel(To* y, const From* x, int64_t count, int64_t columns, int64_t y_stride, int64_t x_stride) {
  for (int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x; i < count; i += int64_t{gridDim.x} * threads) {
    const int64_t row = i / columns, column = i % columns;
    y[row * y_stride + column] = from_f32<To>(to_f32(x[row * x_stride + column]));
  }
}

template <class T>
__global__ void add_kernel(T* y, const T* x, int64_t count, int64_t columns, int64_t y_stride, int64_t x_stride) {
  for (int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x; i < count; i += int64_t{gridDim.x} * threads) {
    const int64_t row = i / columns, column = i % columns;
    T& to = y[row * y_stride + column];
    to = from_f32<T>(to_f32(to) + to_f32(x[row * x_stride + column]));
  }
}

void check_sizes(const OpBase& op, const Tensor& y, const Tensor& x) {
  HONE_CHECK(y.size() == x.size() && (x.size() == 0 || y.row_size() == x.row_size()), "op ", op.name(), ": x has ", x.size(), " elements, y ",
             y.size());
}

int blocks_for(int64_t count) { return static_cast<int>(std::min<int64_t>((count + threads - 1) / threads, int64_t{num_multiprocessors()} * 16)); }

void run_cast(Context& context, Tensor y, Tensor x) {
  check_sizes(cast, y, x);
  if (x.size() == 0) return;
  with_storage(cast, y.dtype, [&](auto to) {
    with_storage(cast, x.dtype, [&](auto from) {
      using To = decltype(to);
      using From = decltype(from);
      cast_kernel<<<blocks_for(x.size()), threads, 0, cuda_stream(context)>>>(numbers<To>(y), numbers<const From>(x), x.size(), x.row_size(),
                                                                              y.row_stride, x.row_stride);
    });
  });
  check_launch(cast);
}

void run_add(Context& context, Tensor y, Tensor x) {
  check_sizes(add_into, y, x);
  HONE_CHECK(y.dtype == x.dtype, "op add_into: x is ", name_of(x.dtype), ", y ", name_of(y.dtype));
  if (x.size() == 0) return;
  with_storage(add_into, y.dtype, [&](auto type) {
    using T = decltype(type);
    add_kernel<<<blocks_for(x.size()), threads, 0, cuda_stream(context)>>>(numbers<T>(y), numbers<const T>(x), x.size(), x.row_size(), y.row_stride,
                                                                           x.row_stride);
  });
  check_launch(add_into);
}

[[maybe_unused]] const bool added = cast.add({"elementwise", DeviceKind::cuda, run_cast}) && add_into.add({"elementwise", DeviceKind::cuda, run_add});

}  // namespace
}  // namespace hone
