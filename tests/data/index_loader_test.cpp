#include "data/index_loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace hone {
namespace {

TEST(Permutation, IsABijectionOfAnyCount) {
  for (const uint64_t count : {1, 2, 3, 4, 5, 17, 64, 1000, 4097}) {
    const Permutation permutation(count, 5, 2);
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < count; ++i) {
      EXPECT_LT(permutation(i), count);
      seen.insert(permutation(i));
    }
    EXPECT_EQ(seen.size(), count);
  }
}

TEST(Permutation, DependsOnSeedAndEpoch) {
  const auto order = [](uint64_t seed, uint64_t epoch) {
    const Permutation permutation(100, seed, epoch);
    std::vector<uint64_t> out;
    for (uint64_t i = 0; i < 100; ++i) out.push_back(permutation(i));
    return out;
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 0), order(2, 0));
  EXPECT_FALSE(std::ranges::is_sorted(order(1, 0)));
}

// The first index of 20,000 permutations of 8 is uniform: within five standard deviations of 2,500.
TEST(Permutation, HasNoFavoritePlace) {
  int counts[8] = {};
  for (uint64_t seed = 0; seed < 20000; ++seed) ++counts[Permutation(8, seed, 0)(0)];
  for (const int count : counts) EXPECT_NEAR(count, 2500, 5 * 47);
}

TEST(IndexLoader, GivesEveryIndexOnceAnEpoch) {
  IndexLoader loader(7, 3);
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::set<int64_t> seen;
    for (int i = 0; i < 7; ++i) seen.insert(loader.next());
    EXPECT_EQ(seen.size(), 7u);
    EXPECT_EQ(loader.epoch(), epoch);
  }
  IndexLoader in_order(3, 3, false);
  for (const int64_t expected : {0, 1, 2, 0}) EXPECT_EQ(in_order.next(), expected);
}

TEST(IndexLoader, GoesOnFromASavedPosition) {
  IndexLoader uninterrupted(10, 3), resumed(10, 3);
  for (int i = 0; i < 13; ++i) uninterrupted.next();
  StateSection section;
  uninterrupted.save_state(section);
  resumed.load_state(section);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(uninterrupted.next(), resumed.next());
  EXPECT_EQ(uninterrupted.epochs_done(), resumed.epochs_done());
}

TEST(IndexLoader, RefusesOtherDataAndNonsense) {
  EXPECT_THROW(IndexLoader(0, 1), Error);
  IndexLoader ten(10, 3), eleven(11, 3), reseeded(10, 4);
  StateSection section;
  ten.save_state(section);
  EXPECT_THROW(eleven.load_state(section), Error);
  EXPECT_THROW(reseeded.load_state(section), Error);
  section.values.set("index", 11);
  EXPECT_THROW(ten.load_state(section), Error);
  section.values.set("index", -1);
  EXPECT_THROW(ten.load_state(section), Error);
}

}  // namespace
}  // namespace hone
