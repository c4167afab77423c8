#pragma once
// PrefixCache: finds KV blocks by their tokens. The key of an entry is the tokens of a full block and the id of the
// entry before it, or root(). Lookup is by hash and compares whole keys, so that two texts are never confused. An id is
// never used twice: the successors of a dropped entry cannot be found any more.
//
// An entry has a block of each table (rollout/kv/kv_layout.h). Blocks of a table with a window are freed early, and may
// be evicted while the entry stays: the caller checks that the blocks of the window are there.
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace hone {

// One thread.
class PrefixCache {
 public:
  // windows: of each table; 0 = none.
  explicit PrefixCache(std::vector<int64_t> windows) : windows_(std::move(windows)) {}
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  struct Entry {
    std::vector<int32_t> blocks;  // by table; -1: not there
    uint64_t id = 0;
  };
  uint64_t root() const { return root_; }
  // The root of an adapter's sequences, whose keys and values differ from those of the model; 0 = root().
  uint64_t root(int64_t adapter);
  // Valid until the next call that is not const; null: no such entry.
  const Entry* find(uint64_t parent, std::span<const int32_t> tokens) const;
  // Adds the blocks (by table; -1: none) that hold `tokens` after `parent`. Tables of which the entry has a block keep
  // that one.
  const Entry& add(std::span<const int32_t> blocks, uint64_t parent, std::span<const int32_t> tokens);
  bool has(int32_t block) const { return keys_.contains(block); }
  // Takes the block out of its entry. Drops the entry if the block's table has no window, or if no block is left.
  void evict(int32_t block);
  // Drops all entries and changes the roots: entries added after an old root are never found.
  void clear();

 private:
  struct Key {
    uint64_t parent = 0;
    std::vector<int32_t> tokens;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  std::vector<int64_t> windows_;
  uint64_t root_ = 0, next_ = 1;
  std::unordered_map<int64_t, uint64_t> adapter_roots_;
  std::unordered_map<Key, Entry, Hash> entries_;
  std::unordered_map<int32_t, const Key*> keys_;  // of each cached block; points into entries_
};

}  // namespace hone
