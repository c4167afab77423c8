// DeviceTimer: spans that are read, and spans without an end.
#include "rollout/device_timer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace hone::test {
namespace {

TEST(DeviceTimer, AddsUpTheSpansThatWereRead) {
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context(*device);
  DeviceTimer clock(context);
  const auto span = [&](bool ends) {
    clock.begin();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (ends) clock.end();
  };
  span(true), span(false), span(true);
  EXPECT_EQ(clock.seconds(), 0);
  clock.read();
  const double first = clock.seconds();
  EXPECT_GE(first, 0.002);
  EXPECT_FALSE(clock.all_read());
  clock.read();
  EXPECT_GE(clock.seconds(), first + 0.002);
  EXPECT_TRUE(clock.all_read());
  const double before = clock.seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(clock.seconds(), before);
}

}  // namespace
}  // namespace hone::test
