// CPU specification of the activations, in f64 per element.
#include "kernels/elementwise/activation.h"

#include <cmath>
#include <numbers>

#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"

namespace hone {
namespace {

constexpr double gelu_inner = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double gelu_cubic = 0.044715;
constexpr int64_t rows_per_piece = 16;

// The activation at x and its derivative.
struct Point {
  double value, slope;
};

Point at(Activation kind, double x) {
  switch (kind) {
    case Activation::silu: {
      const double s = 1 / (1 + std::exp(-x));
      return {x * s, s + x * s * (1 - s)};
    }
    case Activation::gelu_tanh: {
      const double t = std::tanh(gelu_inner * (x + gelu_cubic * x * x * x));
      return {0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * gelu_inner * (1 + 3 * gelu_cubic * x * x)};
    }
    case Activation::gelu: {
      const double below = 0.5 * std::erfc(-x / std::numbers::sqrt2);
      const double density = std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
      return {x * below, below + x * density};
    }
    case Activation::relu:
      return {x < 0 ? 0 : x, x > 0 ? 1.0 : 0.0};
    case Activation::relu2:
      return {x < 0 ? 0 : x * x, x > 0 ? 2 * x : 0.0};
  }
  fail("activation: unknown kind ", static_cast<int>(kind));
}

void gated(Context&, Tensor y, Tensor gate_up, Activation kind) {
  const int64_t rows = y.dim(0), dim = y.dim(1);
  check_shape(glu_forward, "y", y, {rows, dim});
  check_shape(glu_forward, "gate_up", gate_up, {rows, 2 * dim});
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float *gate = gate_up.row<float>(r), *up = gate + dim;
      float* out = y.row<float>(r);
      for (int64_t i = 0; i < dim; ++i) out[i] = static_cast<float>(at(kind, gate[i]).value * up[i]);
    }
  });
}

void gated_gradient(Context&, Tensor dgate_up, Tensor y, Tensor dy, Tensor gate_up, Activation kind) {
  const int64_t rows = dy.dim(0), dim = dy.dim(1);
  check_shape(glu_backward, "dy", dy, {rows, dim});
  check_shape(glu_backward, "gate_up", gate_up, {rows, 2 * dim});
  check_shape(glu_backward, "dgate_up", dgate_up, {rows, 2 * dim});
  check_optional(glu_backward, "y", y, {rows, dim});
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float *gate = gate_up.row<float>(r), *up = gate + dim, *grad = dy.row<float>(r);
      float *dgate = dgate_up.row<float>(r), *dup = dgate + dim, *out = y ? y.row<float>(r) : nullptr;
      for (int64_t i = 0; i < dim; ++i) {
        const Point point = at(kind, gate[i]);
        const float u = up[i], d = grad[i];
        dgate[i] = static_cast<float>(d * u * point.slope);
        dup[i] = static_cast<float>(d * point.value);
        if (out) out[i] = static_cast<float>(point.value * u);
      }
    }
  });
}

void plain(Context&, Tensor y, Tensor x, Activation kind) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(activation_forward, "x", x, {rows, dim});
  check_shape(activation_forward, "y", y, {rows, dim});
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* in = x.row<float>(r);
      float* out = y.row<float>(r);
      for (int64_t i = 0; i < dim; ++i) out[i] = static_cast<float>(at(kind, in[i]).value);
    }
  });
}

void plain_gradient(Context&, Tensor dx, Tensor dy, Tensor x, Activation kind) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(activation_backward, "x", x, {rows, dim});
  check_shape(activation_backward, "dy", dy, {rows, dim});
  check_shape(activation_backward, "dx", dx, {rows, dim});
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float *in = x.row<float>(r), *grad = dy.row<float>(r);
      float* out = dx.row<float>(r);
      for (int64_t i = 0; i < dim; ++i) out[i] = static_cast<float>(grad[i] * at(kind, in[i]).slope);
    }
  });
}

[[maybe_unused]] const bool added = glu_forward.add({"specification", DeviceKind::cpu, gated}) &&
                                    glu_backward.add({"specification", DeviceKind::cpu, gated_gradient}) &&
                                    activation_forward.add({"specification", DeviceKind::cpu, plain}) &&
                                    activation_backward.add({"specification", DeviceKind::cpu, plain_gradient});

}  // namespace
}  // namespace hone
