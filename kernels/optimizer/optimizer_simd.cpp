// AdamW and the gradient norm on the CPU with SIMD. AdamW runs the specification's operations in its order, so the bits
// are equal.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizer/optimizer_simd.cpp"
#include <hwy/foreach_target.h>

#include <cmath>

#include "kernels/cpu/row-inl.h"
#include "kernels/optimizer/optimizer.h"

HWY_BEFORE_NAMESPACE();
namespace hone::HWY_NAMESPACE {

void adamw_range(float* value, float* m, float* v, const float* grad, float clip, AdamwStep step, int64_t count) {
  const RowTag d;
  const auto factor = [&](double x) { return hn::Set(d, static_cast<float>(x)); };
  const RowVector keep = factor(1 - double{step.learning_rate} * step.weight_decay),
                  rate = factor(double{step.learning_rate} / step.correction1);
  const RowVector rest1 = factor(1 - double{step.beta1}), beta2 = factor(step.beta2),
                  rest2 = factor(1 - double{step.beta2});
  const RowVector root = factor(std::sqrt(double{step.correction2})), eps = factor(step.eps), scale = factor(clip);
  for_each_vector(count, [&](int64_t i, auto lanes) {
    const RowVector g = hn::Mul(lanes.load(grad + i), scale), old = lanes.load(m + i);
    const RowVector first = hn::Add(old, hn::Mul(rest1, hn::Sub(g, old)));
    const RowVector second = hn::Add(hn::Mul(lanes.load(v + i), beta2), hn::Mul(hn::Mul(rest2, g), g));
    const RowVector below = hn::Add(hn::Div(hn::Sqrt(second), root), eps);
    lanes.store(first, m + i);
    lanes.store(second, v + i);
    lanes.store(hn::Sub(hn::Mul(lanes.load(value + i), keep), hn::Div(hn::Mul(rate, first), below)), value + i);
  });
}

// Element i is added to lane i mod 16; then the lanes are folded in halves. The vector width does not change the bits.
double squares_of_range(const float* x, int64_t count) {
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<float, decltype(d)> d_float;
  constexpr int64_t lanes = hn::MaxLanes(d), parts = 16 / lanes;
  hn::Vec<decltype(d)> sum[parts];
  for (auto& part : sum) part = hn::Zero(d);
  int64_t i = 0;
  for (; i + 16 <= count; i += 16)
#pragma GCC unroll 4
    for (int64_t p = 0; p < parts; ++p) {
      const auto v = hn::PromoteTo(d, hn::LoadU(d_float, x + i + p * lanes));
      sum[p] = hn::MulAdd(v, v, sum[p]);
    }
  alignas(64) double lane[16];
  for (int64_t p = 0; p < parts; ++p) hn::Store(sum[p], d, lane + p * lanes);
  for (int64_t l = 0; i < count; ++i, ++l) lane[l] = std::fma(x[i], double{x[i]}, lane[l]);
  for (int64_t half = 8; half > 0; half /= 2)
    for (int64_t l = 0; l < half; ++l) lane[l] += lane[l + half];
  return lane[0];
}

}  // namespace hone::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"
#include "kernels/optimizer/internal.h"

namespace hone {
namespace {

HWY_EXPORT(adamw_range);
HWY_EXPORT(squares_of_range);

constexpr int64_t per_piece = int64_t{1} << 14;

void squares_of_pieces(Context&, Tensor pieces, Tensor x, int64_t size) {
  check_pieces(pieces, x, size);
  parallel_for(pieces.dim(0), std::max<int64_t>(1, per_piece / size), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      pieces.ptr<double>()[p] =
          HWY_DYNAMIC_DISPATCH(squares_of_range)(x.ptr<float>() + p * size, std::min(size, x.dim(0) - p * size));
  });
}

// Updates each stretch of elements with the same weight decay setting in one call.
void adamw(Context&, const AdamwUpdate& args) {
  check_range(adamw_update, args.range);
  check_moments(args.range, args.m, args.v);
  AdamwStep kept = args.step;
  kept.weight_decay = 0;
  float *value = args.range.value.ptr<float>(), *first = args.m.ptr<float>(), *second = args.v.ptr<float>();
  parallel_for(args.range.value.dim(0), per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t from = begin, to = begin; from < end; from = to) {
      const bool decay = decays(args.range, from);
      while (to < end && decays(args.range, to) == decay) to = std::min(end, to + param_granule);
      HWY_DYNAMIC_DISPATCH(adamw_range)
      (value + from, first + from, second + from, args.range.grad.ptr<float>() + from, *args.range.clip.ptr<float>(),
       decay ? args.step : kept, to - from);
    }
    if (args.range.rounded) std::transform(value + begin, value + end, args.range.rounded.ptr<bf16>() + begin, to_bf16);
  });
}

bool f32_moments(const AdamwUpdate& args) { return args.m.dtype == DType::f32 && args.v.dtype == DType::f32; }

[[maybe_unused]] const bool added = adamw_update.add({"simd", DeviceKind::cpu, adamw, 10, f32_moments}) &&
                                    sum_squares.add({"simd", DeviceKind::cpu, squares_of_pieces, 10});

}  // namespace
}  // namespace hone
#endif
