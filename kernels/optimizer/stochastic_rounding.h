#pragma once
// Rounding to bf16 whose mean is the number itself: what is too small to move a moment still moves it now and then. The
// same on every device.
#include <cstdint>
#include <cstring>

#include "core/base/rng.h"

namespace hone {

// A bf16 beside x, as the float that it holds exactly: the one further from zero if the low 16 bits of `noise` carry
// over x's own. What is not finite is returned as it is, for the conversion to bf16 to keep.
HONE_HOST_DEVICE inline float stochastic_bf16(float x, uint32_t noise) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits = (bits + (noise & 0xffffu)) & 0xffff0000u;
  float out;
  memcpy(&out, &bits, sizeof out);
  return x - x == 0 ? out : x;
}

}  // namespace hone
