#include "core/device/buffer_pool.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(BufferPool, FreedBuffersOfTheSameSizeAreReused) {
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  BufferPool spare(*device, MemoryKind::device);
  std::shared_ptr<Buffer> one = spare.take(100), two = spare.take(100);
  const void* const first = one->data();
  EXPECT_NE(two->data(), first);
  EXPECT_EQ(device->used_bytes(), 200u);
  one.reset();
  EXPECT_NE(spare.take(101)->data(), first);
  one = spare.take(100);
  EXPECT_EQ(one->data(), first);
  EXPECT_EQ(one->size(), 100u);
  EXPECT_EQ(device->used_bytes(), 301u);
}

TEST(BufferPool, KeepsTheTwoBuffersFreedLast) {
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  BufferPool spare(*device, MemoryKind::device);
  {
    std::vector<std::shared_ptr<Buffer>> many;
    for (int i = 0; i < 5; ++i) many.push_back(spare.take(100));
    EXPECT_EQ(device->used_bytes(), 500u);
  }
  EXPECT_EQ(device->used_bytes(), 200u);
  for (int i = 0; i < 2; ++i) spare.take(50 + i);
  EXPECT_EQ(device->used_bytes(), 101u);
}

TEST(BufferPool, BuffersMayOutliveTheirPool) {
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  std::shared_ptr<Buffer> held;
  {
    BufferPool spare(*device, MemoryKind::device);
    held = spare.take(100);
    spare.take(50);
  }
  EXPECT_EQ(device->used_bytes(), 150u);
  held.reset();
  EXPECT_EQ(device->used_bytes(), 0u);
}

}  // namespace
}  // namespace hone
