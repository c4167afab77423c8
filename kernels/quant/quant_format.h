#pragma once
// Encoding of quantized numbers on the host.
#include "kernels/cpu/float_formats.h"
#include "kernels/quant/quantize.h"

namespace hone {

struct Int8Numbers {
  static constexpr float largest = 127;
  // |x| exceeds `largest` by rounding at most.
  static uint8_t encode(float x) {
    return static_cast<uint8_t>(static_cast<int8_t>(std::nearbyintf(std::clamp(x, -largest, largest))));
  }
  static float decode(uint8_t bits) { return static_cast<float>(static_cast<int8_t>(bits)); }
};

struct Fp8Numbers {
  static constexpr float largest = e4m3::largest;
  static uint8_t encode(float x) { return to_e4m3(x).bits; }
  static float decode(uint8_t bits) { return to_float(e4m3{bits}); }
};

// Writes the numbers of a row and returns its scale, as quantize_rows does.
template <class Format>
float encode_row(uint8_t* to, const float* from, int64_t count) {
  // The bits of the largest magnitude. Bits rise with the magnitude; those of an infinity or NaN are the largest.
  uint32_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, 4);
    most = std::max(most, bits & 0x7fffffffu);
  }
  float scale;
  std::memcpy(&scale, &most, 4);
  scale = std::isfinite(scale) ? scale / Format::largest : std::numeric_limits<float>::quiet_NaN();
  for (int64_t i = 0; i < count; ++i) to[i] = scale > 0 ? Format::encode(from[i] / scale) : uint8_t{0};
  return scale;
}

// Calls body(Int8Numbers()) or body(Fp8Numbers()).
template <class Body>
void with_format(QuantFormat format, Body body) {
  if (format == QuantFormat::int8)
    body(Int8Numbers());
  else
    body(Fp8Numbers());
}

}  // namespace hone
