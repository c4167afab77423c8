#include "train/peak_flops.h"

#include <gtest/gtest.h>

#include "tests/train/rig.h"

namespace hone::test {
namespace {

TEST(PeakFlops, KnowsDataCenterCardsByName) {
  EXPECT_EQ(bf16_peak_flops("NVIDIA H100 80GB HBM3, sm_90, 132 multiprocessors"), 989e12);
  EXPECT_EQ(bf16_peak_flops("NVIDIA H100 PCIe"), 756e12);
  EXPECT_EQ(bf16_peak_flops("NVIDIA H200"), 989e12);
  EXPECT_EQ(bf16_peak_flops("NVIDIA A100-SXM4-80GB"), 312e12);
  EXPECT_EQ(bf16_peak_flops("NVIDIA L40S"), 362e12);
  EXPECT_EQ(bf16_peak_flops("NVIDIA L4"), 121e12);
  EXPECT_EQ(bf16_peak_flops("NVIDIA GB200"), 2500e12);
  EXPECT_EQ(bf16_peak_flops("some other card"), 0);
}

TEST(PeakFlops, OfACpuIsUnknown) {
  const auto device = cpu_device();
  EXPECT_EQ(peak_flops(*device, DType::f32), 0);
  EXPECT_EQ(peak_flops(*device, DType::bf16), 0);
}

}  // namespace
}  // namespace hone::test
