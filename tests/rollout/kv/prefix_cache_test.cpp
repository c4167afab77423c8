// PrefixCache: lookup, eviction and clearing, with one table and with several.
#include "rollout/kv/prefix_cache.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

const std::vector<int32_t> ab{1, 2}, cd{3, 4};
using Blocks = std::vector<int32_t>;

TEST(PrefixCache, FindsABlockByItsTokensAndItsParent) {
  PrefixCache index({0});
  const uint64_t first = index.add(Blocks{7}, index.root(), ab).id, second = index.add(Blocks{8}, first, cd).id;
  EXPECT_NE(first, second);
  EXPECT_EQ(index.find(index.root(), ab)->blocks, Blocks{7});
  EXPECT_EQ(index.find(index.root(), ab)->id, first);
  EXPECT_EQ(index.find(first, cd)->blocks, Blocks{8});
  EXPECT_FALSE(index.find(index.root(), cd));
  EXPECT_FALSE(index.find(first, ab));
  EXPECT_FALSE(index.find(index.root(), std::vector<int32_t>{1}));
  EXPECT_TRUE(index.has(7));
  EXPECT_FALSE(index.has(9));
}

TEST(PrefixCache, TheSameTextHasOneBlock) {
  PrefixCache index({0});
  const uint64_t id = index.add(Blocks{7}, index.root(), ab).id;
  const PrefixCache::Entry& again = index.add(Blocks{9}, index.root(), ab);
  EXPECT_EQ(again.blocks, Blocks{7});
  EXPECT_EQ(again.id, id);
  EXPECT_FALSE(index.has(9));
}

TEST(PrefixCache, SuccessorsOfAnEvictedBlockAreNotFound) {
  PrefixCache index({0});
  const uint64_t first = index.add(Blocks{7}, index.root(), ab).id;
  index.add(Blocks{8}, first, cd);
  index.evict(7);
  index.evict(3);  // never added
  EXPECT_FALSE(index.find(index.root(), ab));
  const uint64_t again = index.add(Blocks{7}, index.root(), ab).id;
  EXPECT_NE(again, first);
  EXPECT_FALSE(index.find(again, cd));
  EXPECT_TRUE(index.has(8));
}

TEST(PrefixCache, ATableWithAWindowMayLoseItsBlock) {
  PrefixCache index({0, 16});
  const uint64_t id = index.add(Blocks{7, 5}, index.root(), ab).id;
  index.evict(5);
  ASSERT_TRUE(index.find(index.root(), ab));
  EXPECT_EQ(index.find(index.root(), ab)->blocks, (Blocks{7, -1}));
  EXPECT_FALSE(index.has(5));
  EXPECT_EQ(index.add(Blocks{9, 6}, index.root(), ab).id, id);  // a sequence that computed the block again
  EXPECT_EQ(index.find(index.root(), ab)->blocks, (Blocks{7, 6}));
  EXPECT_TRUE(index.has(6));
  EXPECT_FALSE(index.has(9));
  index.evict(7);  // without it the entry is of no use
  EXPECT_FALSE(index.find(index.root(), ab));
  EXPECT_FALSE(index.has(6));
}

TEST(PrefixCache, AnEntryEndsWithItsLastBlock) {
  PrefixCache index({8, 16});
  index.add(Blocks{-1, 5}, index.root(), ab);
  EXPECT_EQ(index.find(index.root(), ab)->blocks, (Blocks{-1, 5}));
  index.evict(5);
  EXPECT_FALSE(index.find(index.root(), ab));
}

TEST(PrefixCache, ClearingChangesTheRoot) {
  PrefixCache index({0});
  const uint64_t root = index.root(), first = index.add(Blocks{7}, root, ab).id;
  index.clear();
  EXPECT_FALSE(index.has(7));
  EXPECT_FALSE(index.find(index.root(), ab));
  index.add(Blocks{8}, first, cd);  // of a sequence that began before
  index.add(Blocks{9}, root, ab);
  EXPECT_FALSE(index.find(index.root(), ab));
}

}  // namespace
}  // namespace hone
