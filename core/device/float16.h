#pragma once
// IEEE half precision as stored. Arithmetic is in float.
#include <cmath>
#include <cstdint>
#include <cstring>

namespace hone {

// IEEE binary16.
struct f16 {
  uint16_t bits = 0;
};

inline float to_float(f16 x) {
  const uint32_t exponent = (x.bits >> 10) & 31u, fraction = x.bits & 0x3ffu;
  float magnitude;
  if (exponent == 0) {
    magnitude = static_cast<float>(fraction) * 0x1p-24f;
  } else {
    const uint32_t bits = (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
    std::memcpy(&magnitude, &bits, 4);
  }
  return x.bits & 0x8000u ? -magnitude : magnitude;
}

// Rounds to nearest even. A magnitude above 65519 becomes infinite; NaN stays NaN.
inline f16 to_f16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  bits &= 0x7fffffffu;
  uint32_t out;
  if (bits > 0x7f800000u)
    out = 0x7e00u;
  else if (bits >= 0x477ff000u)
    out = 0x7c00u;
  else if (bits < 0x38800000u)
    out = static_cast<uint32_t>(std::nearbyintf(std::fabs(x) * 0x1p24f));  // subnormal: a multiple of 2^-24
  else
    out = (bits - 0x38000000u + 0xfffu + ((bits >> 13) & 1u)) >> 13;
  return {static_cast<uint16_t>(sign | out)};
}

}  // namespace hone
