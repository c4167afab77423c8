// KvLayout: tables by window, the planes of a block, and the formula of bytes against what is allocated.
#include "rollout/kv/kv_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernels/attention/key_tile.h"
#include "rollout/kv/kv_storage.h"

namespace hone {
namespace {

std::vector<KvGroupShape> groups(std::vector<std::pair<int64_t, int64_t>> windows_and_planes) {
  std::vector<KvGroupShape> out;
  for (const auto& [window, planes] : windows_and_planes)
    out.push_back({.num_kv_heads = 2, .key_dim = 8, .value_dim = 8, .window = window, .planes = planes});
  return out;
}

TEST(KvLayout, EachLayerHasAPlaneOfItsOwnInItsTable) {
  for (const auto& of :
       {groups({{0, 4}}), groups({{64, 5}}), groups({{512, 20}, {0, 4}}), groups({{4096, 13}, {0, 13}}),
        groups({{512, 29}, {0, 5}}), groups({{512, 52}, {0, 10}}), groups({{8, 1}, {16, 2}, {0, 3}})}) {
    const KvLayout layout = tables_by_window(of);
    std::vector<int64_t> windows;  // by layer
    for (const KvGroupShape& group : of) windows.insert(windows.end(), static_cast<size_t>(group.planes), group.window);
    ASSERT_EQ(layout.layers.size(), windows.size());
    EXPECT_LE(layout.num_tables(), 8);
    std::set<std::pair<size_t, size_t>> places;
    for (size_t layer = 0; layer < windows.size(); ++layer) {
      const KvLayout::Place& place = layout.layers[layer];
      EXPECT_TRUE(places.emplace(place.table, place.plane).second);
      EXPECT_EQ(layout.windows.at(place.table), windows[layer]);
      EXPECT_LT(place.plane, layout.planes.size());
    }
    const int64_t allocated = layout.num_tables() * std::ssize(layout.planes), used = std::ssize(windows);
    EXPECT_LE(20 * (allocated - used), 2 * used) << used << " planes in " << allocated;
  }
}

TEST(KvLayout, ABlockHasAsManyPlanesAsLeavesNoneEmpty) {
  const KvLayout five_to_one = tables_by_window(groups({{512, 20}, {0, 4}}));
  EXPECT_EQ(five_to_one.planes.size(), 4u);
  EXPECT_EQ(five_to_one.windows, (std::vector<int64_t>{512, 512, 512, 512, 512, 0}));
  const KvLayout one_to_one = tables_by_window(groups({{512, 6}, {0, 6}}));
  EXPECT_EQ(one_to_one.windows, (std::vector<int64_t>{512, 0}));
  EXPECT_EQ(one_table(groups({{512, 6}, {0, 6}})).windows, (std::vector<int64_t>{0}));
  EXPECT_EQ(tables_by_window(groups({{512, 6}})).windows, (std::vector<int64_t>{512}));
}

// Rows of different shapes cannot take turns in one block: their layers share a table, with the widest window.
TEST(KvLayout, RowsOfDifferentShapesShareATable) {
  std::vector<KvGroupShape> of = groups({{512, 2}, {64, 3}});
  of[1].key_dim = 4;
  KvLayout layout = tables_by_window(of);
  EXPECT_EQ(layout.windows, (std::vector<int64_t>{512}));
  EXPECT_EQ(layout.planes.size(), 5u);
  of[1].window = 0;
  EXPECT_EQ(tables_by_window(of).windows, (std::vector<int64_t>{0}));
}

TEST(KvLayout, BytesPerTokenAreWhatIsAllocated) {
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context(*device);
  std::vector<KvGroupShape> latent = groups({{0, 3}});
  latent[0].num_kv_heads = 1, latent[0].key_dim = 24, latent[0].value_dim = 0;
  for (const auto& of : {groups({{0, 4}}), groups({{512, 5}, {0, 1}}), latent})
    for (const DType dtype : {DType::f32, DType::bf16, DType::u8})
      for (const KvLayout& layout : {one_table(of), tables_by_window(of)}) {
        if (dtype == DType::u8 && of[0].value_dim == 0) continue;  // latents are not stored as fp8
        int64_t each = 0;
        for (const KvGroupShape& group : of) each += group.planes * row_bytes(group, dtype);
        EXPECT_EQ(layout.bytes_per_token(dtype), each);
        constexpr int64_t block_size = 16, blocks = 6;
        const KvStorage storage(context, layout, dtype, block_size, blocks * layout.num_tables());
        const int64_t pad = block_size * layout.slot_bytes(dtype);
        EXPECT_EQ(static_cast<int64_t>(storage.bytes()), blocks * block_size * each + pad);
        size_t tensors = 0;  // a plane counts once for each table
        for (const LayerKv& layer : storage.view().layers)
          for (const Tensor& tensor : {layer.k, layer.v, layer.k_scale, layer.v_scale}) tensors += tensor.bytes();
        EXPECT_EQ(tensors, static_cast<size_t>(layout.num_tables()) * storage.bytes());
      }
  const KvGroupShape row{.num_kv_heads = 2, .key_dim = 8, .value_dim = 6};
  EXPECT_EQ(row_bytes(row, DType::f32), 2 * (8 + 6) * 4);
  EXPECT_EQ(row_bytes(row, DType::u8), 2 * (8 + 4 + 6 + 4));
}

// For every position of a query, and every pass, tables with a window hold no more blocks than the bound says, and
// everything from the first visible key on.
TEST(KvLayout, TheBoundOfAWindowHolds) {
  for (const int64_t window : {1, 5, 128, 200})
    for (const int64_t block_size : {1, 3, 16, 48, 128, 200}) {
      const KvLayout layout = tables_by_window(groups({{window, 1}, {0, 1}}));
      for (const int64_t step : {1, 7, 100})
        for (int64_t position = 0; position < 700; ++position) {
          const int64_t first = layout.first_needed_block(0, position, block_size),
                        end = (position + step + block_size - 1) / block_size;
          ASSERT_LE(first * block_size, std::max<int64_t>(0, position - window + 1));
          ASSERT_LE(end - first, layout.max_held_blocks(0, step, block_size)) << position << " " << window;
        }
      EXPECT_EQ(layout.first_needed_block(1, 600, block_size), 0);
      EXPECT_EQ(layout.max_held_blocks(1, 1, block_size), 0);
    }
}

TEST(KvLayout, TheReportNamesTheBytesAndTheBound) {
  const KvLayout layout = tables_by_window(groups({{512, 5}, {0, 1}}));
  const std::string text = describe(layout, DType::bf16, 16, 1 << 20);
  EXPECT_NE(text.find(concat(6 * 2 * 16 * 2, " bytes per token")), std::string::npos) << text;
  EXPECT_NE(text.find(concat(5 * 2 * 16 * 2, " bytes per token belong to layers with a window")), std::string::npos);
  EXPECT_NE(text.find(concat("at most ", layout.max_window_tokens(16), " tokens")), std::string::npos) << text;
  EXPECT_EQ(describe(one_table(groups({{0, 2}})), DType::bf16, 16, 64).find("window"), std::string::npos);
}

// The number of the docs: how many sequences of 16,384 tokens fit in the memory of 65,536 tokens.
TEST(KvLayout, OneGlobalLayerInSixHoldsFourTimesTheSequences) {
  const KvLayout all = one_table(groups({{512, 20}, {0, 4}})), windows = tables_by_window(groups({{512, 20}, {0, 4}}));
  const int64_t memory = 65536 * all.bytes_per_token(DType::bf16), length = 16384;
  EXPECT_EQ(all.bytes_per_token(DType::bf16), windows.bytes_per_token(DType::bf16));
  EXPECT_EQ(memory / all.sequence_bytes(DType::bf16, length, 16), 4);
  EXPECT_EQ(memory / windows.sequence_bytes(DType::bf16, length, 16), 19);
}

}  // namespace
}  // namespace hone
