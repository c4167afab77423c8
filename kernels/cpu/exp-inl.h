// The vector form of exp_f32 (kernels/cpu/exp.h), for bodies that Highway compiles once for each instruction set. The
// same operations in the same order give the same bits on processors with fused multiply-add.
#if defined(HONE_KERNELS_EXP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_EXP_INL_H
#undef HONE_KERNELS_EXP_INL_H
#else
#define HONE_KERNELS_EXP_INL_H
#endif

#include <hwy/highway.h>

#include "kernels/cpu/exp.h"

HWY_BEFORE_NAMESPACE();
namespace hone::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_f32(D d, V x) {
  namespace c = exp_constants;
  const auto underflows = hn::Lt(x, hn::Set(d, c::smallest));
  x = hn::IfThenElse(hn::Gt(x, hn::Set(d, c::largest)), hn::Set(d, c::largest), x);  // unlike Min, NaN stays NaN
  const V n = hn::Round(hn::Mul(x, hn::Set(d, c::log2_e)));
  const V r = hn::NegMulAdd(n, hn::Set(d, c::ln2_low), hn::NegMulAdd(n, hn::Set(d, c::ln2_high), x));
  V p = hn::Set(d, c::taylor[0]);
#pragma GCC unroll 5
  for (int i = 1; i < 6; ++i) p = hn::MulAdd(p, r, hn::Set(d, c::taylor[i]));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const hn::RebindToSigned<D> di;
  const auto exponent = hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(exponent));
  return hn::IfThenElse(underflows, hn::Zero(d), hn::Mul(p, power));
}

}  // namespace hone::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
