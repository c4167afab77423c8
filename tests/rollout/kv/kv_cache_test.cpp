// KvCache: references, copies, eviction of cached blocks, and fp8 scales.
#include "rollout/kv/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace hone {
namespace {

class KvCacheTest : public ::testing::Test {
 protected:
  static ModelShape shape() {
    ModelShape out;
    out.num_layers = 2, out.num_kv_heads = 1, out.head_dim = 3;
    return out;
  }
  std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context{*device};
  KvCache cache{context, shape(), DType::f32, 4, 15};  // three blocks: 15 tokens do not fill a fourth
};

TEST_F(KvCacheTest, AllocatesEachBlockOnce) {
  EXPECT_EQ(cache.num_blocks(), 3);
  std::set<int32_t> blocks{cache.allocate(), cache.allocate(), cache.allocate()};
  EXPECT_EQ(blocks.size(), 3u);
  EXPECT_EQ(cache.free_blocks(), 0);
  EXPECT_THROW(cache.allocate(), Error);
  cache.unref(*blocks.begin());
  EXPECT_EQ(cache.allocate(), *blocks.begin());
}

TEST_F(KvCacheTest, ASharedBlockIsFreedByItsLastReference) {
  const int32_t block = cache.allocate();
  cache.ref(block);
  cache.unref(block);
  EXPECT_EQ(cache.free_blocks(), 2);
  cache.unref(block);
  EXPECT_EQ(cache.free_blocks(), 3);
}

TEST_F(KvCacheTest, ACopyHasTheSameKeysAndValuesInEveryAttachedStorage) {
  ModelShape small = shape();
  small.num_layers = 1, small.head_dim = 2;
  KvStorage others(context, small, DType::f32, cache.block_size(), cache.num_blocks());
  cache.attach_storage(others);
  const int32_t block = cache.allocate();
  std::vector<Tensor> storage;
  for (const KvView& view : {cache.storage().view(), others.view()})
    for (const auto* of : {&view.k, &view.v}) storage.insert(storage.end(), of->begin(), of->end());
  EXPECT_EQ(storage.size(), 6u);
  float next = 1;
  for (const Tensor& plane : storage)
    for (float& x : plane.rows(block * 4, 4).as<float>()) x = next++;
  const int32_t fresh = cache.allocate();
  cache.unref(fresh);  // the next block to be allocated
  for (const Tensor& plane : storage) std::ranges::fill(plane.rows(fresh * 4, 4).as<float>(), -1);
  const int32_t copy = cache.copy(block, 3);
  ASSERT_EQ(copy, fresh);
  for (const Tensor& plane : storage) {
    EXPECT_TRUE(std::ranges::equal(plane.rows(copy * 4, 3).as<float>(), plane.rows(block * 4, 3).as<float>()));
    EXPECT_TRUE(std::ranges::all_of(plane.rows(copy * 4 + 3, 1).as<float>(), [](float x) { return x == -1; }));
  }
}

TEST_F(KvCacheTest, ThePadBlockIsNeverAllocatedAndHasMemory) {
  EXPECT_EQ(cache.storage().pad_block(), 3);
  for (const Tensor& plane : cache.storage().view().k) EXPECT_EQ(plane.dim(0), 4 * 4);
}

TEST_F(KvCacheTest, CachedBlocksAreEvictedLeastRecentlyUsedFirst) {
  const std::vector<int32_t> a{1, 1, 1, 1}, b{2, 2, 2, 2};
  const uint64_t root = cache.prefix_cache().root();
  const int32_t first = cache.allocate(), second = cache.allocate();
  cache.cache_block(first, root, a);
  cache.cache_block(second, root, b);
  cache.unref(second);
  cache.unref(first);
  EXPECT_EQ(cache.free_blocks(), 3);
  cache.ref(second);  // used again: the first one is now least recently used
  EXPECT_EQ(cache.free_blocks(), 2);
  cache.unref(second);
  cache.allocate();  // the one that is not cached
  EXPECT_TRUE(cache.prefix_cache().has(first) && cache.prefix_cache().has(second));
  EXPECT_EQ(cache.allocate(), first);
  EXPECT_FALSE(cache.prefix_cache().has(first));
  EXPECT_EQ(cache.prefix_cache().find(root, b)->block, second);
  EXPECT_EQ(cache.allocate(), second);
  EXPECT_THROW(cache.allocate(), Error);
}

TEST_F(KvCacheTest, InvalidatingThePrefixCacheFreesItsBlocks) {
  const std::vector<int32_t> a{1, 1, 1, 1}, b{2, 2, 2, 2};
  const uint64_t root = cache.prefix_cache().root();
  const int32_t idle = cache.allocate(), held = cache.allocate();
  cache.cache_block(idle, root, a);
  cache.cache_block(held, root, b);
  cache.unref(idle);
  cache.invalidate_prefix_cache();
  EXPECT_EQ(cache.free_blocks(), 2);
  cache.unref(held);
  EXPECT_EQ(cache.free_blocks(), 3);
  EXPECT_FALSE(cache.prefix_cache().find(cache.prefix_cache().root(), a) ||
               cache.prefix_cache().find(cache.prefix_cache().root(), b));
  std::set<int32_t> blocks{cache.allocate(), cache.allocate(), cache.allocate()};
  EXPECT_EQ(blocks.size(), 3u);
}

TEST_F(KvCacheTest, CountsBlocksUpward) {
  EXPECT_EQ(cache.blocks_for(0), 0);
  EXPECT_EQ(cache.blocks_for(1), 1);
  EXPECT_EQ(cache.blocks_for(4), 1);
  EXPECT_EQ(cache.blocks_for(5), 2);
}

// In fp8 a value takes one byte, and each token and head has a scale, which copies include.
TEST_F(KvCacheTest, StorageInFp8HasScales) {
  KvStorage storage(context, shape(), DType::u8, 4, 3);
  const int64_t slots = (3 + 1) * 4, heads = shape().num_kv_heads, dim = shape().head_dim;
  EXPECT_EQ(storage.bytes(), static_cast<size_t>(2 * shape().num_layers * slots * heads * (dim + 4)));
  const KvView view = storage.view();
  for (const auto* all : {&view.k, &view.v, &view.k_scale, &view.v_scale})
    ASSERT_EQ(std::ssize(*all), shape().num_layers);
  for (size_t i = 0; i < view.k.size(); ++i)
    for (int64_t at = 0; at < 3 * heads; ++at) {
      view.k[i].row<uint8_t>(4)[at * dim] = static_cast<uint8_t>(at + 1),
                                     view.v[i].row<uint8_t>(4)[at * dim] = static_cast<uint8_t>(at + 2);
      view.k_scale[i].row<float>(4)[at] = 0.5f + static_cast<float>(at),
      view.v_scale[i].row<float>(4)[at] = 0.25f + static_cast<float>(at);
    }
  storage.copy(2, 1, 3);
  for (size_t i = 0; i < view.k.size(); ++i)
    for (int64_t at = 0; at < 3 * heads; ++at) {
      EXPECT_EQ(view.k[i].row<uint8_t>(8)[at * dim], at + 1);
      EXPECT_EQ(view.v[i].row<uint8_t>(8)[at * dim], at + 2);
      EXPECT_EQ(view.k_scale[i].row<float>(8)[at], 0.5f + static_cast<float>(at));
      EXPECT_EQ(view.v_scale[i].row<float>(8)[at], 0.25f + static_cast<float>(at));
    }
}

TEST_F(KvCacheTest, ACacheWithoutABlockIsAnError) {
  EXPECT_THROW(KvCache(context, shape(), DType::f32, 16, 15), Error);
}

}  // namespace
}  // namespace hone
