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
    std::exit(interrupted() && num_interrupts() == 2 ? 0 : 2);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "stopping when what is under way is done");
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

TEST(InterruptDeathTest, AHangupAsksToStop) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    std::signal(SIGHUP, SIG_DFL);
    install_interrupt_handlers();
    std::raise(SIGHUP);
    std::exit(interrupted() ? 0 : 2);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "stopping when what is under way is done");
}

TEST(InterruptDeathTest, AHangupThatIsIgnoredFromTheStartStaysIgnored) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    std::signal(SIGHUP, SIG_IGN);  // as nohup leaves it
    install_interrupt_handlers();
    std::raise(SIGHUP);
    std::exit(interrupted() ? 2 : 0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

TEST(InterruptDeathTest, HandlersLeaveTheStackThatMatrixProductsBorrowAlone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    install_interrupt_handlers();
    stack_t stack{};
    if (sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & SS_DISABLE)) std::exit(1);
    for (const int number : {SIGTERM, SIGINT}) {
      struct sigaction action {};
      if (sigaction(number, nullptr, &action) != 0 || !(action.sa_flags & SA_ONSTACK)) std::exit(2);
    }
    std::exit(0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hone
