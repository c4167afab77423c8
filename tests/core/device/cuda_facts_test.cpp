// Sentences about GPUs that cannot be used, for machines of every kind.
#include "core/device/cuda_facts.h"

#include <gtest/gtest.h>

namespace hone::test {
namespace {

const GpuFacts kH200{.name = "NVIDIA H200", .major = 9, .minor = 0, .num_sms = 132};
const GpuFacts kA100{.name = "NVIDIA A100-SXM4-40GB", .major = 8, .minor = 0, .num_sms = 108};
const GpuFacts kRtx3090{.name = "NVIDIA GeForce RTX 3090", .major = 8, .minor = 6, .num_sms = 82};
const GpuFacts kRtx5090{.name = "NVIDIA GeForce RTX 5090", .major = 12, .minor = 0, .num_sms = 170};
const GpuFacts kGtx1080{.name = "NVIDIA GeForce GTX 1080", .major = 6, .minor = 1, .num_sms = 20};

CudaFacts machine(std::vector<GpuFacts> gpus) {
  return {.architectures = "80,90a-real",
          .runtime_version = 13000,
          .driver_version = 13000,
          .driver = "580.65.06",
          .visible_devices = {},
          .error = {},
          .gpus = std::move(gpus)};
}

TEST(CudaFacts, AGoodMachineHasNoProblem) {
  const CudaFacts facts = machine({kH200, kA100, kRtx5090});
  EXPECT_EQ(cuda_problem(facts), "");
  for (const int index : {0, 1, 2}) EXPECT_EQ(gpu_problem(facts, index), "");
  EXPECT_FALSE(has_unusable_gpu(facts));
}

TEST(CudaFacts, NoDriver) {
  CudaFacts facts = machine({});
  facts.driver_version = 0;
  facts.driver = "";
  EXPECT_EQ(gpu_problem(facts, 0),
            "this machine has no NVIDIA driver (libcuda.so.1 is missing): install NVIDIA driver 580 or newer; a "
            "container needs the GPUs passed to it, with docker run --gpus all");
  EXPECT_FALSE(has_unusable_gpu(facts));
}

TEST(CudaFacts, TooOldADriver) {
  CudaFacts facts = machine({});
  facts.driver_version = 12020;
  facts.driver = "535.104.05";
  facts.error = "CUDA driver version is insufficient for CUDA runtime version";
  EXPECT_EQ(gpu_problem(facts, 0),
            "the NVIDIA driver 535.104.05 supports CUDA 12.2, and this program was built with CUDA 13.0: install "
            "NVIDIA driver 580 or newer, or build hone with CUDA 12");
  EXPECT_TRUE(has_unusable_gpu(facts));
  facts.driver = "";
  EXPECT_TRUE(gpu_problem(facts, 0).starts_with("the NVIDIA driver supports CUDA 12.2")) << gpu_problem(facts, 0);
  // A driver runs later minor versions of its own major version.
  facts = machine({kH200});
  facts.runtime_version = 13010;
  EXPECT_EQ(gpu_problem(facts, 0), "");
  facts.runtime_version = 12040;
  EXPECT_EQ(gpu_problem(facts, 0), "");
}

TEST(CudaFacts, HiddenAndMissingGpus) {
  CudaFacts facts = machine({});
  facts.error = "no CUDA-capable device is detected";
  EXPECT_EQ(gpu_problem(facts, 0),
            "the NVIDIA driver 580.65.06 finds no GPU (no CUDA-capable device is detected): nvidia-smi must list one");
  facts.visible_devices = "";
  EXPECT_EQ(gpu_problem(facts, 0),
            "CUDA_VISIBLE_DEVICES is empty, which hides every GPU: unset it, or list GPUs, such as 0 or 0,1");
  facts.visible_devices = "7";
  EXPECT_EQ(gpu_problem(facts, 0),
            "CUDA_VISIBLE_DEVICES is '7', which names no GPU of this machine: unset it, or list GPUs as nvidia-smi "
            "numbers them");
  EXPECT_FALSE(has_unusable_gpu(facts));
}

TEST(CudaFacts, AnIndexThatDoesNotExist) {
  EXPECT_EQ(gpu_problem(machine({kH200, kH200}), 3), "cuda:3 does not exist: there are 2 GPUs, cuda:0 to cuda:1");
  EXPECT_EQ(gpu_problem(machine({kH200}), 1), "cuda:1 does not exist: there is 1 GPU, cuda:0");
  CudaFacts facts = machine({kH200});
  facts.visible_devices = "5";
  EXPECT_EQ(gpu_problem(facts, 5), "cuda:5 does not exist: there is 1 GPU, cuda:0 (CUDA_VISIBLE_DEVICES is '5')");
}

TEST(CudaFacts, TooLowACapability) {
  const CudaFacts facts = machine({kGtx1080, kH200});
  EXPECT_EQ(
      gpu_problem(facts, 0),
      "cuda:0 is a NVIDIA GeForce GTX 1080 of compute capability 6.1, and the kernels need 8.0 or higher (Ampere and "
      "later)");
  EXPECT_EQ(gpu_problem(facts, 1), "");
  EXPECT_TRUE(has_unusable_gpu(facts));
}

TEST(CudaFacts, NoCodeForTheGpu) {
  CudaFacts facts = machine({kRtx3090});
  facts.architectures = "90a-real";
  EXPECT_EQ(gpu_problem(facts, 0),
            "cuda:0 is a NVIDIA GeForce RTX 3090 of compute capability 8.6, and this program has code for 90a-real "
            "alone: build it for all with ./dev build --all-archs");
}

TEST(CudaFacts, CodeRunsOnTheGpusThatNvidiaSays) {
  struct Case {
    const char* architectures;
    int major, minor;
    bool runs;
  };
  const Case cases[] = {{"80-real", 8, 0, true},
                        {"80-real", 8, 9, true},
                        {"80-real", 9, 0, false},
                        {"86-real", 8, 0, false},
                        {"80-virtual", 12, 0, true},
                        {"80-virtual", 7, 5, false},
                        {"80", 10, 0, true},
                        {"90a-real", 9, 0, true},
                        {"90a", 10, 0, false},
                        {"90a", 8, 0, false},
                        {"100f-real", 10, 3, true},
                        {"100f-real", 12, 0, false},
                        {"80-real,120-real", 12, 1, true},
                        {"80-real,120-real", 10, 0, false},
                        {"native", 8, 6, true},
                        {"", 8, 6, true}};
  for (const Case& c : cases)
    EXPECT_EQ(has_code_for(c.architectures, c.major, c.minor), c.runs)
        << c.architectures << " on " << c.major << "." << c.minor;
}

TEST(CudaFacts, WhatIsLostBesideAnH100) {
  EXPECT_EQ(lost_on(kH200), "");
  EXPECT_NE(lost_on(kRtx3090).find("TMA"), std::string::npos);
  EXPECT_EQ(lost_on(kRtx5090).find("TMA"), std::string::npos);
}

TEST(CudaFacts, ForcedPtxIsTheLikelyCauseOfAFailureInALibrary) {
  for (const char* forced : {static_cast<const char*>(nullptr), "", "0"}) EXPECT_EQ(forced_ptx_advice(forced), "");
  const std::string advice = forced_ptx_advice("1");
  for (const char* part : {": CUDA_FORCE_PTX_JIT is 1", "no PTX", "unset it", "-DCMAKE_CUDA_ARCHITECTURES=80-virtual"})
    EXPECT_NE(advice.find(part), std::string::npos) << advice;
}

TEST(CudaFacts, VersionsOfTheDriver) {
  EXPECT_EQ(driver_version_in("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC"),
            "535.104.05");
  EXPECT_EQ(driver_version_in("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build"),
            "580.65.06");
  EXPECT_EQ(driver_version_in(""), "");
  EXPECT_EQ(driver_version_in("no version"), "");
  EXPECT_EQ(cuda_version_text(13000), "13.0");
  EXPECT_EQ(cuda_version_text(12040), "12.4");
}

}  // namespace
}  // namespace hone::test
