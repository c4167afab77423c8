#include "model/io/mxfp4.h"

#include <cmath>

namespace hone {

void decode_mxfp4(bf16* to, const uint8_t* blocks, std::span<const uint8_t> scales) {
  constexpr float numbers[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                 -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  for (const uint8_t scale : scales) {
    bf16 scaled[16];
    for (int i = 0; i < 16; ++i) scaled[i] = to_bf16(std::ldexp(numbers[i], int{scale} - 127));
    for (int64_t i = 0; i < mxfp4_group_bytes; ++i) {
      const uint8_t both = *blocks++;
      *to++ = scaled[both & 15];
      *to++ = scaled[both >> 4];
    }
  }
}

}  // namespace hone
