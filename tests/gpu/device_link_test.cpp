// Each kind of link between two GPUs of one machine. Each side has its own thread.
#include "core/comm/device_link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <iostream>
#include <vector>

namespace hone {
namespace {

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::vector<uint8_t> noise(int64_t bytes, uint64_t seed) {
  std::vector<uint8_t> out(static_cast<size_t>(bytes));
  uint64_t state = seed;
  for (uint8_t& byte : out)
    byte = static_cast<uint8_t>((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
  return out;
}

struct Side {
  explicit Side(std::unique_ptr<Device> gpu) : device(std::move(gpu)), context(*device) {}
  Tensor take(int64_t bytes) {
    memory.emplace_back(*device, static_cast<size_t>(bytes));
    return {memory.back().data(), DType::u8, DeviceKind::cuda, {bytes}};
  }
  Tensor take(const std::vector<uint8_t>& bytes) {
    const Tensor out = take(static_cast<int64_t>(bytes.size()));
    device->copy(out.data, bytes.data(), bytes.size(), context.stream());
    context.synchronize();
    return out;
  }
  std::vector<uint8_t> read(const Tensor& x) {
    std::vector<uint8_t> out(x.bytes());
    device->copy(out.data(), x.data, out.size(), context.stream());
    context.synchronize();
    return out;
  }
  std::unique_ptr<Device> device;
  Context context;
  std::vector<Buffer> memory;
  std::unique_ptr<DeviceLink> link;
};

class DeviceLinkTest : public ::testing::TestWithParam<std::string> {
 protected:
  static Deadline patience() { return Deadline(60); }
  void SetUp() override {
    kind = device_links().find(GetParam());
    if (!kind) GTEST_SKIP() << "this build has no kind of device link";
    try {
      for (const int index : {0, 1}) sides.push_back(std::make_unique<Side>(devices().at("cuda")(index)));
    } catch (const Error& error) {
      GTEST_SKIP() << "no two CUDA devices: " << error.what();
    }
    ASSERT_TRUE(kind->serves(*sides[0]->device));
  }
  // Both sides work at the same time.
  template <class Work>
  void both(Work work) {
    auto other = std::async(std::launch::async, [&] { work(1, *sides[1]); });
    work(0, *sides[0]);
    other.get();
  }
  void open_links() {
    const std::string id = kind->new_id();
    both([&](int rank, Side& side) { side.link = kind->open(*side.device, id, rank, patience()); });
  }

  const DeviceLinkKind* kind = nullptr;
  std::vector<std::unique_ptr<Side>> sides;
};

TEST_P(DeviceLinkTest, ABillionBytesArriveAsTheyWere) {
  open_links();
  const std::vector<uint8_t> bytes = noise(1'000'000'000, 1);
  const std::array<Tensor, 2> tensors{sides[0]->take(bytes), sides[1]->take(static_cast<int64_t>(bytes.size()))};
  double best = 1e9;
  for (int turn = 0; turn < 3; ++turn)
    both([&](int rank, Side& side) {
      const double seconds = seconds_of([&] {
        rank == 0 ? side.link->send(side.context, tensors[0], patience())
                  : side.link->receive(side.context, tensors[1], patience());
        side.link->finish(side.context, patience());
      });
      if (rank == 1) best = std::min(best, seconds);
    });
  EXPECT_TRUE(sides[1]->read(tensors[1]) == bytes);
  const double rate = static_cast<double>(bytes.size()) / best * 1e-9;
  std::cout << GetParam() << ": " << rate << " GB/s\n";
  RecordProperty("gigabytes_per_second", std::to_string(rate));
}

TEST_P(DeviceLinkTest, ManyOfAllSizesGoBothWays) {
  open_links();
  std::vector<int64_t> sizes;
  for (int turn = 0; turn < 20; ++turn)
    for (const int64_t bytes : {1, 3, 4097, 1 << 20}) sizes.push_back(bytes);
  both([&](int rank, Side& side) {
    std::vector<Tensor> out, in;
    for (size_t i = 0; i < sizes.size(); ++i)
      out.push_back(side.take(noise(sizes[i], 2 * i + rank))), in.push_back(side.take(sizes[i]));
    for (const bool sends : {rank == 0, rank == 1})
      for (const Tensor& x : sends ? out : in)
        sends ? side.link->send(side.context, x, patience()) : side.link->receive(side.context, x, patience());
    side.link->finish(side.context, patience());
    for (size_t i = 0; i < sizes.size(); ++i)
      EXPECT_TRUE(side.read(in[i]) == noise(sizes[i], 2 * i + 1 - rank)) << sizes[i];
  });
}

TEST_P(DeviceLinkTest, ASideThatNeverComesIsAnError) {
  for (const int rank : {0, 1}) {
    const std::string id = kind->new_id();
    EXPECT_LT(seconds_of([&] { EXPECT_THROW(kind->open(*sides[0]->device, id, rank, Deadline(2)), Error); }), 20);
  }
  EXPECT_THROW(kind->open(*sides[0]->device, "no id", 0, Deadline(2)), Error);
  open_links();  // later links are not affected
}

// NCCL decides if transfers in progress count as done. Within one process the first send did.
TEST_P(DeviceLinkTest, ASideThatLeftHoldsUpNeitherTheCallerNorTheStream) {
  open_links();
  Side& left = *sides[0];
  const Tensor x = left.take(noise(1 << 26, 1));
  sides[1]->link.reset();
  const auto send = [&] {
    const Deadline short_one(2);
    left.link->send(left.context, x, short_one);
    left.link->finish(left.context, short_one);
  };
  EXPECT_LT(seconds_of([&] {
              EXPECT_THROW(
                  {
                    send();
                    send();
                  },
                  Error);
            }),
            20);
  EXPECT_LT(seconds_of([&] { EXPECT_THROW(send(), Error); }), 1);  // the link is broken now
  left.context.zero(x);
  EXPECT_EQ(left.read(x), std::vector<uint8_t>(x.bytes()));
}

TEST_P(DeviceLinkTest, AWaitEndsOnceTheOtherSideIsSaidToBeGone) {
  open_links();
  Side& side = *sides[0];
  const Tensor x = side.take(noise(1 << 26, 1));
  int asked = 0;
  side.link->receive(side.context, x, patience());
  EXPECT_LT(seconds_of([&] {
              EXPECT_THROW(side.link->finish(side.context, Deadline(60, [&] { return ++asked < 100; })), Error);
              side.context.synchronize();
            }),
            20);
}

TEST_P(DeviceLinkTest, WhatIsUnderWayEndsWithTheLink) {
  open_links();
  Side& side = *sides[0];
  const Tensor x = side.take(noise(1 << 26, 1));
  side.link->send(side.context, x, patience());
  EXPECT_LT(seconds_of([&] {
              side.link.reset();
              side.context.synchronize();
            }),
            20);
}

std::vector<std::string> kinds() {
  const std::vector<std::string> out = device_links().names();
  return out.empty() ? std::vector<std::string>{"none"} : out;
}

INSTANTIATE_TEST_SUITE_P(Registry, DeviceLinkTest, ::testing::ValuesIn(kinds()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace hone
