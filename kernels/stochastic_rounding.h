#pragma once
// Rounding to bf16 whose mean is the number itself: what is too small to move a moment still moves it now and then. The same on every device.
#include <cstdint>
#include <cstring>

#include "core/rng.h"

namespace hone {

// The bits of a bf16 beside x: the one further from zero if the low 16 bits of `noise` carry over x's own. NaN and infinity stay what they are.
HONE_HOST_DEVICE inline uint16_t stochastic_bf16(float x, uint32_t noise) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u, nan = (bits & 0x7fffffffu) > 0x7f800000u;
  if (finite) bits += noise & 0xffffu;
  return static_cast<uint16_t>((bits >> 16) | (nan ? 0x40u : 0u));
}

}  // namespace hone
