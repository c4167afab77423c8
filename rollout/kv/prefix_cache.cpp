#include "rollout/kv/prefix_cache.h"

#include <algorithm>

namespace hone {

// FNV-1a over words.
size_t PrefixCache::Hash::operator()(const Key& key) const {
  constexpr uint64_t prime = 0x100000001b3;
  uint64_t hash = (0xcbf29ce484222325 ^ key.parent) * prime;
  for (const int32_t token : key.tokens) hash = (hash ^ static_cast<uint32_t>(token)) * prime;
  return hash ^ hash >> 32;
}

const PrefixCache::Entry* PrefixCache::find(uint64_t parent, std::span<const int32_t> tokens) const {
  const auto found = entries_.find({parent, {tokens.begin(), tokens.end()}});
  return found == entries_.end() ? nullptr : &found->second;
}

const PrefixCache::Entry& PrefixCache::add(std::span<const int32_t> blocks, uint64_t parent,
                                           std::span<const int32_t> tokens) {
  const auto [found, fresh] = entries_.try_emplace({parent, {tokens.begin(), tokens.end()}});
  Entry& entry = found->second;
  if (fresh) {
    entry.id = next_++;
    entry.blocks.assign(blocks.size(), -1);
  }
  for (size_t table = 0; table < blocks.size(); ++table) {
    if (entry.blocks[table] >= 0 || blocks[table] < 0) continue;
    entry.blocks[table] = blocks[table];
    keys_.emplace(blocks[table], &found->first);
  }
  return entry;
}

uint64_t PrefixCache::root(int64_t adapter) {
  if (adapter == 0) return root_;
  const auto [found, fresh] = adapter_roots_.try_emplace(adapter, next_);
  if (fresh) ++next_;
  return found->second;
}

void PrefixCache::evict(int32_t block) {
  const auto key = keys_.extract(block);
  if (!key) return;
  const auto found = entries_.find(*key.mapped());
  std::vector<int32_t>& blocks = found->second.blocks;
  const auto table = static_cast<size_t>(std::ranges::find(blocks, block) - blocks.begin());
  blocks[table] = -1;
  const bool empty = std::ranges::all_of(blocks, [](int32_t left) { return left < 0; });
  if (windows_[table] > 0 && !empty) return;
  for (const int32_t left : blocks) keys_.erase(left);
  entries_.erase(found);
}

void PrefixCache::clear() {
  entries_.clear();
  keys_.clear();
  adapter_roots_.clear();
  root_ = next_++;
}

}  // namespace hone
