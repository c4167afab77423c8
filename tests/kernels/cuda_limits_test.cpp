// Limits of CUDA devices, the choice of bodies, and the launches of all capabilities. No GPU is needed.
#include <gtest/gtest.h>

#include "kernels/cuda/body_table.h"
#include "kernels/cuda/launch_plan.h"
#include "kernels/cuda/limits.h"

namespace hone::test {
namespace {

using Lines = std::vector<std::string>;

TEST(CudaBodies, AreReadFromTheEnvironmentsValue) {
  EXPECT_EQ(cuda_bodies_of(nullptr), CudaBodies::automatic);
  EXPECT_EQ(cuda_bodies_of(""), CudaBodies::automatic);
  EXPECT_EQ(cuda_bodies_of("auto"), CudaBodies::automatic);
  EXPECT_EQ(cuda_bodies_of("portable"), CudaBodies::portable);
  try {
    cuda_bodies_of("portible");
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    for (const char* part : {"HONE_CUDA_BODIES", "portible", "\"auto\"", "\"portable\""})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(DeviceLimits, OfAnUnknownCapabilityNameTheKnownOnes) {
  try {
    DeviceLimits::of(75);
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    for (const char* part : {"7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  EXPECT_EQ(DeviceLimits::of(86).shared_per_block, 99u * 1024);
  EXPECT_EQ(DeviceLimits::of(90).shared_per_block, 227u * 1024);
  EXPECT_FALSE(DeviceLimits::of(89).dependent_launch);
  EXPECT_TRUE(DeviceLimits::of(120).dependent_launch);
}

TEST(DeviceLimits, DecideWhichBodiesRun) {
  for (const int capability : cuda_capabilities()) {
    const DeviceLimits& limits = DeviceLimits::of(capability);
    EXPECT_TRUE(cuda_body_runs("mma", limits, CudaBodies::automatic));
    EXPECT_TRUE(cuda_body_runs("mma", limits, CudaBodies::portable));
    EXPECT_EQ(cuda_body_runs("sm90", limits, CudaBodies::automatic), capability == 90);
    EXPECT_FALSE(cuda_body_runs("sm90", limits, CudaBodies::portable));
  }
  // A Hopper GPU whose driver has compiled PTX of 8.0.
  DeviceLimits from_ptx = DeviceLimits::of(90);
  from_ptx.code = 80;
  from_ptx.hopper_code = false;
  EXPECT_FALSE(cuda_body_runs("sm90", from_ptx, CudaBodies::automatic));
  EXPECT_TRUE(cuda_body_runs("mma", from_ptx, CudaBodies::automatic));
  DeviceLimits old;
  old.capability = 75;
  EXPECT_FALSE(cuda_body_runs("mma", old, CudaBodies::automatic));
}

TEST(DeviceLimits, OfTheCurrentDeviceCanBeReplaced) {
  const DeviceLimits& real = device_limits();
  EXPECT_GE(real.capability, 80);
  {
    const DeviceLimitsScope ada(DeviceLimits::of(89));
    EXPECT_EQ(device_limits().capability, 89);
    EXPECT_FALSE(runs_hopper_bodies());
    {
      const DeviceLimitsScope ampere(DeviceLimits::of(80));
      EXPECT_EQ(device_limits().capability, 80);
    }
    EXPECT_EQ(device_limits().capability, 89);
  }
  EXPECT_EQ(&device_limits(), &real);
}

TEST(BodyTable, GroupsCapabilitiesWithTheSameBodies) {
  OpBase::BodyInfo bodies[4];
  const std::pair<const char*, DeviceKind> names[] = {{"sm90", DeviceKind::cuda},
                                                      {"mma", DeviceKind::cuda},
                                                      {"plain", DeviceKind::cuda},
                                                      {"specification", DeviceKind::cpu}};
  for (size_t i = 0; i < std::size(names); ++i) {
    bodies[i].name = names[i].first;
    bodies[i].device = names[i].second;
  }
  EXPECT_EQ(cuda_body_lines(bodies, CudaBodies::automatic),
            (Lines{"8.0, 8.6, 8.9, 10.0, 12.0: mma, plain", "9.0: sm90, mma, plain"}));
  EXPECT_EQ(cuda_body_lines(bodies, CudaBodies::portable), (Lines{"8.0, 8.6, 8.9, 9.0, 10.0, 12.0: mma, plain"}));
  EXPECT_EQ(cuda_body_lines(std::span(bodies).subspan(3), CudaBodies::automatic), Lines{});
  EXPECT_EQ(cuda_bodies_for(bodies, DeviceLimits::of(90), CudaBodies::automatic), (Lines{"sm90", "mma", "plain"}));
}

TEST(BodyTable, SaysWhichBodiesADeviceRunsAndWhy) {
  DeviceLimits limits = DeviceLimits::of(90);
  limits.name = "NVIDIA H200";
  EXPECT_EQ(device_line(0, limits, CudaBodies::automatic),
            "cuda:0  NVIDIA H200, compute capability 9.0: the sm90 bodies and the portable ones");
  EXPECT_EQ(device_line(1, limits, CudaBodies::portable),
            "cuda:1  NVIDIA H200, compute capability 9.0: the portable bodies (HONE_CUDA_BODIES=portable)");
  limits.code = 80;
  limits.hopper_code = false;
  EXPECT_EQ(device_line(0, limits, CudaBodies::automatic),
            "cuda:0  NVIDIA H200, compute capability 9.0: the portable bodies (the loaded machine code is for 8.0)");
  EXPECT_EQ(bodies_text(limits, CudaBodies::portable), "the portable bodies (HONE_CUDA_BODIES=portable)");
  EXPECT_EQ(bodies_text(DeviceLimits::of(86), CudaBodies::automatic), "the portable bodies");
  limits.capability = 75;
  limits.code = 0;
  EXPECT_EQ(device_line(0, limits, CudaBodies::automatic),
            "cuda:0  NVIDIA H200, compute capability 7.5: no body runs: this build has no machine code for it");
}

// Each kernel of each portable body fits a thread block and an SM of each capability.
TEST(LaunchPlans, FitEveryCapability) {
  if (launch_plans().names().empty()) GTEST_SKIP() << "this build has no CUDA bodies";
  for (const std::string& name : launch_plans().names()) {
    for (const int capability : cuda_capabilities()) {
      const DeviceLimits& limits = DeviceLimits::of(capability);
      LaunchPlans plans;
      launch_plans().at(name)(limits, plans);
      EXPECT_FALSE(plans.all().empty()) << name;
      for (const LaunchPlan& plan : plans.all()) {
        const std::string what = concat(name, ", ", plan.name, " on ", capability_text(capability));
        const size_t bytes = plan.dynamic_bytes + plan.static_bytes;
        EXPECT_GT(plan.threads, 0) << what;
        EXPECT_LE(plan.threads, 1024) << what;
        EXPECT_LE(plan.threads, limits.threads_per_sm) << what;
        EXPECT_LE(bytes, limits.shared_per_block) << what;
        EXPECT_LE(bytes + limits.shared_reserved, limits.shared_per_sm) << what;
      }
    }
  }
}

}  // namespace
}  // namespace hone::test
