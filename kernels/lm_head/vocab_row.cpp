// The one definition of log_sum_exp_chunk and of the passes over a row, with SIMD by Google Highway. Without fused
// multiply-add it runs one lane at a time, with the same bits.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lm_head/vocab_row.cpp"
#include "kernels/lm_head/vocab_row.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/features.h"
#include "kernels/lm_head/logsumexp.h"

HWY_BEFORE_NAMESPACE();
namespace hone {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;

// Calls visit(first, inside, masked) for each vector of [0, count): all lanes, or only those `inside` at the end.
template <class Visit>
HWY_ATTR HWY_INLINE void for_each_vector(int64_t count, Visit visit) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += lanes) visit(i, hn::FirstN(d, static_cast<size_t>(std::min(lanes, count - i))));
}

}  // namespace

LogSumExp chunk(const float* logits, int64_t count, float inv_temperature) {
  const D d;
  constexpr int64_t lanes = 16, width = hn::MaxLanes(D());
  const V factor = hn::Set(d, inv_temperature), minus_infinity = hn::Set(d, -std::numeric_limits<float>::infinity());
  V max = minus_infinity;
  for_each_vector(count, [&](int64_t i, auto inside) HWY_ATTR {
    max = hn::Max(max, hn::IfThenElse(inside, hn::Mul(hn::MaskedLoad(inside, d, logits + i), factor), minus_infinity));
  });
  LogSumExp out;
  out.max = hn::GetLane(hn::MaxOfLanes(d, max));

  const V origin = hn::Set(d, out.max == -std::numeric_limits<float>::infinity() ? 0 : out.max),
          smallest = hn::Set(d, exp_constants::smallest);
  V sums[lanes / width], weights[lanes / width];
  for (V& x : sums) x = hn::Zero(d);
  for (V& x : weights) x = hn::Zero(d);
  for_each_vector(count, [&](int64_t i, auto inside) HWY_ATTR {
    V& sum = sums[i / width % (lanes / width)];
    V& weight = weights[i / width % (lanes / width)];
    const V z = hn::Sub(hn::Mul(hn::MaskedLoad(inside, d, logits + i), factor), origin),
            e = hn::IfThenElseZero(inside, exp_f32(d, z));
    sum = hn::Add(sum, e);
    weight = hn::MulAdd(hn::Max(z, smallest), e, weight);
  });
  alignas(64) float sum[lanes], weighted[lanes];
  for (int64_t i = 0; i < lanes / width; ++i) {
    hn::Store(sums[i], d, sum + i * width);
    hn::Store(weights[i], d, weighted + i * width);
  }
  for (int64_t half = lanes / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) {
      sum[i] += sum[i + half];
      weighted[i] += weighted[i + half];
    }
  out.sum = sum[0];
  out.weighted = weighted[0];
  return out;
}

void gradient(float* logits, int64_t count, const RowGradient& g) {
  const D d;
  const V factor = hn::Set(d, g.inv_temperature), lse = hn::Set(d, g.lse), entropy = hn::Set(d, g.entropy),
          smallest = hn::Set(d, exp_constants::smallest);
  const V base = hn::Set(d, g.dlse - g.dlogp), dentropy = hn::Set(d, g.dentropy);
  for_each_vector(count, [&](int64_t i, auto inside) HWY_ATTR {
    const V log_p = hn::Sub(hn::Mul(hn::MaskedLoad(inside, d, logits + i), factor), lse), p = exp_f32(d, log_p);
    const V dz = hn::Mul(p, hn::NegMulAdd(dentropy, hn::Add(hn::Max(log_p, smallest), entropy), base));
    hn::BlendedStore(hn::Mul(dz, factor), inside, d, logits + i);
  });
  logits[g.target] += g.dlogp * g.inv_temperature;
}

void weights(float* out, const float* logits, int64_t count, float inv_temperature, float max) {
  const D d;
  const V factor = hn::Set(d, inv_temperature), origin = hn::Set(d, max);
  for_each_vector(count, [&](int64_t i, auto inside) HWY_ATTR {
    hn::BlendedStore(exp_f32(d, hn::Sub(hn::Mul(hn::MaskedLoad(inside, d, logits + i), factor), origin)), inside, d,
                     out + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace hone
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hone {

HWY_EXPORT(chunk);
HWY_EXPORT(gradient);
HWY_EXPORT(weights);

LogSumExp log_sum_exp_chunk(const float* logits, int64_t count, float inv_temperature) {
  return has_fused_multiply_add() ? HWY_DYNAMIC_DISPATCH(chunk)(logits, count, inv_temperature)
                                  : log_sum_exp_chunk_specification(logits, count, inv_temperature);
}
void head_row_gradient(float* logits, int64_t count, const RowGradient& g) {
  HWY_DYNAMIC_DISPATCH(gradient)(logits, count, g);
}
void head_row_weights(float* out, const float* logits, int64_t count, float inv_temperature, float max) {
  HWY_DYNAMIC_DISPATCH(weights)(out, logits, count, inv_temperature, max);
}

}  // namespace hone
#endif
