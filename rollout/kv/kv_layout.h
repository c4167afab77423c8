#pragma once
// KvLayout: how the layers of a model share the blocks of a paged KV cache. A block holds block_size tokens of a fixed
// number of planes. Each block table of a sequence covers at most as many layers as a block has planes. Layers with a
// sliding window have tables of their own, whose blocks are given back as soon as no later query sees them. All tables
// take their blocks from one pool, so that any table can use a block that another one has given back (as the hybrid KV
// cache of vLLM does).
#include <span>
#include <string>
#include <vector>

#include "core/device/dtype.h"
#include "model/kv_groups.h"

namespace hone {

struct KvLayout {
  struct Place {
    size_t table = 0, plane = 0;
  };
  std::vector<int64_t> windows;      // of each table; 0: its blocks live as long as the sequence
  std::vector<Place> layers;         // by index in KvView::layers
  std::vector<KvGroupShape> planes;  // of a block: the shape of their rows; `window` and `planes` are not set

  int64_t num_tables() const { return static_cast<int64_t>(windows.size()); }
  // Bytes of a token in one block.
  int64_t slot_bytes(DType dtype) const;
  // Bytes that a token takes in all tables. A token that no window sees any more takes those of the tables without a
  // window only.
  int64_t bytes_per_token(DType dtype) const { return num_tables() * slot_bytes(dtype); }
  // The first block of a table that the query at `position` or a later one may read. Kernels read whole key tiles.
  int64_t first_needed_block(size_t table, int64_t position, int64_t block_size) const;
  // The most blocks of a table that a sequence holds at once if it computes `step` tokens in a pass: 0 = no bound.
  int64_t max_held_blocks(size_t table, int64_t step, int64_t block_size) const;
  // The most tokens whose KV blocks a decoding sequence holds in a table with a window: 0 = no windows.
  int64_t max_window_tokens(int64_t block_size) const;
  // The most bytes that a sequence of `tokens` tokens holds while it decodes.
  int64_t sequence_bytes(DType dtype, int64_t tokens, int64_t block_size) const;
};

// Bytes that one plane keeps of a token: keys and values, and with e4m3 (u8) their scales.
int64_t row_bytes(const KvGroupShape& shape, DType dtype);

// All layers in one table, whose blocks live as long as the sequence.
KvLayout one_table(std::span<const KvGroupShape> groups);
// Tables for each window. Groups with rows of different shapes share one table, with the widest window.
KvLayout tables_by_window(std::span<const KvGroupShape> groups);

// The memory of a KV cache with `num_blocks` blocks and the pad block.
size_t kv_storage_bytes(const KvLayout& layout, DType dtype, int64_t block_size, int64_t num_blocks);

// What a KV cache of `tokens` tokens takes, for people: bytes, bytes per token, and the bound of windows.
std::string describe(const KvLayout& layout, DType dtype, int64_t block_size, int64_t tokens);

}  // namespace hone
