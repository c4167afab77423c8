// KvCache: references, copies, eviction of cached blocks, and fp8 scales.
#include "rollout/kv/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace hone {
namespace {

class KvCacheTest : public ::testing::Test {
 protected:
  static std::vector<KvGroupShape> groups() { return {{.num_kv_heads = 1, .key_dim = 3, .value_dim = 3, .planes = 2}}; }
  std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context{*device};
  KvCache cache{context, one_table(groups()), DType::f32, 4, 15};  // three blocks: 15 tokens do not fill a fourth
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

TEST_F(KvCacheTest, MemoryIsFreedIfNoSequenceHoldsABlock) {
  const std::vector<KvGroupShape> small{{.num_kv_heads = 1, .key_dim = 2, .value_dim = 2, .planes = 1}};
  KvStorage draft(context, one_table(small), DType::f32, 4, 3);
  cache.attach_storage(draft);
  const size_t all = device->used_bytes();
  BlockTables blocks;
  cache.extend(blocks, 6);
  EXPECT_THROW(cache.free_memory(), Error);
  EXPECT_EQ(device->used_bytes(), all);
  const std::vector<int32_t> tokens{1, 2, 3, 4};
  cache.cache_block(blocks, 0, cache.prefix_root(0), tokens);
  cache.release(blocks);
  cache.free_memory();
  EXPECT_EQ(device->used_bytes(), 0u);
  EXPECT_EQ(cache.match_prefix(blocks, cache.prefix_root(0), tokens, 1).blocks, 0);
  cache.extend(blocks, 12);  // blocks are numbers
  cache.allocate_memory();
  cache.allocate_memory();
  EXPECT_EQ(device->used_bytes(), all);
  cache.storage().view().layers[1].v.as<float>()[0] = 1;
  draft.view().layers[0].k.as<float>()[0] = 1;
}

TEST_F(KvCacheTest, ACopyHasTheSameKeysAndValuesInEveryAttachedStorage) {
  const std::vector<KvGroupShape> small{{.num_kv_heads = 1, .key_dim = 2, .value_dim = 2, .planes = 1}};
  KvStorage others(context, one_table(small), DType::f32, cache.block_size(), cache.num_blocks());
  cache.attach_storage(others);
  const int32_t block = cache.allocate();
  std::vector<Tensor> storage;
  for (const KvView& view : {cache.storage().view(), others.view()})
    for (const LayerKv& layer : view.layers) storage.insert(storage.end(), {layer.k, layer.v});
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

TEST_F(KvCacheTest, ACopyTakesAllOfAnAttachedBlockWithFewerSlots) {
  const std::vector<KvGroupShape> small{{.num_kv_heads = 1, .key_dim = 2, .planes = 1}};
  KvStorage ring(context, one_table(small), DType::f32, 2, cache.num_blocks());
  cache.attach_storage(ring);
  const Tensor rows = ring.view().layers[0].k;
  for (const int64_t tokens : {1, 2, 3}) {
    float next = 1;
    for (float& x : rows.as<float>()) x = next++;
    const std::vector<float> before(rows.as<float>().begin(), rows.as<float>().end());
    const int32_t block = cache.allocate(), copy = cache.copy(block, tokens);
    std::vector<float> expected = before;
    std::copy_n(before.begin() + block * 4, 2 * std::min<int64_t>(tokens, 2), expected.begin() + copy * 4);
    EXPECT_TRUE(std::ranges::equal(expected, rows.as<float>())) << tokens;
    cache.unref(block);
    cache.unref(copy);
  }
}

TEST_F(KvCacheTest, ThePadBlockIsNeverAllocatedAndHasMemory) {
  EXPECT_EQ(cache.storage().pad_block(), 3);
  for (const LayerKv& layer : cache.storage().view().layers) EXPECT_EQ(layer.k.dim(0), 4 * 4);
}

TEST_F(KvCacheTest, CachedBlocksAreEvictedLeastRecentlyUsedFirst) {
  const std::vector<int32_t> a{1, 1, 1, 1}, b{2, 2, 2, 2};
  const uint64_t root = cache.prefix_cache().root();
  const int32_t first = cache.allocate(), second = cache.allocate();
  cache.cache_block({{{first}}, {0}}, 0, root, a);
  cache.cache_block({{{second}}, {0}}, 0, root, b);
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
  EXPECT_EQ(cache.prefix_cache().find(root, b)->blocks.front(), second);
  EXPECT_EQ(cache.allocate(), second);
  EXPECT_THROW(cache.allocate(), Error);
}

TEST_F(KvCacheTest, InvalidatingThePrefixCacheFreesItsBlocks) {
  const std::vector<int32_t> a{1, 1, 1, 1}, b{2, 2, 2, 2};
  const uint64_t root = cache.prefix_cache().root();
  const int32_t idle = cache.allocate(), held = cache.allocate();
  cache.cache_block({{{idle}}, {0}}, 0, root, a);
  cache.cache_block({{{held}}, {0}}, 0, root, b);
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
  KvStorage storage(context, one_table(groups()), DType::u8, 4, 3);
  const int64_t slots = (3 + 1) * 4, dim = 3;
  EXPECT_EQ(storage.bytes(), static_cast<size_t>(2 * 2 * slots * (dim + 4)));
  const KvView view = storage.view();
  ASSERT_EQ(view.layers.size(), 2u);
  for (const LayerKv& layer : view.layers)
    for (int64_t at = 0; at < 3; ++at) {
      layer.k.row<uint8_t>(4)[at * dim] = static_cast<uint8_t>(at + 1);
      layer.v.row<uint8_t>(4)[at * dim] = static_cast<uint8_t>(at + 2);
      layer.k_scale.row<float>(4)[at] = 0.5f + static_cast<float>(at);
      layer.v_scale.row<float>(4)[at] = 0.25f + static_cast<float>(at);
    }
  storage.copy(2, 1, 3);
  for (const LayerKv& layer : view.layers)
    for (int64_t at = 0; at < 3; ++at) {
      EXPECT_EQ(layer.k.row<uint8_t>(8)[at * dim], at + 1);
      EXPECT_EQ(layer.v.row<uint8_t>(8)[at * dim], at + 2);
      EXPECT_EQ(layer.k_scale.row<float>(8)[at], 0.5f + static_cast<float>(at));
      EXPECT_EQ(layer.v_scale.row<float>(8)[at], 0.25f + static_cast<float>(at));
    }
}

// A latent (MLA) is the key row alone: it has no values, and no fp8 form.
TEST_F(KvCacheTest, LatentsHaveNoValues) {
  const std::vector<KvGroupShape> latent{{.num_kv_heads = 1, .key_dim = 5, .planes = 3},
                                         {.num_kv_heads = 2, .key_dim = 4, .value_dim = 2, .planes = 1}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    KvStorage storage(context, one_table(latent), dtype, 4, 3);
    constexpr size_t slots = 16, numbers = 3 * 5 + 2 * (4 + 2);
    EXPECT_EQ(storage.bytes(), slots * numbers * size_of(dtype));
    const KvView view = storage.view();
    ASSERT_EQ(view.layers.size(), 4u);
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < 4; ++i) {
      const LayerKv& layer = view.layers[i];
      EXPECT_EQ(bool(layer.v), i == 3);
      EXPECT_FALSE(layer.k_scale || layer.v_scale);
      tensors.push_back(layer.k);
      if (layer.v) tensors.push_back(layer.v);
    }
    const auto bytes_of = [](Tensor t) { return std::span(static_cast<uint8_t*>(t.data), t.bytes()); };
    for (size_t i = 0; i < tensors.size(); ++i) {
      std::ranges::fill(bytes_of(tensors[i]), static_cast<uint8_t>(100 + i));
      std::ranges::fill(bytes_of(tensors[i].rows(4, 4)), static_cast<uint8_t>(i + 1));
    }
    storage.copy(2, 1, 3);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto has = [&](int64_t first, int64_t rows, size_t value) {
        return std::ranges::all_of(bytes_of(tensors[i].rows(first, rows)), [&](uint8_t x) { return x == value; });
      };
      EXPECT_TRUE(has(8, 3, i + 1) && has(11, 1, 100 + i) && has(4, 4, i + 1) && has(0, 4, 100 + i)) << i;
    }
  }
  EXPECT_THROW(KvStorage(context, one_table(latent), DType::u8, 4, 3), Error);
}

// Two tables: layers with a window of 8 tokens, and one layer without.
class KvWindowTest : public KvCacheTest {
 protected:
  static constexpr int64_t block_size = 16, window = 8;
  static KvLayout layout() {
    return tables_by_window(
        std::vector<KvGroupShape>{{.num_kv_heads = 1, .key_dim = 2, .value_dim = 2, .window = window, .planes = 1},
                                  {.num_kv_heads = 1, .key_dim = 2, .value_dim = 2, .planes = 1}});
  }
  KvCache cache{context, layout(), DType::f32, block_size, 512};
  const int32_t pad = cache.storage().pad_block();

  // Computes tokens [0, end) of a sequence in one pass and caches its full blocks.
  BlockTables computed(const std::vector<int32_t>& tokens, int64_t end) {
    BlockTables out;
    cache.extend(out, end);
    uint64_t parent = cache.prefix_cache().root();
    for (int64_t i = 0; (i + 1) * block_size <= end; ++i)
      parent = cache.cache_block(out, i, parent, std::span(tokens).subspan(static_cast<size_t>(i) * 16, 16));
    cache.release_unseen(out, end);
    return out;
  }
  static std::vector<int32_t> text(int32_t number) {
    std::vector<int32_t> out;
    for (int32_t i = 0; i < 512; ++i) out.push_back(1000 * number + i);
    return out;
  }
};

TEST_F(KvWindowTest, BlocksBehindTheWindowAreGivenBack) {
  EXPECT_EQ(cache.num_blocks(), 64);
  BlockTables blocks;
  cache.extend(blocks, 300);
  EXPECT_EQ(blocks.size(), 19);
  EXPECT_EQ(cache.free_blocks(), 64 - 38);
  cache.release_unseen(blocks, 127 + window - 1);  // the query sees key 127, in the first key tile
  EXPECT_EQ(blocks.held(), 38);
  cache.release_unseen(blocks, 128 + window - 1);  // the second key tile begins at 128
  EXPECT_EQ(blocks.released, (std::vector<int64_t>{8, 0}));
  EXPECT_EQ(blocks.held(), 30);
  EXPECT_EQ(cache.free_blocks(), 64 - 30);
  for (size_t i = 0; i < 19; ++i) {
    EXPECT_EQ(blocks.tables[0][i] == pad, i < 8);
    EXPECT_NE(blocks.tables[1][i], pad);
  }
  cache.release_unseen(blocks, 130);  // nothing is given back twice
  EXPECT_EQ(blocks.held(), 30);
  cache.extend(blocks, 320);
  EXPECT_EQ(blocks.held(), 32);
  cache.release(blocks);
  EXPECT_EQ(cache.free_blocks(), 64);
  EXPECT_TRUE(blocks.empty());
}

TEST_F(KvWindowTest, TheBlocksThatASequenceLacksAreCountedByTable) {
  BlockTables blocks;
  EXPECT_EQ(cache.missing_blocks(blocks, 512), 64);
  const int64_t bound = cache.layout().max_held_blocks(0, 16, block_size);
  EXPECT_LT(bound, 32);
  EXPECT_EQ(cache.missing_blocks_at_peak(blocks, 512, 16), 32 + bound);
  EXPECT_EQ(cache.missing_blocks_at_peak(blocks, 512, 512), 64);  // one pass that computes everything
  for (int64_t end = 16; end <= 512; end += 16) {
    EXPECT_LE(blocks.held() + cache.missing_blocks_at_peak(blocks, 512, 16), 32 + bound) << end;
    cache.extend(blocks, end);
    cache.release_unseen(blocks, end);
  }
  EXPECT_EQ(cache.missing_blocks_at_peak(blocks, 512, 16), 0);
}

TEST_F(KvWindowTest, AForkSharesWhatItsPromptStillHas) {
  BlockTables prompt = computed(text(1), 300), fork;
  const int64_t free = cache.free_blocks();
  ASSERT_TRUE(cache.fork(fork, prompt, 300));
  EXPECT_EQ(cache.free_blocks(), free - 2);  // a copy of the last block of each table
  EXPECT_EQ(fork.released, prompt.released);
  for (size_t table = 0; table < 2; ++table)
    for (size_t i = 0; i < 19; ++i) EXPECT_EQ(fork.tables[table][i] == prompt.tables[table][i], i < 18);
  cache.release(prompt);
  cache.release(fork);
  EXPECT_EQ(cache.free_blocks(), 64);
}

TEST_F(KvWindowTest, AForkWithoutFreeBlocksIsRefused) {
  BlockTables prompt = computed(text(1), 300), others, fork;
  cache.extend(others, cache.free_blocks() / 2 * block_size);
  EXPECT_EQ(cache.free_blocks(), 0);
  EXPECT_FALSE(cache.fork(fork, prompt, 300));
  EXPECT_TRUE(fork.empty());
  EXPECT_TRUE(cache.fork(fork, prompt, 288));  // full blocks only
}

TEST_F(KvWindowTest, AMatchNeedsTheBlocksOfTheWindowOnly) {
  BlockTables first = computed(text(1), 300), found;
  cache.release(first);
  const KvCache::PrefixMatch match = cache.match_prefix(found, cache.prefix_cache().root(), text(1), 20);
  EXPECT_EQ(match.blocks, 18);
  EXPECT_EQ(found.released, (std::vector<int64_t>{16, 0}));  // the query at 288 sees keys from 281 on, tile 256
  EXPECT_EQ(found.held(), 18 + 2);
  for (size_t i = 0; i < 18; ++i) EXPECT_EQ(found.tables[0][i] == pad, i < 16);
  cache.release(found);
  EXPECT_EQ(cache.free_blocks(), 64);
}

// A match is as long as every table allows: here a block of the window is lost, and the match ends before it.
TEST_F(KvWindowTest, AMatchEndsWhereAWindowIsIncomplete) {
  BlockTables first = computed(text(1), 300);
  const int32_t lost = first.tables[0][17];
  cache.release(first);
  // Takes free blocks until the cache has evicted the lost one.
  std::vector<int32_t> taken;
  while (cache.prefix_cache().has(lost)) taken.push_back(cache.allocate());
  BlockTables found;
  const KvCache::PrefixMatch match = cache.match_prefix(found, cache.prefix_cache().root(), text(1), 20);
  EXPECT_LT(match.blocks, 18);
  EXPECT_EQ(match.blocks, found.size());
  // The same text, computed again from there on, fills the gap.
  const uint64_t root = cache.prefix_cache().root();
  cache.release(found);
  for (const int32_t block : taken) cache.unref(block);
  BlockTables again = computed(text(1), 300);
  cache.release(again);
  EXPECT_EQ(cache.match_prefix(found, root, text(1), 20).blocks, 18);
}

TEST_F(KvWindowTest, ADraftModelNeedsOneTableWithoutAWindow) {
  KvStorage draft(context, one_table(groups()), DType::f32, block_size, cache.num_blocks());
  EXPECT_THROW(cache.attach_storage(draft), Error);
}

// One layer in six without a window: the memory of four sequences of 1,024 tokens holds 13.
TEST_F(KvWindowTest, TheSameMemoryHoldsMoreSequences) {
  const auto sequences_in = [&](KvLayout of) {
    KvCache one(context, of, DType::f32, block_size, 4096);
    for (int64_t complete = 0;; ++complete) {
      BlockTables blocks;
      for (int64_t end = 16; end <= 1024; end += 16) {
        if (one.missing_blocks(blocks, end) > one.free_blocks()) return complete;
        one.extend(blocks, end);
        one.release_unseen(blocks, end);
      }
    }
  };
  const std::vector<KvGroupShape> of{{.num_kv_heads = 1, .key_dim = 2, .value_dim = 2, .window = window, .planes = 5},
                                     {.num_kv_heads = 1, .key_dim = 2, .value_dim = 2, .planes = 1}};
  EXPECT_EQ(sequences_in(one_table(of)), 4);
  EXPECT_GE(sequences_in(tables_by_window(of)), 13);
}

TEST_F(KvCacheTest, ACacheWithoutABlockIsAnError) {
  EXPECT_THROW(KvCache(context, one_table(groups()), DType::f32, 16, 15), Error);
}

}  // namespace
}  // namespace hone
