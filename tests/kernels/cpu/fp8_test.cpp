#include <gtest/gtest.h>

#include "kernels/cpu/float_formats.h"

namespace hone::test {

TEST(Fp8, WidensAndNarrowsEveryValue) {
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const e4m3 x{static_cast<uint8_t>(bits)};
    const float wide = to_float(x);
    const uint32_t exponent = (bits >> 3) & 15, fraction = bits & 7;
    if (exponent == 15 && fraction == 7) {
      EXPECT_TRUE(std::isnan(wide) && std::isnan(to_float(to_e4m3(wide)))) << bits;
    } else {
      const double expected =
          exponent == 0 ? fraction * 0x1p-9 : std::ldexp(8 + fraction, static_cast<int>(exponent) - 10);
      EXPECT_EQ(wide, (bits & 0x80 ? -1 : 1) * expected) << bits;
      EXPECT_EQ(to_e4m3(wide).bits, bits);
    }
  }
}

TEST(Fp8, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7e; ++bits) {
    const float low = to_float(e4m3{static_cast<uint8_t>(bits)}), high = to_float(e4m3{static_cast<uint8_t>(bits + 1)}),
                tie = (low + high) / 2;
    EXPECT_EQ(to_e4m3(tie).bits, bits % 2 ? bits + 1 : bits) << bits;
    EXPECT_EQ(to_e4m3(std::nextafterf(tie, 0)).bits, bits);
    EXPECT_EQ(to_e4m3(-std::nextafterf(tie, high)).bits, 0x80 | (bits + 1));
  }
}

TEST(Fp8, BeyondTheLargestIsTheLargest) {
  for (const float x : {448.f, 460.f, 464.f, 1e9f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(to_float(to_e4m3(x)), e4m3::largest);
    EXPECT_EQ(to_float(to_e4m3(-x)), -e4m3::largest);
  }
}

}  // namespace hone::test
