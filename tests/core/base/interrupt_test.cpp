#include "core/base/interrupt.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace hone {
namespace {

// Each test runs in a child process: the flag stays set, and a signal may kill.
TEST(InterruptDeathTest, TheFirstSignalSetsTheFlagAndTheRunGoesOn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [](int number) {
    install_interrupt_handlers();
    if (interrupted()) std::exit(1);
    std::raise(number);
    std::exit(interrupted() && num_interrupts() == 1 ? 0 : 2);
  };
  for (const int number : {SIGTERM, SIGINT})
    EXPECT_EXIT(run(number), testing::ExitedWithCode(0), "stopping after the current step");
}

TEST(InterruptDeathTest, TheSecondEndsTheProcessWhicheverItIs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [](int first, int second) {
    install_interrupt_handlers();
    std::raise(first);
    if (!interrupted()) std::exit(2);
    std::raise(second);
    std::exit(3);
  };
  for (const int first : {SIGTERM, SIGINT})
    for (const int second : {SIGTERM, SIGINT}) EXPECT_EXIT(run(first, second), testing::KilledBySignal(second), "");
}

// The process waits in a call that signals do not interrupt, on a thread that others join.
TEST(InterruptDeathTest, TheSecondEndsAProcessThatWaitsForEver) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    install_interrupt_handlers();
    std::mutex mutex;
    mutex.lock();
    std::thread([main = ::pthread_self()] {
      for (int i = 0; i < 2; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        ::pthread_kill(main, SIGTERM);
      }
    }).detach();
    std::thread([&] { mutex.lock(); }).join();
  };
  EXPECT_EXIT(run(), testing::KilledBySignal(SIGTERM), "");
}

TEST(InterruptDeathTest, AHangupAsksToStop) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    std::signal(SIGHUP, SIG_DFL);
    install_interrupt_handlers();
    std::raise(SIGHUP);
    std::exit(interrupted() ? 0 : 2);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "stopping after the current step");
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
