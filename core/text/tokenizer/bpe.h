#pragma once
// Byte-pair encoding of single words (Sennrich et al. 2016): a vocabulary of spellings and a ranked list of merges. The
// merge with the lowest rank (the leftmost among equals) is applied until none is left. Immutable except for a cache of
// one byte per token; any thread may use it.
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hone {

struct BpeOptions {
  // The token of characters without a spelling. Empty: such characters are dropped. A token outside the vocabulary:
  // such characters are Errors.
  std::string unk_token{};
  bool fuse_unk = false;       // neighboring unknown characters become one token
  bool byte_fallback = false;  // an unknown character becomes the tokens <0x00> ... <0xFF> of its bytes
  bool ignore_merges = false;  // a word that is a token becomes that token, even if merges do not produce it
  std::string continuing_subword_prefix{};  // before every character except the first of a word
  std::string end_of_word_suffix{};         // after the last character of a word
};

// A hash table from spellings to ids (open addressing), read-only after construction.
class SpellingIndex {
 public:
  SpellingIndex() = default;
  // `spellings` must outlive the index and stay at its address. Empty spellings have no entry.
  explicit SpellingIndex(const std::vector<std::string>& spellings);
  int32_t find(std::string_view spelling) const;  // -1 if there is none

 private:
  const std::vector<std::string>* spellings_ = nullptr;
  std::vector<std::pair<uint32_t, int32_t>> slots_;  // (hash, id)
};

class Bpe {
 public:
  using Merge = std::pair<std::string, std::string>;

  // spellings: by id; "" for an id without a token. A merge whose parts or result are not in the vocabulary is an Error
  // that names `source`.
  Bpe(std::vector<std::string> spellings, const std::vector<Merge>& merges, BpeOptions options,
      const std::string& source);
  Bpe(const Bpe&) = delete;
  Bpe& operator=(const Bpe&) = delete;

  // Appends the word's ids. Takes O(n log n) for n characters.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

  int32_t find(std::string_view spelling) const { return index_.find(spelling); }
  const std::vector<std::string>& spellings() const { return spellings_; }
  std::vector<Merge> merges() const;  // in order of rank

 private:
  struct Joined {
    uint32_t rank = UINT32_MAX;
    int32_t id = -1;
  };
  struct Slot {
    uint64_t pair = UINT64_MAX;
    Joined joined;
  };
  struct Symbol {
    int32_t id;
    int32_t next, previous;  // -1 at the ends
  };

  void encode_segment(std::string_view segment, std::vector<int32_t>& ids) const;
  void first_symbols(std::string_view word, std::vector<int32_t>& ids) const;
  int32_t character_id(std::string_view character, bool first, bool last) const;
  void merge_short(std::vector<int32_t>& ids, size_t begin) const;
  void merge_long(std::vector<int32_t>& ids, size_t begin) const;
  Joined joined(int32_t left, int32_t right) const;
  void add_merges(const std::vector<Merge>& merges, const std::string& source);

  std::string source_;
  std::vector<std::string> spellings_;
  SpellingIndex index_;
  BpeOptions options_;
  bool affixes_ = false;
  int32_t unk_id_ = -1;
  std::array<int32_t, 256> byte_ids_{};         // of <0x..>, if all 256 exist
  std::array<int32_t, 0x800> character_ids_{};  // of characters of one or two bytes
  std::vector<std::pair<int32_t, int32_t>> merge_pairs_;
  std::vector<Slot> slots_;
  int shift_ = 63;
  size_t longest_spelling_ = 0;
  bool space_mark_begins_segment_ = false;
  // Cache: is a token's spelling, as a word, encoded as that token? 0 unknown, 1 yes, 2 no.
  std::unique_ptr<std::atomic<uint8_t>[]> stands_alone_;
};

}  // namespace hone
