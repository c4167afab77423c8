// CUDA bodies of the clamped SwiGLU (kernel: kernels/cuda/elementwise.cuh).
#include "kernels/check_shape.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/elementwise/clamped_glu.cuh"

namespace hone {
namespace {

template <class T>
struct ClampedGate {
  T* y;
  const T* gate_up;
  int64_t y_stride, gate_up_stride, dim;
  ClampedGlu rule;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    float gate[N], up[N];
    const T* from = gate_up + row * gate_up_stride + column;
    load_numbers(gate, from);
    load_numbers(up, from + dim);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      up[i] = ClampedPoint(gate[i], up[i], rule).value();
    }
    store_numbers(y + row * y_stride + column, up);
  }
};

template <class T>
struct ClampedGateGradient {
  T* dgate_up;
  const T *dy, *gate_up;
  int64_t dgate_up_stride, dy_stride, gate_up_stride, dim;
  ClampedGlu rule;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    float gate[N], up[N], grad[N];
    const T* from = gate_up + row * gate_up_stride + column;
    load_numbers(gate, from);
    load_numbers(up, from + dim);
    load_numbers(grad, dy + row * dy_stride + column);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const ClampedPoint at(gate[i], up[i], rule);
      const float slope = fmaf(rule.alpha * at.gate * at.s, 1.0f - at.s, at.s);
      gate[i] = at.gate_moves ? grad[i] * (at.up + 1.0f) * slope : 0.0f;
      up[i] = at.up_moves ? grad[i] * (at.gate * at.s) : 0.0f;
    }
    T* to = dgate_up + row * dgate_up_stride + column;
    store_numbers(to, gate);
    store_numbers(to + dim, up);
  }
};

void forward(Context& context, Tensor y, Tensor gate_up, ClampedGlu rule) {
  const int64_t rows = y.dim(0), dim = y.dim(1);
  check_shape(clamped_glu_forward, "y", y, {rows, dim}, y.dtype);
  check_shape(clamped_glu_forward, "gate_up", gate_up, {rows, 2 * dim}, y.dtype);
  with_storage(clamped_glu_forward, y.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = vec_size<T>;
    const bool whole = dim % N == 0 && packs_of(N, rows, y) && packs_of(N, rows, gate_up);
    launch_elementwise<N>(
        cuda_stream(context), {rows, dim}, whole,
        ClampedGate<T>{numbers<T>(y), numbers<const T>(gate_up), y.row_stride, gate_up.row_stride, dim, rule});
  });
  check_launch(clamped_glu_forward);
}

void backward(Context& context, Tensor dgate_up, Tensor dy, Tensor gate_up, ClampedGlu rule) {
  const int64_t rows = dy.dim(0), dim = dy.dim(1);
  check_shape(clamped_glu_backward, "dy", dy, {rows, dim}, dy.dtype);
  check_shape(clamped_glu_backward, "gate_up", gate_up, {rows, 2 * dim}, dy.dtype);
  check_shape(clamped_glu_backward, "dgate_up", dgate_up, {rows, 2 * dim}, dy.dtype);
  with_storage(clamped_glu_backward, dy.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = vec_size<T>;
    const bool whole =
        dim % N == 0 && packs_of(N, rows, dgate_up) && packs_of(N, rows, dy) && packs_of(N, rows, gate_up);
    launch_elementwise<N>(cuda_stream(context), {rows, dim}, whole,
                          ClampedGateGradient<T>{numbers<T>(dgate_up), numbers<const T>(dy), numbers<const T>(gate_up),
                                                 dgate_up.row_stride, dy.row_stride, gate_up.row_stride, dim, rule});
  });
  check_launch(clamped_glu_backward);
}

[[maybe_unused]] const bool added = clamped_glu_forward.add({"elementwise", DeviceKind::cuda, forward}) &&
                                    clamped_glu_backward.add({"elementwise", DeviceKind::cuda, backward});

}  // namespace
}  // namespace hone
