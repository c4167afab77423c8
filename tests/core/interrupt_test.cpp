#include "core/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

namespace hone {
namespace {

// Each in a process of its own: the flag stays set, and a signal may kill.
TEST(InterruptDeathTest, TerminateSetsTheFlagAndTheRunGoesOn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    install_interrupt_handlers();
    if (interrupted()) std::exit(1);
    std::raise(SIGTERM);
    std::raise(SIGTERM);
    std::exit(interrupted() ? 0 : 2);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "stopping after this step");
}

TEST(InterruptDeathTest, TheSecondCtrlCKills) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    install_interrupt_handlers();
    std::raise(SIGINT);
    if (!interrupted()) std::exit(2);
    std::raise(SIGINT);
    std::exit(3);
  };
  EXPECT_EXIT(run(), testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace hone
