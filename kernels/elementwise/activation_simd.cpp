// The SwiGLU and GELU ops on the CPU with SIMD (Google Highway).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise/activation_simd.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/row-inl.h"
#include "kernels/elementwise/activation.h"

HWY_BEFORE_NAMESPACE();
namespace hone::HWY_NAMESPACE {

HWY_INLINE RowVector sigmoid(RowVector x) {
  const RowTag d;
  const RowVector one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exp_f32(d, hn::Neg(x))));
}
// Derivative of x * sigmoid(a(x)), with s = sigmoid(a(x)) and slope = x * a'(x).
HWY_INLINE RowVector gate_gradient(RowVector s, RowVector slope) {
  return hn::MulAdd(hn::Mul(s, hn::Sub(hn::Set(RowTag(), 1.0f), s)), slope, s);
}

void swiglu_rows(Tensor y, Tensor gate_up, int64_t begin, int64_t end) {
  const int64_t dim = y.dim(1);
  for (int64_t r = begin; r < end; ++r) {
    const float *gate = gate_up.row<float>(r), *up = gate + dim;
    float* out = y.row<float>(r);
    for_each_vector(dim, [&](int64_t i, auto lanes) {
      const RowVector g = lanes.load(gate + i);
      lanes.store(hn::Mul(hn::Mul(g, sigmoid(g)), lanes.load(up + i)), out + i);
    });
  }
}

void swiglu_gradient_rows(Tensor dgate_up, Tensor y, Tensor dy, Tensor gate_up, int64_t begin, int64_t end) {
  const int64_t dim = dy.dim(1);
  for (int64_t r = begin; r < end; ++r) {
    const float *gate = gate_up.row<float>(r), *up = gate + dim, *grad = dy.row<float>(r);
    float *dgate = dgate_up.row<float>(r), *dup = dgate + dim, *again = y ? y.row<float>(r) : nullptr;
    for_each_vector(dim, [&](int64_t i, auto lanes) {
      const RowVector g = lanes.load(gate + i), s = sigmoid(g), out = lanes.load(grad + i), u = lanes.load(up + i);
      lanes.store(hn::Mul(hn::Mul(out, u), gate_gradient(s, g)), dgate + i);
      lanes.store(hn::Mul(out, hn::Mul(g, s)), dup + i);
      if (again) lanes.store(hn::Mul(hn::Mul(g, s), u), again + i);
    });
  }
}

// 0.5 * (1 + tanh(a)) = sigmoid(2 a), so gelu(x) = x * sigmoid(x * (linear + cubic * x^2)).
constexpr float gelu_linear = 1.5957691216f, gelu_cubic = 1.5957691216f * 0.044715f;  // gelu_linear = 2 sqrt(2 / pi)

void gelu_rows(Tensor y, Tensor x, int64_t begin, int64_t end) {
  const RowTag d;
  for (int64_t r = begin; r < end; ++r)
    for_each_vector(x.dim(1), [&, in = x.row<float>(r), out = y.row<float>(r)](int64_t i, auto lanes) {
      const RowVector v = lanes.load(in + i);
      const RowVector inner = hn::Mul(v, hn::MulAdd(hn::Set(d, gelu_cubic), hn::Mul(v, v), hn::Set(d, gelu_linear)));
      lanes.store(hn::Mul(v, sigmoid(inner)), out + i);
    });
}

void gelu_gradient_rows(Tensor dx, Tensor dy, Tensor x, int64_t begin, int64_t end) {
  const RowTag d;
  for (int64_t r = begin; r < end; ++r)
    for_each_vector(
        x.dim(1), [&, in = x.row<float>(r), grad = dy.row<float>(r), out = dx.row<float>(r)](int64_t i, auto lanes) {
          const RowVector v = lanes.load(in + i), square = hn::Mul(v, v);
          const RowVector inner = hn::Mul(v, hn::MulAdd(hn::Set(d, gelu_cubic), square, hn::Set(d, gelu_linear)));
          const RowVector slope = hn::Mul(v, hn::MulAdd(hn::Set(d, 3 * gelu_cubic), square, hn::Set(d, gelu_linear)));
          lanes.store(hn::Mul(lanes.load(grad + i), gate_gradient(sigmoid(inner), slope)), out + i);
        });
}

}  // namespace hone::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"

namespace hone {
namespace {

HWY_EXPORT(swiglu_rows);
HWY_EXPORT(swiglu_gradient_rows);
HWY_EXPORT(gelu_rows);
HWY_EXPORT(gelu_gradient_rows);

constexpr int64_t rows_per_piece = 8;

void swiglu(Context&, Tensor y, Tensor gate_up) {
  const int64_t rows = y.dim(0), dim = y.dim(1);
  check_shape(swiglu_forward, "y", y, {rows, dim});
  check_shape(swiglu_forward, "gate_up", gate_up, {rows, 2 * dim});
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(swiglu_rows)(y, gate_up, begin, end);
  });
}

void swiglu_gradient(Context&, Tensor dgate_up, Tensor y, Tensor dy, Tensor gate_up) {
  const int64_t rows = dy.dim(0), dim = dy.dim(1);
  check_shape(swiglu_backward, "dy", dy, {rows, dim});
  check_shape(swiglu_backward, "gate_up", gate_up, {rows, 2 * dim});
  check_shape(swiglu_backward, "dgate_up", dgate_up, {rows, 2 * dim});
  check_optional(swiglu_backward, "y", y, {rows, dim});
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(swiglu_gradient_rows)(dgate_up, y, dy, gate_up, begin, end);
  });
}

void gelu(Context&, Tensor y, Tensor x) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(gelu_forward, "x", x, {rows, dim});
  check_shape(gelu_forward, "y", y, {rows, dim});
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(gelu_rows)(y, x, begin, end);
  });
}

void gelu_gradient(Context&, Tensor dx, Tensor dy, Tensor x) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(gelu_backward, "x", x, {rows, dim});
  check_shape(gelu_backward, "dy", dy, {rows, dim});
  check_shape(gelu_backward, "dx", dx, {rows, dim});
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(gelu_gradient_rows)(dx, dy, x, begin, end);
  });
}

[[maybe_unused]] const bool added = swiglu_forward.add({"simd", DeviceKind::cpu, swiglu, 10}) &&
                                    swiglu_backward.add({"simd", DeviceKind::cpu, swiglu_gradient, 10}) &&
                                    gelu_forward.add({"simd", DeviceKind::cpu, gelu, 10}) &&
                                    gelu_backward.add({"simd", DeviceKind::cpu, gelu_gradient, 10});

}  // namespace
}  // namespace hone
#endif
