// The activations on the CPU with SIMD (Google Highway); GELU with erf is left to the specification.
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

// The activation at x and its derivative.
struct Point {
  RowVector value, slope;
};

struct Silu {
  static HWY_INLINE Point at(RowVector x) {
    const RowVector s = sigmoid(x);
    return {hn::Mul(x, s), gate_gradient(s, x)};
  }
};

// 0.5 * (1 + tanh(a)) = sigmoid(2 a), so gelu(x) = x * sigmoid(x * (linear + cubic * x^2)).
struct GeluTanh {
  static constexpr float linear = 1.5957691216f, cubic = 1.5957691216f * 0.044715f;  // linear = 2 sqrt(2 / pi)
  static HWY_INLINE Point at(RowVector x) {
    const RowTag d;
    const RowVector square = hn::Mul(x, x);
    const RowVector s = sigmoid(hn::Mul(x, hn::MulAdd(hn::Set(d, cubic), square, hn::Set(d, linear))));
    const RowVector slope = hn::Mul(x, hn::MulAdd(hn::Set(d, 3 * cubic), square, hn::Set(d, linear)));
    return {hn::Mul(x, s), gate_gradient(s, slope)};
  }
};

struct Relu {
  static HWY_INLINE Point at(RowVector x) {
    const RowTag d;
    const RowVector zero = hn::Zero(d);
    const auto negative = hn::Lt(x, zero), positive = hn::Gt(x, zero);
    return {hn::IfThenElse(negative, zero, x), hn::IfThenElseZero(positive, hn::Set(d, 1.0f))};
  }
};

struct Relu2 {
  static HWY_INLINE Point at(RowVector x) {
    const RowVector value = Relu::at(x).value;
    return {hn::Mul(value, value), hn::IfThenElseZero(hn::Gt(x, hn::Zero(RowTag())), hn::Add(x, x))};
  }
};

template <class Visit>
HWY_INLINE void with_kind(Activation kind, Visit visit) {
  switch (kind) {
    case Activation::silu:
      return visit(Silu());
    case Activation::gelu_tanh:
      return visit(GeluTanh());
    case Activation::relu:
      return visit(Relu());
    default:
      return visit(Relu2());
  }
}

template <class A>
void glu_rows_of(A, Tensor y, Tensor gate_up, int64_t begin, int64_t end) {
  const int64_t dim = y.dim(1);
  for (int64_t r = begin; r < end; ++r) {
    const float *gate = gate_up.row<float>(r), *up = gate + dim;
    float* out = y.row<float>(r);
    for_each_vector(dim, [&](int64_t i, auto lanes) {
      lanes.store(hn::Mul(A::at(lanes.load(gate + i)).value, lanes.load(up + i)), out + i);
    });
  }
}
void glu_rows(Tensor y, Tensor gate_up, Activation kind, int64_t begin, int64_t end) {
  with_kind(kind, [&](auto activation) { glu_rows_of(activation, y, gate_up, begin, end); });
}

template <class A>
void glu_gradient_rows_of(A, Tensor dgate_up, Tensor y, Tensor dy, Tensor gate_up, int64_t begin, int64_t end) {
  const int64_t dim = dy.dim(1);
  for (int64_t r = begin; r < end; ++r) {
    const float *gate = gate_up.row<float>(r), *up = gate + dim, *grad = dy.row<float>(r);
    float *dgate = dgate_up.row<float>(r), *dup = dgate + dim, *again = y ? y.row<float>(r) : nullptr;
    for_each_vector(dim, [&](int64_t i, auto lanes) {
      const Point point = A::at(lanes.load(gate + i));
      const RowVector out = lanes.load(grad + i), u = lanes.load(up + i);
      lanes.store(hn::Mul(hn::Mul(out, u), point.slope), dgate + i);
      lanes.store(hn::Mul(out, point.value), dup + i);
      if (again) lanes.store(hn::Mul(point.value, u), again + i);
    });
  }
}
void glu_gradient_rows(Tensor dgate_up, Tensor y, Tensor dy, Tensor gate_up, Activation kind, int64_t begin,
                       int64_t end) {
  with_kind(kind, [&](auto activation) { glu_gradient_rows_of(activation, dgate_up, y, dy, gate_up, begin, end); });
}

template <class A>
void activation_rows_of(A, Tensor y, Tensor x, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r)
    for_each_vector(x.dim(1), [in = x.row<float>(r), out = y.row<float>(r)](int64_t i, auto lanes) {
      lanes.store(A::at(lanes.load(in + i)).value, out + i);
    });
}
void activation_rows(Tensor y, Tensor x, Activation kind, int64_t begin, int64_t end) {
  with_kind(kind, [&](auto activation) { activation_rows_of(activation, y, x, begin, end); });
}

template <class A>
void activation_gradient_rows_of(A, Tensor dx, Tensor dy, Tensor x, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r)
    for_each_vector(x.dim(1),
                    [in = x.row<float>(r), grad = dy.row<float>(r), out = dx.row<float>(r)](int64_t i, auto lanes) {
                      lanes.store(hn::Mul(lanes.load(grad + i), A::at(lanes.load(in + i)).slope), out + i);
                    });
}
void activation_gradient_rows(Tensor dx, Tensor dy, Tensor x, Activation kind, int64_t begin, int64_t end) {
  with_kind(kind, [&](auto activation) { activation_gradient_rows_of(activation, dx, dy, x, begin, end); });
}

}  // namespace hone::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"

namespace hone {
namespace {

HWY_EXPORT(glu_rows);
HWY_EXPORT(glu_gradient_rows);
HWY_EXPORT(activation_rows);
HWY_EXPORT(activation_gradient_rows);

constexpr int64_t rows_per_piece = 8;

void gated(Context&, Tensor y, Tensor gate_up, Activation kind) {
  const int64_t rows = y.dim(0), dim = y.dim(1);
  check_shape(glu_forward, "y", y, {rows, dim});
  check_shape(glu_forward, "gate_up", gate_up, {rows, 2 * dim});
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(glu_rows)(y, gate_up, kind, begin, end);
  });
}

void gated_gradient(Context&, Tensor dgate_up, Tensor y, Tensor dy, Tensor gate_up, Activation kind) {
  const int64_t rows = dy.dim(0), dim = dy.dim(1);
  check_shape(glu_backward, "dy", dy, {rows, dim});
  check_shape(glu_backward, "gate_up", gate_up, {rows, 2 * dim});
  check_shape(glu_backward, "dgate_up", dgate_up, {rows, 2 * dim});
  check_optional(glu_backward, "y", y, {rows, dim});
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(glu_gradient_rows)(dgate_up, y, dy, gate_up, kind, begin, end);
  });
}

void plain(Context&, Tensor y, Tensor x, Activation kind) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(activation_forward, "x", x, {rows, dim});
  check_shape(activation_forward, "y", y, {rows, dim});
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(activation_rows)(y, x, kind, begin, end);
  });
}

void plain_gradient(Context&, Tensor dx, Tensor dy, Tensor x, Activation kind) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(activation_backward, "x", x, {rows, dim});
  check_shape(activation_backward, "dy", dy, {rows, dim});
  check_shape(activation_backward, "dx", dx, {rows, dim});
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(activation_gradient_rows)(dx, dy, x, kind, begin, end);
  });
}

bool gated_supports(const Tensor&, const Tensor&, const Activation& kind) { return kind != Activation::gelu; }
bool gated_gradient_supports(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Activation& kind) {
  return kind != Activation::gelu;
}
bool plain_gradient_supports(const Tensor&, const Tensor&, const Tensor&, const Activation& kind) {
  return kind != Activation::gelu;
}

[[maybe_unused]] const bool added =
    glu_forward.add({"simd", DeviceKind::cpu, gated, 10, gated_supports}) &&
    glu_backward.add({"simd", DeviceKind::cpu, gated_gradient, 10, gated_gradient_supports}) &&
    activation_forward.add({"simd", DeviceKind::cpu, plain, 10, gated_supports}) &&
    activation_backward.add({"simd", DeviceKind::cpu, plain_gradient, 10, plain_gradient_supports});

}  // namespace
}  // namespace hone
#endif
