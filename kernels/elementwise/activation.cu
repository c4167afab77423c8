// CUDA bodies of the activations (kernel: kernels/cuda/elementwise.cuh).
#include "kernels/check_shape.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/elementwise/activation.cuh"
#include "kernels/elementwise/activation.h"

namespace hone {
namespace {

// Derivative of x * sigmoid(a(x)), with s = sigmoid(a(x)) and slope = x * a'(x).
__device__ inline float gate_gradient(float s, float slope) { return fmaf(s * (1.0f - s), slope, s); }

// The activation at x and its derivative.
struct Point {
  float value, slope;
};

struct Silu {
  __device__ static Point at(float x) {
    const float s = sigmoid(x);
    return {x * s, gate_gradient(s, x)};
  }
};

// 0.5 * (1 + tanh(a)) = sigmoid(2 a), so gelu(x) = x * sigmoid(x * (linear + cubic * x^2)).
struct GeluTanh {
  static constexpr float linear = 1.5957691216f, cubic = 1.5957691216f * 0.044715f;  // linear = 2 sqrt(2 / pi)
  __device__ static Point at(float x) {
    const float square = x * x, s = sigmoid(x * fmaf(cubic, square, linear));
    return {x * s, gate_gradient(s, x * fmaf(3 * cubic, square, linear))};
  }
};

struct Gelu {
  __device__ static Point at(float x) {
    constexpr float half_root = 0.70710678f, density_at_0 = 0.39894228f;  // sqrt(1/2), 1 / sqrt(2 pi)
    const float below = 0.5f * erfcf(-x * half_root);
    return {x * below, fmaf(x, density_at_0 * expf(-0.5f * x * x), below)};
  }
};

struct Relu {
  __device__ static Point at(float x) { return {x < 0 ? 0 : x, x > 0 ? 1.0f : 0.0f}; }
};

struct Relu2 {
  __device__ static Point at(float x) { return {x < 0 ? 0 : x * x, x > 0 ? 2 * x : 0.0f}; }
};

template <class T, class A>
struct Gated {
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
    for (int i = 0; i < N; ++i) up[i] = up[i] * A::at(gate[i]).value;
    store_numbers(y + row * y_stride + column, up);
  }
};

template <class T, class A, bool with_y>
struct GatedGradient {
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
      const Point point = A::at(gate[i]);
      const float d = grad[i], u = up[i];
      gate[i] = d * u * point.slope;
      up[i] = d * point.value;
      if constexpr (with_y) grad[i] = u * point.value;
    }
    if constexpr (with_y) store_numbers(y + row * y_stride + column, grad);
    T* to = dgate_up + row * dgate_up_stride + column;
    store_numbers(to, gate);
    store_numbers(to + dim, up);
  }
};

template <class T, class A>
struct Plain {
  T* y;
  const T* x;
  int64_t y_stride, x_stride;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    float value[N];
    load_numbers(value, x + row * x_stride + column);
#pragma unroll
    for (int i = 0; i < N; ++i) value[i] = A::at(value[i]).value;
    store_numbers(y + row * y_stride + column, value);
  }
};

template <class T, class A>
struct PlainGradient {
  T* dx;
  const T *dy, *x;
  int64_t dx_stride, dy_stride, x_stride;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    float value[N], grad[N];
    load_numbers(value, x + row * x_stride + column);
    load_numbers(grad, dy + row * dy_stride + column);
#pragma unroll
    for (int i = 0; i < N; ++i) grad[i] *= A::at(value[i]).slope;
    store_numbers(dx + row * dx_stride + column, grad);
  }
};

template <class Visit>
void with_kind(Activation kind, Visit visit) {
  switch (kind) {
    case Activation::silu:
      return visit(Silu());
    case Activation::gelu_tanh:
      return visit(GeluTanh());
    case Activation::gelu:
      return visit(Gelu());
    case Activation::relu:
      return visit(Relu());
    case Activation::relu2:
      return visit(Relu2());
  }
}

void gated(Context& context, Tensor y, Tensor gate_up, Activation kind) {
  const int64_t rows = y.dim(0), dim = y.dim(1);
  check_shape(glu_forward, "y", y, {rows, dim}, y.dtype);
  check_shape(glu_forward, "gate_up", gate_up, {rows, 2 * dim}, y.dtype);
  with_storage(glu_forward, y.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = vec_size<T>;
    const bool whole = dim % N == 0 && packs_of(N, rows, y) && packs_of(N, rows, gate_up);
    with_kind(kind, [&](auto activation) {
      launch_elementwise<N, true>(cuda_stream(context), {rows, dim}, whole,
                                  Gated<T, decltype(activation)>{numbers<T>(y), numbers<const T>(gate_up), y.row_stride,
                                                                 gate_up.row_stride, dim});
    });
  });
  check_launch(glu_forward);
}

void gated_gradient(Context& context, Tensor dgate_up, Tensor y, Tensor dy, Tensor gate_up, Activation kind) {
  const int64_t rows = dy.dim(0), dim = dy.dim(1);
  check_shape(glu_backward, "dy", dy, {rows, dim}, dy.dtype);
  check_shape(glu_backward, "gate_up", gate_up, {rows, 2 * dim}, dy.dtype);
  check_shape(glu_backward, "dgate_up", dgate_up, {rows, 2 * dim}, dy.dtype);
  check_optional(glu_backward, "y", y, {rows, dim}, dy.dtype);
  with_storage(glu_backward, dy.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = vec_size<T>;
    const bool whole = dim % N == 0 && packs_of(N, rows, dgate_up) && packs_of(N, rows, y) && packs_of(N, rows, dy) &&
                       packs_of(N, rows, gate_up);
    with_kind(kind, [&](auto activation) {
      using A = decltype(activation);
      const auto launch = [&]<bool with_y>() {
        launch_elementwise<N>(cuda_stream(context), {rows, dim}, whole,
                              GatedGradient<T, A, with_y>{numbers<T>(dgate_up), numbers<T>(y), numbers<const T>(dy),
                                                          numbers<const T>(gate_up), dgate_up.row_stride, y.row_stride,
                                                          dy.row_stride, gate_up.row_stride, dim});
      };
      if (y)
        launch.template operator()<true>();
      else
        launch.template operator()<false>();
    });
  });
  check_launch(glu_backward);
}

void plain(Context& context, Tensor y, Tensor x, Activation kind) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(activation_forward, "x", x, {rows, dim}, x.dtype);
  check_shape(activation_forward, "y", y, {rows, dim}, x.dtype);
  const Extent all = extent(y, x);
  with_storage(activation_forward, x.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = vec_size<T>;
    with_kind(kind, [&](auto activation) {
      launch_elementwise<N>(
          cuda_stream(context), all, packs_of(N, all.rows, y) && packs_of(N, all.rows, x),
          Plain<T, decltype(activation)>{numbers<T>(y), numbers<const T>(x), y.row_stride, x.row_stride});
    });
  });
  check_launch(activation_forward);
}

void plain_gradient(Context& context, Tensor dx, Tensor dy, Tensor x, Activation kind) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(activation_backward, "x", x, {rows, dim}, x.dtype);
  check_shape(activation_backward, "dy", dy, {rows, dim}, x.dtype);
  check_shape(activation_backward, "dx", dx, {rows, dim}, x.dtype);
  const Extent all = extent(dx, dy, x);
  with_storage(activation_backward, x.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = vec_size<T>;
    with_kind(kind, [&](auto activation) {
      launch_elementwise<N>(
          cuda_stream(context), all, packs_of(N, all.rows, dx) && packs_of(N, all.rows, dy) && packs_of(N, all.rows, x),
          PlainGradient<T, decltype(activation)>{numbers<T>(dx), numbers<const T>(dy), numbers<const T>(x),
                                                 dx.row_stride, dy.row_stride, x.row_stride});
    });
  });
  check_launch(activation_backward);
}

[[maybe_unused]] const bool added = glu_forward.add({"elementwise", DeviceKind::cuda, gated}) &&
                                    glu_backward.add({"elementwise", DeviceKind::cuda, gated_gradient}) &&
                                    activation_forward.add({"elementwise", DeviceKind::cuda, plain}) &&
                                    activation_backward.add({"elementwise", DeviceKind::cuda, plain_gradient});

}  // namespace
}  // namespace hone
