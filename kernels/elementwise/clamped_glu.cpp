// CPU specification of the clamped SwiGLU, in f64 per element.
#include "kernels/elementwise/clamped_glu.h"

#include <algorithm>
#include <cmath>

#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"

namespace hone {
namespace {

constexpr int64_t rows_per_piece = 16;

// Comparisons let a NaN pass, as torch.clamp does.
double clamp(double x, double low, double high) {
  if (x < low) return low;
  return x > high ? high : x;
}

void forward(Context&, Tensor y, Tensor gate_up, ClampedGlu rule) {
  const int64_t rows = y.dim(0), dim = y.dim(1);
  check_shape(clamped_glu_forward, "y", y, {rows, dim});
  check_shape(clamped_glu_forward, "gate_up", gate_up, {rows, 2 * dim});
  const double limit = rule.limit, alpha = rule.alpha;
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float *gates = gate_up.row<float>(r), *ups = gates + dim;
      for (int64_t i = 0; i < dim; ++i) {
        const double gate = clamp(gates[i], -INFINITY, limit), up = clamp(ups[i], -limit, limit);
        y.row<float>(r)[i] = static_cast<float>((up + 1) * gate / (1 + std::exp(-alpha * gate)));
      }
    }
  });
}

void backward(Context&, Tensor dgate_up, Tensor dy, Tensor gate_up, ClampedGlu rule) {
  const int64_t rows = dy.dim(0), dim = dy.dim(1);
  check_shape(clamped_glu_backward, "dy", dy, {rows, dim});
  check_shape(clamped_glu_backward, "gate_up", gate_up, {rows, 2 * dim});
  check_shape(clamped_glu_backward, "dgate_up", dgate_up, {rows, 2 * dim});
  const double limit = rule.limit, alpha = rule.alpha;
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float *gates = gate_up.row<float>(r), *ups = gates + dim, *grad = dy.row<float>(r);
      float *dgate = dgate_up.row<float>(r), *dup = dgate + dim;
      for (int64_t i = 0; i < dim; ++i) {
        const double gate = clamp(gates[i], -INFINITY, limit), up = clamp(ups[i], -limit, limit),
                     s = 1 / (1 + std::exp(-alpha * gate)), d = grad[i];
        const bool gate_moves = !(gates[i] > limit), up_moves = !(std::fabs(ups[i]) > limit);
        dgate[i] = gate_moves ? static_cast<float>(d * (up + 1) * (s + alpha * gate * s * (1 - s))) : 0.0f;
        dup[i] = up_moves ? static_cast<float>(d * gate * s) : 0.0f;
      }
    }
  });
}

[[maybe_unused]] const bool added = clamped_glu_forward.add({"specification", DeviceKind::cpu, forward}) &&
                                    clamped_glu_backward.add({"specification", DeviceKind::cpu, backward});

}  // namespace
}  // namespace hone
