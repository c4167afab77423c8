#include "kernels/quant/quantize.h"

#include "tests/gpu/quantized_on_gpu.h"

namespace hone::test {

TEST(QuantizeRowsOnGpu, HasTheSpecificationsBits) {
  HONE_GPU_OR_SKIP();
  for (const QuantFormat format : all_quant_formats)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const auto& [N, K] :
           {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {17, 128}, {5, 1000}, {64, 4096}, {2, 14337}})
        for (const int64_t gap : {0, 8, 3}) {
          Floats w = normals({N, K}, 1, 1, gap);
          for (int64_t i = 0; i < w.size(); ++i) w[i] *= std::exp2(static_cast<float>(i / K % 9) * 4 - 16);
          w = rounded(w, dtype);
          const Quantized expected(format, w);
          const Quantized got = QuantizedOnGpu(format, OnGpu(w, dtype), gap).read();
          EXPECT_TRUE(close(got.scales, expected.scales, {0, 0})) << N << " x " << K;
          int64_t wrong = 0;
          for (int64_t i = 0; i < w.size(); ++i) wrong += got.values[i] != expected.values[i];
          EXPECT_EQ(wrong, 0) << N << " x " << K << ", gap " << gap;
        }
}

TEST(QuantizeRowsOnGpu, ZerosStayZerosAndWhatIsNotFiniteShows) {
  HONE_GPU_OR_SKIP();
  for (const QuantFormat format : all_quant_formats) {
    Floats w({3, 40});
    w[41] = std::numeric_limits<float>::infinity(), w[100] = nan_f32;
    const Quantized got = QuantizedOnGpu(format, OnGpu(w)).read();
    EXPECT_EQ(got.scales[0], 0);
    EXPECT_TRUE(std::isnan(got.scales[1]) && std::isnan(got.scales[2]));
    for (int64_t k = 0; k < 40; ++k) EXPECT_EQ(got.values[k], 0);
  }
}

}  // namespace hone::test
