#include "core/device/device.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

namespace hone {
namespace {

std::unique_ptr<Device> cpu() { return devices().at("cpu")(0); }

TEST(Arena, StacksAndFrees) {
  const auto device = cpu();
  Arena arena(*device, 1024);
  const Tensor a = arena.take(DType::f32, {3, 5});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data) % 256, 0u);
  const Arena::Mark mark = arena.mark();
  const Tensor b = arena.take(DType::bf16, {7});
  EXPECT_NE(a.data, b.data);
  arena.release(mark);
  EXPECT_EQ(arena.take(DType::u8, {1}).data, b.data);
}

TEST(Arena, FreedBlocksComeBackAtTheirPeak) {
  const auto device = cpu();
  Arena arena(*device, 1024);
  arena.take(DType::f32, {3000});
  const Arena::Mark before = arena.mark();
  const size_t peak = arena.peak_bytes(), others = device->used_bytes() - arena.capacity_bytes();
  arena.free();
  EXPECT_EQ(arena.capacity_bytes(), 0u);
  EXPECT_EQ(device->used_bytes(), others);
  EXPECT_EQ(arena.used_bytes(), 0u);
  EXPECT_NE(arena.mark(), before);
  EXPECT_EQ(arena.peak_bytes(), peak);
  arena.reserve(0);
  EXPECT_EQ(arena.capacity_bytes(), peak);
  arena.take(DType::f32, {3000});
  EXPECT_EQ(arena.capacity_bytes(), peak);
}

TEST(Arena, TheSteadyStateOfALoopAllocatesNothing) {
  const auto device = cpu();
  Arena arena(*device, 1024);
  const auto round = [&] {
    const Arena::Mark mark = arena.mark();
    for (int64_t i = 1; i <= 20; ++i) {
      const Tensor x = arena.take(DType::f32, {i, 100});
      for (float& value : x.as<float>()) value = static_cast<float>(i);
    }
    arena.release(mark);
    return arena.capacity_bytes();
  };
  const size_t capacity = round();
  EXPECT_EQ(round(), capacity);
  EXPECT_EQ(round(), capacity);
  EXPECT_EQ(arena.used_bytes(), 0u);
  EXPECT_LE(arena.peak_bytes(), capacity);
}

TEST(Arena, MetaCountsWhatTheCpuWouldTake) {
  const auto real = cpu(), meta = devices().at("meta")(0);
  Arena a(*real), b(*meta);
  for (Arena* arena : {&a, &b}) {
    const Arena::Mark mark = arena->mark();
    arena->take(DType::f32, {1000, 300});
    arena->take(DType::i64, {13});
    arena->release(mark);
    arena->take(DType::f64, {64});
  }
  EXPECT_EQ(a.peak_bytes(), b.peak_bytes());
  EXPECT_EQ(a.used_bytes(), b.used_bytes());
  EXPECT_EQ(b.take(DType::f32, {4}).data, nullptr);
}

TEST(Context, CopiesAndZeroes) {
  const auto device = cpu();
  Context context(*device);
  std::vector<float> values(12);
  std::iota(values.begin(), values.end(), 1.0f);
  const Tensor from = host_view(std::span(values)).view({3, 4});
  const Tensor to = context.scratch().take(DType::f32, {3, 4});
  context.copy(to, from);
  EXPECT_EQ(to.row<float>(2)[3], 12.0f);
  context.zero(to.columns(1, 2));
  EXPECT_EQ(to.row<float>(1)[0], 5.0f);
  EXPECT_EQ(to.row<float>(1)[1], 0.0f);
  EXPECT_EQ(to.row<float>(1)[2], 0.0f);
  EXPECT_EQ(to.row<float>(1)[3], 8.0f);
  EXPECT_THROW(context.copy(to, from.rows(0, 2)), Error);
  EXPECT_THROW(context.copy(to.columns(0, 2), from.columns(0, 2)), Error);
}

TEST(ScratchScope, EndsWithWhatItBeganWith) {
  const auto device = cpu();
  Context context(*device);
  {
    const ScratchScope scope(context);
    context.scratch().take(DType::f32, {100});
    EXPECT_GT(context.scratch().used_bytes(), 0u);
  }
  EXPECT_EQ(context.scratch().used_bytes(), 0u);
}

TEST(Buffer, MovesItsBytes) {
  const auto device = cpu();
  Buffer a(*device, 100);
  void* data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  Buffer c(*device, 10);
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(c.size(), 100u);
}

TEST(Tensor, ViewsShareTheirNumbers) {
  std::vector<float> values(24);
  std::iota(values.begin(), values.end(), 0.0f);
  const Tensor x = host_view(std::span(values)).view({4, 6});
  EXPECT_EQ(x.dim(-1), 6);
  EXPECT_EQ(x.bytes(), 96u);
  EXPECT_EQ(x.rows(2, 2).ptr<float>()[0], 12.0f);
  const Tensor part = x.columns(2, 3);
  EXPECT_FALSE(part.contiguous());
  EXPECT_EQ(part.row<float>(1)[0], 8.0f);
  EXPECT_EQ(part.view({4, 3, 1}).row<float>(3)[2], 22.0f);
  EXPECT_THROW(part.view({12}), Error);
  EXPECT_THROW(x.view({5, 5}), Error);
  EXPECT_TRUE(x.rows(1, 1).columns(0, 2).contiguous());
  EXPECT_FALSE(Tensor());
}

TEST(DeviceName, MayHaveANumber) {
  EXPECT_EQ(open_device("cpu:0")->kind(), DeviceKind::cpu);
  EXPECT_EQ(device_kind("cpu:1"), DeviceKind::cpu);
  EXPECT_EQ(device_kind("auto"), open_device("auto")->kind()) << "plans are for the device that a run opens";
  for (const char* wrong : {"cpu:", "cpu:x", "cpu:-1", "cpu:1x", "gpu:0"}) {
    EXPECT_THROW(open_device(wrong), Error) << wrong;
    EXPECT_THROW(device_kind(wrong), Error) << wrong;
  }
}

TEST(Bfloat16, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(to_float(to_bf16(1.0f)), 1.0f);
  EXPECT_EQ(to_bf16(1.00390625f).bits, 0x3f80);  // halfway: to the even one below
  EXPECT_EQ(to_bf16(1.01171875f).bits, 0x3f82);  // halfway: to the even one above
  EXPECT_EQ(to_float(to_bf16(std::numeric_limits<float>::max())), std::numeric_limits<float>::infinity());
  const float nan = to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()));
  EXPECT_NE(nan, nan);
}

}  // namespace
}  // namespace hone
