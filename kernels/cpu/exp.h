#pragma once
// e^x of the CPU bodies. The C library's exp differs between versions and has no vector form. kernels/cpu/exp-inl.h has
// the vector form: the same operations in the same order give the same bits.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace hone {

namespace exp_constants {
inline constexpr float log2_e = 1.44269504f;
inline constexpr float ln2_high = 0.693359375f,
                       ln2_low = -2.12194440e-4f;  // their sum is ln 2; high has few bits, so n * high is exact
inline constexpr float smallest = -87.0f;          // below, the result is 0
inline constexpr float largest = 88.0f;            // above, the result is exp(88)
// Taylor coefficients 1/7! to 1/2!. On |r| <= ln(2) / 2 the first omitted term is below 6e-9.
inline constexpr float taylor[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f};
}  // namespace exp_constants

// Within 2 units in the last place for -87 <= x <= 88; 0 below, NaN for NaN.
inline float exp_f32(float x) {
  using namespace exp_constants;
  if (x < smallest) return 0;
  if (std::isnan(x)) return x;
  x = std::min(x, largest);
  const float n = std::nearbyint(x * log2_e);
  const float r = std::fma(-n, ln2_low, std::fma(-n, ln2_high, x));
  float p = taylor[0];
  for (int i = 1; i < 6; ++i) p = std::fma(p, r, taylor[i]);
  p = std::fma(p, r * r, r) + 1.0f;
  const float power = std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
  return p * power;
}

}  // namespace hone
