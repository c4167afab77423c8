// PrefixCache: lookup, eviction and clearing.
#include "rollout/kv/prefix_cache.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

const std::vector<int32_t> ab{1, 2}, cd{3, 4};

TEST(PrefixCache, FindsABlockByItsTokensAndItsParent) {
  PrefixCache index;
  const uint64_t first = index.add(7, index.root(), ab).id, second = index.add(8, first, cd).id;
  EXPECT_NE(first, second);
  EXPECT_EQ(index.find(index.root(), ab)->block, 7);
  EXPECT_EQ(index.find(index.root(), ab)->id, first);
  EXPECT_EQ(index.find(first, cd)->block, 8);
  EXPECT_FALSE(index.find(index.root(), cd));
  EXPECT_FALSE(index.find(first, ab));
  EXPECT_FALSE(index.find(index.root(), std::vector<int32_t>{1}));
  EXPECT_TRUE(index.has(7));
  EXPECT_FALSE(index.has(9));
}

TEST(PrefixCache, TheSameTextHasOneBlock) {
  PrefixCache index;
  const uint64_t id = index.add(7, index.root(), ab).id;
  const PrefixCache::Found again = index.add(9, index.root(), ab);
  EXPECT_EQ(again.block, 7);
  EXPECT_EQ(again.id, id);
  EXPECT_FALSE(index.has(9));
}

TEST(PrefixCache, SuccessorsOfAnEvictedBlockAreNotFound) {
  PrefixCache index;
  const uint64_t first = index.add(7, index.root(), ab).id;
  index.add(8, first, cd);
  index.evict(7);
  index.evict(3);  // never added
  EXPECT_FALSE(index.find(index.root(), ab));
  const uint64_t again = index.add(7, index.root(), ab).id;
  EXPECT_NE(again, first);
  EXPECT_FALSE(index.find(again, cd));
  EXPECT_TRUE(index.has(8));
}

TEST(PrefixCache, ClearingChangesTheRoot) {
  PrefixCache index;
  const uint64_t root = index.root(), first = index.add(7, root, ab).id;
  index.clear();
  EXPECT_FALSE(index.has(7));
  EXPECT_FALSE(index.find(index.root(), ab));
  index.add(8, first, cd);  // of a sequence that began before
  index.add(9, root, ab);
  EXPECT_FALSE(index.find(index.root(), ab));
}

}  // namespace
}  // namespace hone
