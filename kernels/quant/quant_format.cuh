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
  // Rounds to nearest, ties to even; larger magnitudes become 448. 8.9 and newer have an instruction.
  static __device__ uint8_t encode(float x) {
#if __CUDA_ARCH__ >= 890
    uint16_t both;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(0.0f), "f"(x));
    return static_cast<uint8_t>(both);
#else
    constexpr uint32_t infinity = 0x7f800000u, least_normal = 0x3c800000u, saturated = 0x43e00000u;  // 2^-6, 448
    const uint32_t bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80;
    if (magnitude > infinity) return 0x7f;
    if (magnitude >= saturated) return static_cast<uint8_t>(sign | 0x7e);
    if (magnitude < least_normal)  // multiples of 2^-9; 8 of them are the least normal number
      return static_cast<uint8_t>(sign | static_cast<uint32_t>(__float2int_rn(fabsf(x) * 512)));
    // Keep three bits of the fraction; the exponent's bias falls from 127 to 7.
    const uint32_t rounded = magnitude + 0x7ffff + (magnitude >> 20 & 1);
    return static_cast<uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
#endif
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

__device__ inline uint32_t load_two_bytes(uint32_t from) {
  uint16_t out;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(out) : "r"(from) : "memory");
  return out;
}
// Loads a lane's part of 16 rows of w by 16 along K as an A operand of bf16. `row`: address of its row lane / 4 at
// these 16 bytes. `below`: distance of its row lane / 4 + 8.
template <class Format>
__device__ inline void load_left(uint32_t* a, uint32_t row, uint32_t below, uint32_t lane) {
  const uint32_t from = row + lane % 4 * 2;
  a[0] = Format::decode(load_two_bytes(from));
  a[1] = Format::decode(load_two_bytes(from + below));
  a[2] = Format::decode(load_two_bytes(from + 8));
  a[3] = Format::decode(load_two_bytes(from + below + 8));
}

}  // namespace hone
