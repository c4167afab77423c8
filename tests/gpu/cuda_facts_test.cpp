// What the CUDA runtime says of this machine's GPUs, and the libraries that the CUDA build loads.
#include "core/device/cuda_facts.h"

#include "core/device/device_library.h"
#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

TEST(CudaMachine, TheRuntimeListsTheGpusThatDevicesOpen) {
  HONE_GPU_OR_SKIP();
  const std::optional<CudaFacts> facts = find_cuda();
  ASSERT_TRUE(facts);
  EXPECT_GE(facts->driver_version / 1000, facts->runtime_version / 1000);
  ASSERT_FALSE(facts->gpus.empty());
  EXPECT_GE(facts->gpus[0].major, kMinCapabilityMajor);
  EXPECT_GT(facts->gpus[0].total_bytes, size_t{1} << 30);
  EXPECT_EQ(gpu_problem(*facts, 0), "");
}

TEST(CudaMachine, AnIndexThatDoesNotExistIsAnErrorWithTheCount) {
  HONE_GPU_OR_SKIP();
  const auto count = static_cast<int>(find_cuda()->gpus.size());
  try {
    devices().at("cuda")(count);
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(concat("cuda:", count, " does not exist")), std::string::npos)
        << error.what();
  }
}

TEST(CudaMachine, TrainingFindsItsLibraries) {
  HONE_GPU_OR_SKIP();
  EXPECT_NO_THROW(require_training_libraries(*devices().at("cuda")(0)));
}

}  // namespace
}  // namespace hone::test
