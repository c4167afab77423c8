// CUDA bodies of the clamp (kernel: kernels/cuda/elementwise.cuh).
#include "kernels/check_shape.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/elementwise/clamp.h"

namespace hone {
namespace {

template <class T>
struct Clamp {
  T* x;
  int64_t stride;
  float limit;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    float value[N];
    load_numbers(value, x + row * stride + column);
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (fabsf(value[i]) > limit) value[i] = copysignf(limit, value[i]);
    store_numbers(x + row * stride + column, value);
  }
};

template <class T>
struct ClampGradient {
  T* dx;
  const T* x;
  int64_t dx_stride, x_stride;
  float limit;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    float grad[N], in[N];
    load_numbers(grad, dx + row * dx_stride + column);
    load_numbers(in, x + row * x_stride + column);
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (fabsf(in[i]) > limit) grad[i] = 0.0f;
    store_numbers(dx + row * dx_stride + column, grad);
  }
};

void check_limit(const OpBase& op, float limit) {
  HONE_CHECK(limit > 0, op.name(), ": limit is ", limit, "; it must be positive");
}

void forward(Context& context, Tensor x, float limit) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(clamp_forward, "x", x, {rows, dim}, x.dtype);
  check_limit(clamp_forward, limit);
  with_storage(clamp_forward, x.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = vec_size<T>;
    const Extent all = extent(x);
    launch_elementwise<N>(cuda_stream(context), all, packs_of(N, all.rows, x),
                          Clamp<T>{numbers<T>(x), x.row_stride, limit});
  });
  check_launch(clamp_forward);
}

void backward(Context& context, Tensor dx, Tensor x, float limit) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(clamp_backward, "dx", dx, {rows, dim}, dx.dtype);
  check_shape(clamp_backward, "x", x, {rows, dim}, dx.dtype);
  check_limit(clamp_backward, limit);
  with_storage(clamp_backward, dx.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = vec_size<T>;
    const Extent all = extent(dx, x);
    launch_elementwise<N>(cuda_stream(context), all, packs_of(N, all.rows, dx) && packs_of(N, all.rows, x),
                          ClampGradient<T>{numbers<T>(dx), numbers<const T>(x), dx.row_stride, x.row_stride, limit});
  });
  check_launch(clamp_backward);
}

[[maybe_unused]] const bool added = clamp_forward.add({"elementwise", DeviceKind::cuda, forward}) &&
                                    clamp_backward.add({"elementwise", DeviceKind::cuda, backward});

}  // namespace
}  // namespace hone
