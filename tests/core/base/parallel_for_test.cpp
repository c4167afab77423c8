#include "core/base/parallel_for.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace hone {

TEST(ParallelFor, VisitsEveryItemOnce) {
  for (const int threads : {1, 2, 5}) {
    set_num_threads(threads);
    std::vector<std::atomic<int>> visits(1003);
    parallel_for(1003, 7, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
    });
    for (const auto& count : visits) ASSERT_EQ(count, 1);
  }
}

TEST(ParallelFor, RethrowsAndGoesOn) {
  set_num_threads(2);
  EXPECT_THROW(parallel_for(100, 1,
                            [](int64_t begin, int64_t) {
                              if (begin == 13) throw std::runtime_error("piece");
                            }),
               std::runtime_error);
  std::atomic<int64_t> sum{0};
  parallel_for(100, 1, [&](int64_t begin, int64_t) { sum += begin; });
  EXPECT_EQ(sum, 4950);
}

TEST(ParallelFor, NestedCallsRunOnTheCallingThread) {
  set_num_threads(2);
  std::atomic<int> inner{0};
  parallel_for(4, 1, [&](int64_t, int64_t) { parallel_for(10, 1, [&](int64_t, int64_t) { ++inner; }); });
  EXPECT_EQ(inner, 40);
}

TEST(OrderedSum, DoesNotDependOnThreads) {
  const auto sum = [] {
    return ordered_sum(100000, 64, [](int64_t begin, int64_t end) {
      double s = 0;
      for (int64_t i = begin; i < end; ++i) s += 1.0 / static_cast<double>(i + 1);
      return s;
    });
  };
  set_num_threads(1);
  const double one = sum();
  set_num_threads(2);
  EXPECT_EQ(one, sum());
}

}  // namespace hone
