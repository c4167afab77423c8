#include "core/base/this_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace hone {
namespace {

std::atomic<int> alive = 0;
struct Counted {
  Counted() { ++alive; }
  ~Counted() { --alive; }
  int uses = 0;
};

TEST(ThisThreads, EachThreadHasOneAndTakesItAlong) {
  std::atomic<int> together = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int use = 1; use <= 3; ++use) EXPECT_EQ(++this_threads<Counted>().uses, use);
      ++together;
      while (together < 4) std::this_thread::yield();
      EXPECT_EQ(alive, 4);
      ++together;
      while (together < 8) std::this_thread::yield();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace hone
