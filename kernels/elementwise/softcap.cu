// CUDA bodies of the soft-cap (kernel: kernels/cuda/elementwise.cuh).
#include "kernels/check_shape.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/elementwise/softcap.h"

namespace hone {
namespace {

struct Cap {
  float* x;
  int64_t stride;
  float softcap, inverse;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    float value[N];
    load_numbers(value, x + row * stride + column);
#pragma unroll
    for (int i = 0; i < N; ++i) value[i] = softcap * tanhf(value[i] * inverse);
    store_numbers(x + row * stride + column, value);
  }
};

template <class T>
struct CapGradient {
  T* dx;
  const float* y;
  int64_t dx_stride, y_stride;
  float inverse;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    float grad[N], out[N];
    load_numbers(grad, dx + row * dx_stride + column);
    load_numbers(out, y + row * y_stride + column);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float t = out[i] * inverse;
      grad[i] *= 1.0f - t * t;
    }
    store_numbers(dx + row * dx_stride + column, grad);
  }
};

void forward(Context& context, Tensor x, float softcap) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(softcap_forward, "x", x, {rows, dim});
  HONE_CHECK(softcap > 0, "softcap_forward: softcap is ", softcap, "; it must be positive");
  constexpr int N = vec_size<float>;
  launch_elementwise<N>(cuda_stream(context), {rows, dim}, packs_of(N, rows, x),
                        Cap{numbers<float>(x), x.row_stride, softcap, 1 / softcap});
  check_launch(softcap_forward);
}

void backward(Context& context, Tensor dx, Tensor y, float softcap) {
  const int64_t rows = y.dim(0), dim = y.dim(1);
  check_shape(softcap_backward, "dx", dx, {rows, dim}, dx.dtype);
  check_shape(softcap_backward, "y", y, {rows, dim});
  HONE_CHECK(softcap > 0, "softcap_backward: softcap is ", softcap, "; it must be positive");
  with_storage(softcap_backward, dx.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = vec_size<float>;
    launch_elementwise<N>(
        cuda_stream(context), {rows, dim}, packs_of(N, rows, dx) && packs_of(N, rows, y),
        CapGradient<T>{numbers<T>(dx), numbers<const float>(y), dx.row_stride, y.row_stride, 1 / softcap});
  });
  check_launch(softcap_backward);
}

[[maybe_unused]] const bool added = softcap_forward.add({"elementwise", DeviceKind::cuda, forward}) &&
                                    softcap_backward.add({"elementwise", DeviceKind::cuda, backward});

}  // namespace
}  // namespace hone
