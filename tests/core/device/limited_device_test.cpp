#include "core/device/limited_device.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/errors.h"

namespace hone {
namespace {

TEST(LimitedDevice, AnAllocationBeyondTheLimitIsAnErrorThatNamesTheNumbers) {
  const std::unique_ptr<Device> device = limit_memory(devices().at("cpu")(0), 1000);
  Buffer held(*device, 600);
  const std::string error = test::error_of([&] { Buffer(*device, 401); });
  for (const char* number : {"asked for 401 bytes", "600 are in use", "limits the run to 1000"})
    EXPECT_NE(error.find(number), std::string::npos) << error;
  EXPECT_EQ(device->used_bytes(), 600u);
  EXPECT_EQ(device->free_bytes(), 400u);
  const Buffer rest(*device, 400);
  EXPECT_EQ(device->peak_bytes(), 1000u);
  EXPECT_EQ(device->free_bytes(), 0u);
}

TEST(LimitedDevice, FreedMemoryMayBeTakenAgain) {
  const std::unique_ptr<Device> device = limit_memory(devices().at("cpu")(0), 1000);
  for (int i = 0; i < 10; ++i) EXPECT_NO_THROW(Buffer(*device, 900));
  Arena arena(*device, 100);
  arena.reserve(300);
  arena.reserve(800);  // frees the smaller block first
  EXPECT_EQ(device->used_bytes(), 800u);
  EXPECT_EQ(device->peak_bytes(), 900u);
}

TEST(LimitedDevice, HostMemoryIsNotLimited) {
  const std::unique_ptr<Device> device = limit_memory(devices().at("cpu")(0), 10);
  EXPECT_NO_THROW(Buffer(*device, 1000, MemoryKind::pinned));
}

// Two threads never get the last bytes both.
TEST(LimitedDevice, ThreadsShareOneLimit) {
  const std::unique_ptr<Device> device = limit_memory(devices().at("cpu")(0), 1000);
  std::vector<std::thread> threads;
  std::atomic<int> refused{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        try {
          const Buffer one(*device, 300), two(*device, 300);
        } catch (const Error&) {  // others have it
          ++refused;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(device->peak_bytes(), 1000u);
  EXPECT_EQ(device->used_bytes(), 0u);
  EXPECT_EQ(device->free_bytes(), 1000u);
}

TEST(LimitedDevice, ComputesAsTheDeviceBelow) {
  const std::unique_ptr<Device> plain = devices().at("cpu")(0), device = limit_memory(devices().at("cpu")(0), 1 << 20);
  EXPECT_EQ(device->kind(), plain->kind());
  EXPECT_EQ(device->description(), plain->description());
  Context context(*device);
  const Tensor x = context.scratch().take(DType::f32, {4});
  context.zero(x);
  EXPECT_EQ(x.ptr<float>()[3], 0.0f);
}

}  // namespace
}  // namespace hone
