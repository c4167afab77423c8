#pragma once
// Argument checks of the optimizer updates, weight-decay flags, and stochastic rounding.
#include <cstring>

#include "core/base/rng.h"
#include "kernels/optimizer/optimizer.h"

namespace hone {

void check_range(const OpBase& op, const ParamRange& range);
// The arguments of sum_squares and of sum_pieces.
void check_pieces(const Tensor& pieces, const Tensor& x, int64_t size);
void check_pieces(const Tensor& sum, const Tensor& pieces);
// m and v are both f32 or both bf16.
void check_moments(const ParamRange& range, const Tensor& m, const Tensor& v);
// m [count] is f32 or bf16.
void check_mean(const OpBase& op, const Tensor& m, int64_t count);

// True if element i has weight decay; reads the flag on the host.
inline bool decays(const ParamRange& range, int64_t i) {
  return !range.decays || range.decays.ptr<uint8_t>()[i / param_granule] != 0;
}

// Unbiased (stochastic) rounding to bf16, with the same bits on all devices. Updates below half an ulp are not lost.
// Returns one of the two bf16 neighbors of x as a float: the one further from zero if the low 16 bits of `noise` carry
// over x's own. Infinities and NaNs are returned as they are.
HONE_HOST_DEVICE inline float stochastic_bf16(float x, uint32_t noise) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits = (bits + (noise & 0xffffu)) & 0xffff0000u;
  float out;
  memcpy(&out, &bits, sizeof out);
  return x - x == 0 ? out : x;
}

// The noise of the element at `place` of the optimizer's list.
HONE_HOST_DEVICE inline uint32_t rounding_noise(uint64_t seed, uint64_t stream, int64_t place) {
  return philox(seed, stream, static_cast<uint64_t>(place / 4)).word[place % 4];
}

// A moment on the host, f32 or bf16; bf16 is rounded with the low half of `noise`.
inline float read_moment(const Tensor& moment, int64_t i) {
  return moment.dtype == DType::bf16 ? to_float(moment.ptr<bf16>()[i]) : moment.ptr<float>()[i];
}
inline void write_moment(const Tensor& moment, int64_t i, float x, uint32_t noise) {
  if (moment.dtype == DType::bf16)
    moment.ptr<bf16>()[i] = to_bf16(stochastic_bf16(x, noise));
  else
    moment.ptr<float>()[i] = x;
}

}  // namespace hone
