// CPU specification of the SwiGLU and GELU ops, in f64 per element.
#include "kernels/elementwise/activation.h"

#include <cmath>

#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"

namespace hone {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

void swiglu(Context&, Tensor y, Tensor gate_up) {
  const int64_t rows = y.dim(0), dim = y.dim(1);
  check_shape(swiglu_forward, "y", y, {rows, dim});
  check_shape(swiglu_forward, "gate_up", gate_up, {rows, 2 * dim});
  for (int64_t r = 0; r < rows; ++r) {
    const float *gate = gate_up.row<float>(r), *up = gate + dim;
    float* out = y.row<float>(r);
    for (int64_t i = 0; i < dim; ++i) out[i] = static_cast<float>(gate[i] * sigmoid(gate[i]) * up[i]);
  }
}

// silu'(g) = s + g * s * (1 - s) with s = sigmoid(g).
void swiglu_gradient(Context&, Tensor dgate_up, Tensor y, Tensor dy, Tensor gate_up) {
  const int64_t rows = dy.dim(0), dim = dy.dim(1);
  check_shape(swiglu_backward, "dy", dy, {rows, dim});
  check_shape(swiglu_backward, "gate_up", gate_up, {rows, 2 * dim});
  check_shape(swiglu_backward, "dgate_up", dgate_up, {rows, 2 * dim});
  check_optional(swiglu_backward, "y", y, {rows, dim});
  for (int64_t r = 0; r < rows; ++r) {
    const float *gate = gate_up.row<float>(r), *up = gate + dim, *grad = dy.row<float>(r);
    float *dgate = dgate_up.row<float>(r), *dup = dgate + dim, *out = y ? y.row<float>(r) : nullptr;
    for (int64_t i = 0; i < dim; ++i) {
      const double g = gate[i], s = sigmoid(g);
      const float u = up[i], d = grad[i];
      dgate[i] = static_cast<float>(d * u * (s + g * s * (1 - s)));
      dup[i] = static_cast<float>(d * g * s);
      if (out) out[i] = static_cast<float>(g * s * u);
    }
  }
}

constexpr double gelu_inner = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double gelu_cubic = 0.044715;
constexpr int64_t rows_per_piece = 16;

void gelu(Context&, Tensor y, Tensor x) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(gelu_forward, "x", x, {rows, dim});
  check_shape(gelu_forward, "y", y, {rows, dim});
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* in = x.row<float>(r);
      float* out = y.row<float>(r);
      for (int64_t i = 0; i < dim; ++i) {
        const double v = in[i];
        out[i] = static_cast<float>(0.5 * v * (1 + std::tanh(gelu_inner * (v + gelu_cubic * v * v * v))));
      }
    }
  });
}

void gelu_gradient(Context&, Tensor dx, Tensor dy, Tensor x) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(gelu_backward, "x", x, {rows, dim});
  check_shape(gelu_backward, "dy", dy, {rows, dim});
  check_shape(gelu_backward, "dx", dx, {rows, dim});
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float *in = x.row<float>(r), *grad = dy.row<float>(r);
      float* out = dx.row<float>(r);
      for (int64_t i = 0; i < dim; ++i) {
        const double v = in[i], t = std::tanh(gelu_inner * (v + gelu_cubic * v * v * v));
        out[i] = static_cast<float>(
            grad[i] * (0.5 * (1 + t) + 0.5 * v * (1 - t * t) * gelu_inner * (1 + 3 * gelu_cubic * v * v)));
      }
    }
  });
}

[[maybe_unused]] const bool added = swiglu_forward.add({"specification", DeviceKind::cpu, swiglu}) &&
                                    swiglu_backward.add({"specification", DeviceKind::cpu, swiglu_gradient}) &&
                                    gelu_forward.add({"specification", DeviceKind::cpu, gelu}) &&
                                    gelu_backward.add({"specification", DeviceKind::cpu, gelu_gradient});

}  // namespace
}  // namespace hone
