#pragma once
// PrefixCache: which blocks of a KV cache hold which tokens. A full block is known by its tokens and by what comes
// before it: the name of the block before, or root(). Found by hash, compared whole: two texts are never taken for each
// other. Names are numbers that are never given twice, so that what followed a forgotten block is found no more.
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace hone {

class PrefixCache {
 public:
  PrefixCache() = default;
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  struct Found {
    int32_t block = 0;
    uint64_t name = 0;
  };
  uint64_t root() const { return root_; }
  std::optional<Found> find(uint64_t parent, std::span<const int32_t> tokens) const;
  // Names the block that holds `tokens` after `parent`. Where another block holds the same already, this one stays
  // unnamed and that one is returned.
  Found add(int32_t block, uint64_t parent, std::span<const int32_t> tokens);
  bool has(int32_t block) const { return keys_.contains(block); }
  void forget(int32_t block);
  // Forgets all, and takes another root: what is added after the old one is found by nobody.
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
  uint64_t root_ = 0, next_ = 1;
  std::unordered_map<Key, Found, Hash> blocks_;
  std::unordered_map<int32_t, const Key*> keys_;  // of each named block, in blocks_
};

}  // namespace hone
