// CUDA bodies of the SwiGLU and GELU ops (kernel: kernels/cuda/elementwise.cuh).
#include "kernels/check_shape.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/elementwise/activation.cuh"
#include "kernels/elementwise/activation.h"

namespace hone {
namespace {

// Derivative of x * sigmoid(a(x)), with s = sigmoid(a(x)) and slope = x * a'(x).
__device__ inline float gate_gradient(float s, float slope) { return fmaf(s * (1.0f - s), slope, s); }

template <class T>
struct Swiglu {
  T* y;
  const T* gate_up;
  int64_t y_stride, gate_up_stride, dim;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    float gate[N], up[N];
    const T* from = gate_up + row * gate_up_stride + column;
    load_numbers(gate, from);
    load_numbers(up, from + dim);
#pragma unroll
    for (int i = 0; i < N; ++i) up[i] = swiglu(gate[i], up[i]);
    store_numbers(y + row * y_stride + column, up);
  }
};

template <class T, bool with_y>
struct SwigluGradient {
  T *dgate_up, *y;
  const T *dy, *gate_up;
  int64_t dgate_up_stride, y_stride, dy_stride, gate_up_stride, dim;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    float gate[N], up[N], grad[N];
    const T* from = gate_up + row * gate_up_stride + column;
    load_numbers(gate, from);
    load_numbers(up, from + dim);
    load_numbers(grad, dy + row * dy_stride + column);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float g = gate[i], s = sigmoid(g), d = grad[i], u = up[i];
      gate[i] = d * u * gate_gradient(s, g);
      up[i] = d * (g * s);
      if constexpr (with_y) grad[i] = u * (g * s);
    }
    if constexpr (with_y) store_numbers(y + row * y_stride + column, grad);
    T* to = dgate_up + row * dgate_up_stride + column;
    store_numbers(to, gate);
    store_numbers(to + dim, up);
  }
};

// 0.5 * (1 + tanh(a)) = sigmoid(2 a), so gelu(x) = x * sigmoid(x * (linear + cubic * x^2)).
constexpr float gelu_linear = 1.5957691216f, gelu_cubic = 1.5957691216f * 0.044715f;  // gelu_linear = 2 sqrt(2 / pi)

template <class T>
struct Gelu {
  T* y;
  const T* x;
  int64_t y_stride, x_stride;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    float value[N];
    load_numbers(value, x + row * x_stride + column);
#pragma unroll
    for (int i = 0; i < N; ++i) value[i] *= sigmoid(value[i] * fmaf(gelu_cubic, value[i] * value[i], gelu_linear));
    store_numbers(y + row * y_stride + column, value);
  }
};

template <class T>
struct GeluGradient {
  T* dx;
  const T *dy, *x;
  int64_t dx_stride, dy_stride, x_stride;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    float value[N], grad[N];
    load_numbers(value, x + row * x_stride + column);
    load_numbers(grad, dy + row * dy_stride + column);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v = value[i], square = v * v;
      grad[i] *= gate_gradient(sigmoid(v * fmaf(gelu_cubic, square, gelu_linear)),
                               v * fmaf(3 * gelu_cubic, square, gelu_linear));
    }
    store_numbers(dx + row * dx_stride + column, grad);
  }
};

void swiglu(Context& context, Tensor y, Tensor gate_up) {
  const int64_t rows = y.dim(0), dim = y.dim(1);
  check_shape(swiglu_forward, "y", y, {rows, dim}, y.dtype);
  check_shape(swiglu_forward, "gate_up", gate_up, {rows, 2 * dim}, y.dtype);
  with_storage(swiglu_forward, y.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = vec_size<T>;
    launch_elementwise<N, true>(
        cuda_stream(context), {rows, dim}, dim % N == 0 && packs_of(N, rows, y) && packs_of(N, rows, gate_up),
        Swiglu<T>{numbers<T>(y), numbers<const T>(gate_up), y.row_stride, gate_up.row_stride, dim});
  });
  check_launch(swiglu_forward);
}

void swiglu_gradient(Context& context, Tensor dgate_up, Tensor y, Tensor dy, Tensor gate_up) {
  const int64_t rows = dy.dim(0), dim = dy.dim(1);
  check_shape(swiglu_backward, "dy", dy, {rows, dim}, dy.dtype);
  check_shape(swiglu_backward, "gate_up", gate_up, {rows, 2 * dim}, dy.dtype);
  check_shape(swiglu_backward, "dgate_up", dgate_up, {rows, 2 * dim}, dy.dtype);
  check_optional(swiglu_backward, "y", y, {rows, dim}, dy.dtype);
  with_storage(swiglu_backward, dy.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = vec_size<T>;
    const bool whole = dim % N == 0 && packs_of(N, rows, dgate_up) && packs_of(N, rows, y) && packs_of(N, rows, dy) &&
                       packs_of(N, rows, gate_up);
    const auto launch = [&]<bool with_y>() {
      launch_elementwise<N>(cuda_stream(context), {rows, dim}, whole,
                            SwigluGradient<T, with_y>{numbers<T>(dgate_up), numbers<T>(y), numbers<const T>(dy),
                                                      numbers<const T>(gate_up), dgate_up.row_stride, y.row_stride,
                                                      dy.row_stride, gate_up.row_stride, dim});
    };
    if (y)
      launch.template operator()<true>();
    else
      launch.template operator()<false>();
  });
  check_launch(swiglu_backward);
}

void gelu(Context& context, Tensor y, Tensor x) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(gelu_forward, "x", x, {rows, dim}, x.dtype);
  check_shape(gelu_forward, "y", y, {rows, dim}, x.dtype);
  const Extent all = extent(y, x);
  with_storage(gelu_forward, x.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = vec_size<T>;
    launch_elementwise<N>(cuda_stream(context), all, packs_of(N, all.rows, y) && packs_of(N, all.rows, x),
                          Gelu<T>{numbers<T>(y), numbers<const T>(x), y.row_stride, x.row_stride});
  });
  check_launch(gelu_forward);
}

void gelu_gradient(Context& context, Tensor dx, Tensor dy, Tensor x) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(gelu_backward, "x", x, {rows, dim}, x.dtype);
  check_shape(gelu_backward, "dy", dy, {rows, dim}, x.dtype);
  check_shape(gelu_backward, "dx", dx, {rows, dim}, x.dtype);
  const Extent all = extent(dx, dy, x);
  with_storage(gelu_backward, x.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = vec_size<T>;
    launch_elementwise<N>(cuda_stream(context), all,
                          packs_of(N, all.rows, dx) && packs_of(N, all.rows, dy) && packs_of(N, all.rows, x),
                          GeluGradient<T>{numbers<T>(dx), numbers<const T>(dy), numbers<const T>(x), dx.row_stride,
                                          dy.row_stride, x.row_stride});
  });
  check_launch(gelu_backward);
}

[[maybe_unused]] const bool added = swiglu_forward.add({"elementwise", DeviceKind::cuda, swiglu}) &&
                                    swiglu_backward.add({"elementwise", DeviceKind::cuda, swiglu_gradient}) &&
                                    gelu_forward.add({"elementwise", DeviceKind::cuda, gelu}) &&
                                    gelu_backward.add({"elementwise", DeviceKind::cuda, gelu_gradient});

}  // namespace
}  // namespace hone
