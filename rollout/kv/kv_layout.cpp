#include "rollout/kv/kv_layout.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/config/byte_size.h"
#include "kernels/attention/key_tile.h"

namespace hone {
namespace {

constexpr int64_t max_tables = 8;  // each pass copies its tables to the device

bool equal_rows(const KvGroupShape& a, const KvGroupShape& b) {
  return a.num_kv_heads == b.num_kv_heads && a.key_dim == b.key_dim && a.value_dim == b.value_dim;
}

KvGroupShape row_shape(const KvGroupShape& group) {
  return {.num_kv_heads = group.num_kv_heads, .key_dim = group.key_dim, .value_dim = group.value_dim};
}

int64_t widest_window(std::span<const KvGroupShape> groups) {
  int64_t widest = 0;
  for (const KvGroupShape& group : groups) {
    if (group.window == 0) return 0;
    widest = std::max(widest, group.window);
  }
  return widest;
}

// Tables that cover all layers, if a block has `planes` planes.
int64_t tables_of(std::span<const int64_t> layers, int64_t planes) {
  int64_t tables = 0;
  for (const int64_t count : layers) tables += (count + planes - 1) / planes;
  return tables;
}

// The number of planes of a block, for windows with these numbers of layers: the one that leaves the fewest planes of
// tables empty; among equals the largest.
int64_t best_planes(std::span<const int64_t> layers) {
  int64_t best = std::ranges::max(layers);
  for (int64_t planes = best; planes > 0 && tables_of(layers, planes) <= max_tables; --planes)
    if (tables_of(layers, planes) * planes < tables_of(layers, best) * best) best = planes;
  return best;
}

}  // namespace

int64_t row_bytes(const KvGroupShape& shape, DType dtype) {
  const int64_t tensors = shape.value_dim > 0 ? 2 : 1, numbers = shape.key_dim + shape.value_dim;
  const int64_t scales = dtype == DType::u8 ? tensors * static_cast<int64_t>(size_of(DType::f32)) : 0;
  return shape.num_kv_heads * (numbers * static_cast<int64_t>(size_of(dtype)) + scales);
}

int64_t KvLayout::slot_bytes(DType dtype) const {
  int64_t out = 0;
  for (const KvGroupShape& plane : planes) out += row_bytes(plane, dtype);
  return out;
}

size_t kv_storage_bytes(const KvLayout& layout, DType dtype, int64_t block_size, int64_t num_blocks) {
  constexpr size_t alignment = 16;  // of the scales, which follow the numbers
  const auto bytes = static_cast<size_t>((num_blocks + 1) * block_size * layout.slot_bytes(dtype));
  return (bytes + alignment - 1) / alignment * alignment;
}

int64_t KvLayout::first_needed_block(size_t table, int64_t position, int64_t block_size) const {
  const int64_t window = windows[table];
  if (window == 0 || position < window) return 0;
  return (position - window + 1) / max_key_tile * max_key_tile / block_size;
}

int64_t KvLayout::max_held_blocks(size_t table, int64_t step, int64_t block_size) const {
  if (windows[table] == 0) return 0;
  const int64_t keys = windows[table] - 1 + step + max_key_tile - 1;
  return (keys + 2 * block_size - 2) / block_size;
}

int64_t KvLayout::max_window_tokens(int64_t block_size) const {
  int64_t out = 0;
  for (size_t table = 0; table < windows.size(); ++table)
    out = std::max(out, max_held_blocks(table, 1, block_size) * block_size);
  return out;
}

int64_t KvLayout::sequence_bytes(DType dtype, int64_t tokens, int64_t block_size) const {
  int64_t blocks = 0;
  for (size_t table = 0; table < windows.size(); ++table) {
    const int64_t all = (tokens + block_size - 1) / block_size;
    blocks += windows[table] == 0 ? all : std::min(all, max_held_blocks(table, 1, block_size));
  }
  return blocks * block_size * slot_bytes(dtype);
}

KvLayout one_table(std::span<const KvGroupShape> groups) {
  KvLayout out{.windows = {0}, .layers = {}, .planes = {}};
  for (const KvGroupShape& group : groups)
    for (int64_t i = 0; i < group.planes; ++i) {
      out.layers.push_back({0, out.planes.size()});
      out.planes.push_back(row_shape(group));
    }
  return out;
}

KvLayout tables_by_window(std::span<const KvGroupShape> groups) {
  const bool equal = std::ranges::all_of(groups, [&](const auto& group) { return equal_rows(group, groups[0]); });
  if (groups.size() < 2 || !equal || std::ssize(groups) > max_tables) {
    KvLayout out = one_table(groups);
    out.windows = {widest_window(groups)};
    return out;
  }
  std::vector<int64_t> layers;
  for (const KvGroupShape& group : groups) layers.push_back(group.planes);
  const auto planes = static_cast<size_t>(best_planes(layers));
  KvLayout out;
  out.planes.assign(planes, row_shape(groups[0]));
  for (const KvGroupShape& group : groups)
    for (size_t i = 0; i < static_cast<size_t>(group.planes); ++i) {
      if (i % planes == 0) out.windows.push_back(group.window);
      out.layers.push_back({out.windows.size() - 1, i % planes});
    }
  return out;
}

std::string describe(const KvLayout& layout, DType dtype, int64_t block_size, int64_t tokens) {
  const int64_t each = layout.bytes_per_token(dtype), used = tokens / block_size * block_size;
  std::string out = concat("KV cache: ", used, " tokens, ", each, " bytes per token, ", byte_size_text(used * each));
  if (const int64_t bound = layout.max_window_tokens(block_size); bound > 0) {
    const auto windowed = std::ranges::count_if(layout.windows, [](int64_t window) { return window > 0; });
    out += concat("; ", windowed * layout.slot_bytes(dtype), " bytes per token belong to layers with a window, which ",
                  "keep at most ", bound, " tokens of a decoding sequence");
  }
  return out;
}

}  // namespace hone
