#include "kernels/quant/quantize.h"

#include "tests/kernels/op_cases.h"
#include "tests/kernels/quant/quantized.h"

namespace hone::test {

TEST(QuantizeRows, IsWithinHalfAStepOfTheRow) {
  const int64_t N = 13, K = 331;
  Floats w = normals({N, K}, 1, 1, 5);
  for (int64_t i = 0; i < w.size(); ++i) w[i] *= std::exp2(static_cast<float>(i / K) - 6);  // rows of different size
  for (const QuantFormat format : all_quant_formats) {
    const Quantized q(format, w, 3);
    EXPECT_TRUE(q.values.gaps_intact() && q.scales.gaps_intact());
    for (int64_t i = 0; i < w.size(); ++i) {
      const float scale = q.scales[i / K], number = decoded(format, q.values[i]);
      // A step of int8 is 1. A step of e4m3 is an eighth of the number's power of two, at least 2^-9.
      const float step = format == QuantFormat::int8
                             ? 1
                             : std::max(std::exp2(std::floor(std::log2(std::fabs(w[i] / scale)))) / 8, 0x1p-9f);
      EXPECT_LE(std::fabs(number - w[i] / scale), step / 2) << i;
    }
    for (int64_t n = 0; n < N; ++n) {
      float most = 0, top = 0;
      for (int64_t k = 0; k < K; ++k)
        most = std::max(most, std::fabs(w[n * K + k])),
        top = std::max(top, std::fabs(decoded(format, q.values[n * K + k])));
      EXPECT_EQ(top, format == QuantFormat::int8 ? 127 : 448);
      EXPECT_EQ(q.scales[n], most / top);
    }
  }
}

TEST(QuantizeRows, ZerosStayZerosAndWhatIsNotFiniteShows) {
  for (const QuantFormat format : all_quant_formats) {
    Floats w({4, 3});
    w[3] = 1e-45f, w[4] = -1e-45f;
    w[6] = std::numeric_limits<float>::infinity(), w[10] = nan_f32, w[11] = 1;
    const Quantized q(format, w);
    for (int64_t n = 0; n < 2; ++n) {
      EXPECT_EQ(q.scales[n], 0) << n;
      for (int64_t k = 0; k < 3; ++k) EXPECT_EQ(q.values[n * 3 + k], 0) << n;
    }
    EXPECT_TRUE(std::isnan(q.scales[2]) && std::isnan(q.scales[3]));
  }
}

[[maybe_unused]] const bool added = op_cases().add("quantize_rows", [] {
  // The specification is the only CPU body. The tests above check its results.
  const Floats w = normals({5, 37}, 2);
  for (const QuantFormat format : all_quant_formats) {
    Quantized q(format, 5, 37);
    expect_bodies_agree(quantize_rows, {&q.scales}, {0, 0}, q, w);
  }
});

TEST(QuantizeRows, RefusesShapesThatDisagree) {
  Quantized q(QuantFormat::int8, 4, 5);
  EXPECT_THROW(quantize_rows(cpu(), q, Floats({4, 6})), Error);
  EXPECT_THROW(quantize_rows(cpu(), {q.values, Floats({5}), q.format}, Floats({4, 5})), Error);
}

}  // namespace hone::test
