// The clamped SwiGLU on the CPU with SIMD (Google Highway).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise/clamped_glu_simd.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/row-inl.h"
#include "kernels/elementwise/clamped_glu.h"

HWY_BEFORE_NAMESPACE();
namespace hone::HWY_NAMESPACE {

// The clamped operands, sigmoid(alpha * gate), and which operands lie within their limits. A NaN stays a NaN.
struct ClampedPoint {
  RowVector gate, up, sigmoid;
  hn::Mask<RowTag> gate_moves, up_moves;
};
HWY_INLINE ClampedPoint clamped_point(RowVector gate, RowVector up, ClampedGlu rule) {
  const RowTag d;
  const RowVector limit = hn::Set(d, rule.limit), one = hn::Set(d, 1.0f);
  const auto gate_stops = hn::Gt(gate, limit), up_stops = hn::Gt(hn::Abs(up), limit);
  ClampedPoint out;
  out.gate = hn::IfThenElse(gate_stops, limit, gate);
  out.up = hn::IfThenElse(up_stops, hn::CopySign(limit, up), up);
  out.sigmoid = hn::Div(one, hn::Add(one, exp_f32(d, hn::Mul(hn::Set(d, -rule.alpha), out.gate))));
  out.gate_moves = hn::Not(gate_stops);
  out.up_moves = hn::Not(up_stops);
  return out;
}

void clamped_glu_rows(Tensor y, Tensor gate_up, ClampedGlu rule, int64_t begin, int64_t end) {
  const int64_t dim = y.dim(1);
  for (int64_t r = begin; r < end; ++r) {
    const float *gate = gate_up.row<float>(r), *up = gate + dim;
    float* out = y.row<float>(r);
    for_each_vector(dim, [&](int64_t i, auto lanes) {
      const ClampedPoint at = clamped_point(lanes.load(gate + i), lanes.load(up + i), rule);
      const RowVector glu = hn::Mul(at.gate, at.sigmoid);
      lanes.store(hn::Mul(hn::Add(at.up, hn::Set(RowTag(), 1.0f)), glu), out + i);
    });
  }
}

void clamped_glu_gradient_rows(Tensor dgate_up, Tensor dy, Tensor gate_up, ClampedGlu rule, int64_t begin,
                               int64_t end) {
  const RowTag d;
  const int64_t dim = dy.dim(1);
  const RowVector one = hn::Set(d, 1.0f), alpha = hn::Set(d, rule.alpha);
  for (int64_t r = begin; r < end; ++r) {
    const float *gate = gate_up.row<float>(r), *up = gate + dim, *grad = dy.row<float>(r);
    float *dgate = dgate_up.row<float>(r), *dup = dgate + dim;
    for_each_vector(dim, [&](int64_t i, auto lanes) {
      const ClampedPoint at = clamped_point(lanes.load(gate + i), lanes.load(up + i), rule);
      const RowVector out = lanes.load(grad + i), s = at.sigmoid;
      const RowVector slope = hn::MulAdd(hn::Mul(hn::Mul(alpha, at.gate), s), hn::Sub(one, s), s);
      const RowVector of_gate = hn::Mul(hn::Mul(out, hn::Add(at.up, one)), slope),
                      of_up = hn::Mul(out, hn::Mul(at.gate, s));
      lanes.store(hn::IfThenElseZero(at.gate_moves, of_gate), dgate + i);
      lanes.store(hn::IfThenElseZero(at.up_moves, of_up), dup + i);
    });
  }
}

}  // namespace hone::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"

namespace hone {
namespace {

HWY_EXPORT(clamped_glu_rows);
HWY_EXPORT(clamped_glu_gradient_rows);

constexpr int64_t rows_per_piece = 16;

void forward(Context&, Tensor y, Tensor gate_up, ClampedGlu rule) {
  const int64_t rows = y.dim(0), dim = y.dim(1);
  check_shape(clamped_glu_forward, "y", y, {rows, dim});
  check_shape(clamped_glu_forward, "gate_up", gate_up, {rows, 2 * dim});
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(clamped_glu_rows)(y, gate_up, rule, begin, end);
  });
}

void backward(Context&, Tensor dgate_up, Tensor dy, Tensor gate_up, ClampedGlu rule) {
  const int64_t rows = dy.dim(0), dim = dy.dim(1);
  check_shape(clamped_glu_backward, "dy", dy, {rows, dim});
  check_shape(clamped_glu_backward, "gate_up", gate_up, {rows, 2 * dim});
  check_shape(clamped_glu_backward, "dgate_up", dgate_up, {rows, 2 * dim});
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(clamped_glu_gradient_rows)(dgate_up, dy, gate_up, rule, begin, end);
  });
}

[[maybe_unused]] const bool added = clamped_glu_forward.add({"simd", DeviceKind::cpu, forward, 10}) &&
                                    clamped_glu_backward.add({"simd", DeviceKind::cpu, backward, 10});

}  // namespace
}  // namespace hone
#endif
