#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/cpu/exp_test.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::HWY_NAMESPACE {

void exp_all(float* values, int64_t count) {  // count: a multiple of 16
  const hn::CappedTag<float, 16> d;
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d)))
    hn::StoreU(exp_f32(d, hn::LoadU(d, values + i)), d, values + i);
}

}  // namespace hone::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <vector>

namespace hone {
HWY_EXPORT(exp_all);

// Bit patterns over all floats, with infinities, NaN and subnormals.
static std::vector<float> many_floats() {
  std::vector<float> out;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 9973)
    out.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (const uint32_t bits : {0x7f800000u, 0xff800000u, 0x7fc00000u, 0x80000000u})
    out.push_back(std::bit_cast<float>(bits));
  while (out.size() % 16) out.push_back(1.0f);
  return out;
}

TEST(Exp, IsWithinTwoUnitsInTheLastPlace) {
  for (const float x : many_floats()) {
    if (!(x >= -87 && x <= 88)) continue;
    const double exact = std::exp(double{x});
    ASSERT_LE(std::fabs(exp_f32(x) - exact), 2 * 0x1p-24 * 2 * exact) << x;
  }
}

TEST(Exp, VectorsHaveTheBitsOfTheScalar) {
  const std::vector<float> inputs = many_floats();
  std::vector<float> outputs = inputs;
  HWY_DYNAMIC_DISPATCH(exp_all)(outputs.data(), static_cast<int64_t>(outputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const float expected = exp_f32(inputs[i]);
    if (std::isnan(expected))
      ASSERT_TRUE(std::isnan(outputs[i])) << inputs[i];
    else
      ASSERT_EQ(std::bit_cast<uint32_t>(outputs[i]), std::bit_cast<uint32_t>(expected)) << inputs[i];
  }
}

}  // namespace hone
#endif
