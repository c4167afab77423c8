#include "rollout/kv/prefix_cache.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

const std::vector<int32_t> ab{1, 2}, cd{3, 4};

TEST(PrefixCache, FindsABlockByItsTokensAndThoseBefore) {
  PrefixCache index;
  const uint64_t first = index.add(7, index.root(), ab).name, second = index.add(8, first, cd).name;
  EXPECT_NE(first, second);
  EXPECT_EQ(index.find(index.root(), ab)->block, 7);
  EXPECT_EQ(index.find(index.root(), ab)->name, first);
  EXPECT_EQ(index.find(first, cd)->block, 8);
  EXPECT_FALSE(index.find(index.root(), cd));
  EXPECT_FALSE(index.find(first, ab));
  EXPECT_FALSE(index.find(index.root(), std::vector<int32_t>{1}));
  EXPECT_TRUE(index.has(7));
  EXPECT_FALSE(index.has(9));
}

TEST(PrefixCache, TheSameTextHasOneBlock) {
  PrefixCache index;
  const uint64_t name = index.add(7, index.root(), ab).name;
  const PrefixCache::Found again = index.add(9, index.root(), ab);
  EXPECT_EQ(again.block, 7);
  EXPECT_EQ(again.name, name);
  EXPECT_FALSE(index.has(9));
}

TEST(PrefixCache, WhatFollowedAForgottenBlockIsFoundNoMore) {
  PrefixCache index;
  const uint64_t first = index.add(7, index.root(), ab).name;
  index.add(8, first, cd);
  index.forget(7);
  index.forget(3);  // never named
  EXPECT_FALSE(index.find(index.root(), ab));
  const uint64_t again = index.add(7, index.root(), ab).name;
  EXPECT_NE(again, first);
  EXPECT_FALSE(index.find(again, cd));
  EXPECT_TRUE(index.has(8));
}

TEST(PrefixCache, AClearedOneHasAnotherRoot) {
  PrefixCache index;
  const uint64_t root = index.root(), first = index.add(7, root, ab).name;
  index.clear();
  EXPECT_FALSE(index.has(7));
  EXPECT_FALSE(index.find(index.root(), ab));
  index.add(8, first, cd);  // a text begun before
  index.add(9, root, ab);
  EXPECT_FALSE(index.find(index.root(), ab));
}

}  // namespace
}  // namespace hone
