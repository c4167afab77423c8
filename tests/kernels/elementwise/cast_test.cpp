#include "kernels/elementwise/cast.h"

#include "kernels/cpu/float_formats.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_check.h"

namespace hone::test {
namespace {

// Storage of any dtype as 64-bit words, wide enough for all.
struct Bytes {
  Bytes(DType type, int64_t count)
      : words(static_cast<size_t>(count) + 1), tensor(words.data(), type, DeviceKind::cpu, {count}) {}
  std::vector<uint64_t> words;
  Tensor tensor;
};

[[maybe_unused]] const bool added = op_cases().add("cast", [] {
  const Floats x = normals({4, 101}, 1, 3, 2);
  for (const DType middle : {DType::bf16, DType::f16, DType::f64, DType::f32}) {
    Bytes stored(middle, 404);
    const Tensor kept = stored.tensor.view({4, 101});
    cast(cpu(), kept, x);
    Floats y = poisoned({4, 101}, 3);
    expect_bodies_agree(cast, {&y}, {0, 0}, y, kept);
    EXPECT_TRUE(close(y, x,
                      {middle == DType::bf16  ? 0x1p-8
                       : middle == DType::f16 ? 0x1p-11
                                              : 0,
                       1e-7}))
        << name_of(middle);
  }
}) && op_cases().add("add_into", [] {
  Floats y = normals({3, 70}, 1);
  expect_bodies_agree(add_into, {&y}, {0, 0}, y, normals({3, 70}, 2));
});

}  // namespace

TEST(Half, WidensAndNarrowsEveryValue) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const f16 x{static_cast<uint16_t>(bits)};
    const float wide = to_float(x);
    const uint32_t exponent = (bits >> 10) & 31, fraction = bits & 1023;
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(wide), fraction != 0);
      ASSERT_EQ(std::isinf(wide), fraction == 0);
    } else {
      const double expected =
          exponent == 0 ? fraction * 0x1p-24 : std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
      ASSERT_EQ(wide, (bits & 0x8000 ? -1 : 1) * expected);
    }
    if (!std::isnan(wide))
      ASSERT_EQ(to_f16(wide).bits, bits);
    else
      ASSERT_TRUE(std::isnan(to_float(to_f16(wide))));
  }
}

TEST(Half, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits + 1 < 0x7c00; ++bits) {
    const float low = to_float(f16{static_cast<uint16_t>(bits)}), high = to_float(f16{static_cast<uint16_t>(bits + 1)}),
                tie = (low + high) / 2;
    ASSERT_EQ(to_f16(tie).bits, bits % 2 ? bits + 1 : bits);
    ASSERT_EQ(to_f16(std::nextafterf(tie, 0)).bits, bits);
    ASSERT_EQ(to_f16(std::nextafterf(tie, high)).bits, bits + 1);
  }
  EXPECT_EQ(to_f16(65519.9f).bits, 0x7bff);
  EXPECT_EQ(to_f16(65520.0f).bits, 0x7c00);
}

// 1 + 2^-8 + 2^-40 lies above the tie between two bf16 values. Rounding to float first would make it the tie.
TEST(Cast, DoubleToSixteenBitsRoundsOnce) {
  std::vector<double> values = {1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-8, 1 + 0x1p-11 + 0x1p-40, -(1 + 0x1p-8 - 0x1p-40)};
  std::vector<bf16> brains(4);
  std::vector<f16> halves(4);
  cast(cpu(), Tensor(brains.data(), DType::bf16, DeviceKind::cpu, {4}), host_view<double>(values));
  cast(cpu(), Tensor(halves.data(), DType::f16, DeviceKind::cpu, {4}), host_view<double>(values));
  EXPECT_EQ(to_float(brains[0]), 1 + 0x1p-7f);
  EXPECT_EQ(to_float(brains[1]), 1);
  EXPECT_EQ(to_float(halves[2]), 1 + 0x1p-10f);
  EXPECT_EQ(to_float(brains[3]), -1);
}

TEST(Cast, RefusesIntegersAndOtherSizes) {
  EXPECT_THROW(cast(cpu(), Floats({3}), Ids({3})), Error);
  EXPECT_THROW(cast(cpu(), Floats({3}), Floats({4})), Error);
  EXPECT_THROW(add_into(cpu(), Floats({3}), Floats({4})), Error);
}

}  // namespace hone::test
