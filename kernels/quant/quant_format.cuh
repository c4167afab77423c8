#pragma once
// Encoding and decoding of the QuantFormats in CUDA bodies. Only .cu and .cuh files include it.
#include "kernels/cuda/cuda.cuh"
#include "kernels/quant/quantize.h"

namespace hone {

__device__ inline uint32_t take_bytes(uint32_t a, uint32_t b, uint32_t selector) { return __byte_perm(a, b, selector); }
__device__ inline __nv_bfloat162 as_pair(uint32_t bits) {
  __nv_bfloat162 out;
  memcpy(&out, &bits, 4);
  return out;
}
__device__ inline uint32_t as_bits(__nv_bfloat162 pair) {
  uint32_t out;
  memcpy(&out, &pair, 4);
  return out;
}

struct Int8Pairs {
  static constexpr float largest = 127;
  // Bytes 0 and 1 of `bytes` as two bf16, the first in the low half. 0x43 above a byte's lower seven bits is 128 plus
  // these bits. 0x43 above its sign bit alone is 128, or 256 for negative values. The difference is the value.
  static __device__ uint32_t decode(uint32_t bytes) {
    const uint32_t spread = take_bytes(bytes, 0x43434343u, 0x4140);
    return as_bits(__hsub2(as_pair(spread & 0xff7fff7fu), as_pair(spread & 0xff80ff80u)));
  }
  static __device__ uint8_t encode(float x) {
    return static_cast<uint8_t>(__float2int_rn(fminf(fmaxf(x, -largest), largest)));
  }
};

struct Fp8Pairs {
  static constexpr float largest = 448;
  // e4m3's exponent and fraction at the position of bf16's are 2^-120 times the value, for subnormal values too.
  static __device__ uint32_t decode(uint32_t bytes) { return widen(take_bytes(bytes, 0, 0x1404)); }
  // Widens the upper byte of each half; the lower bytes may hold anything.
  static __device__ uint32_t widen(uint32_t spread) {
    const uint32_t small = (spread & 0x80008000u) | ((spread >> 4) & 0x07f007f0u);
    return as_bits(__hmul2(as_pair(small), as_pair(0x7b807b80u)));
  }
  static __device__ uint8_t encode(float x) {
    uint16_t both;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(0.0f), "f"(x));
    return static_cast<uint8_t>(both);
  }
};

// A row's scale from the bits of its largest magnitude. The bits of an infinity or a NaN exceed all others.
template <class Format>
__device__ float scale_of(uint32_t most) {
  return most < 0x7f800000u ? __uint_as_float(most) / Format::largest : __uint_as_float(0x7fc00000u);
}
template <class Format>
__device__ uint8_t encode_scaled(float x, float scale) {
  return scale > 0 ? Format::encode(x / scale) : uint8_t{0};
}

// Calls body(Int8Pairs()) or body(Fp8Pairs()).
template <class Body>
void with_pairs(QuantFormat format, Body body) {
  if (format == QuantFormat::int8)
    body(Int8Pairs());
  else
    body(Fp8Pairs());
}

}  // namespace hone
