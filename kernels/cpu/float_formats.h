#pragma once
// Storage formats of the CPU bodies. Arithmetic is done in float.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/device/float16.h"

namespace hone {

// FP8 e4m3 (Micikevicius et al. 2022): 4 bits of exponent, 3 of fraction, no infinity.
struct e4m3 {
  static constexpr float largest = 448;
  uint8_t bits = 0;
};

inline float to_float(e4m3 x) {
  const uint32_t exponent = (x.bits >> 3) & 15u, fraction = x.bits & 7u;
  float magnitude;
  if (exponent == 15 && fraction == 7) {
    magnitude = std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = static_cast<float>(fraction) * 0x1p-9f;
  } else {
    const uint32_t bits = (exponent + 120) << 23 | fraction << 20;
    std::memcpy(&magnitude, &bits, 4);
  }
  return x.bits & 0x80u ? -magnitude : magnitude;
}

// Rounds to nearest even. A magnitude above 448 becomes 448; NaN stays NaN.
inline e4m3 to_e4m3(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const uint32_t sign = (bits >> 24) & 0x80u;
  bits &= 0x7fffffffu;
  uint32_t out;
  if (bits > 0x7f800000u)
    out = 0x7fu;
  else if (bits < 0x3c800000u)
    out = static_cast<uint32_t>(std::nearbyintf(std::fabs(x) * 0x1p9f));  // below 2^-6: a multiple of 2^-9
  else
    out = std::min((bits - 0x3c000000u + 0x7ffffu + ((bits >> 20) & 1u)) >> 20, 0x7eu);
  return {static_cast<uint8_t>(sign | out)};
}

}  // namespace hone
