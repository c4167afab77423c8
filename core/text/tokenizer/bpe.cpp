#include "core/text/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "core/base/check.h"
#include "core/text/unicode/unicode.h"

namespace hone {
namespace {

constexpr std::string_view space_mark = "\u2581";
constexpr size_t short_word = 32;

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}
uint64_t scramble(uint64_t key) {
  key = (key ^ key >> 32) * 0x9E3779B97F4A7C15u;
  return (key ^ key >> 29) * 0xBF58476D1CE4E5B9u;
}
uint32_t hash_of(std::string_view text) { return static_cast<uint32_t>(std::hash<std::string_view>()(text)); }

std::string byte_token(int byte) {
  constexpr char digits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
}

}  // namespace

SpellingIndex::SpellingIndex(const std::vector<std::string>& spellings)
    : spellings_(&spellings), slots_(std::bit_ceil(spellings.size() * 2 + 2), {0, -1}) {
  for (size_t id = 0; id < spellings.size(); ++id) {
    if (spellings[id].empty()) continue;
    const uint32_t hash = hash_of(spellings[id]);
    size_t at = hash & (slots_.size() - 1);
    while (slots_[at].second >= 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {hash, static_cast<int32_t>(id)};
  }
}

int32_t SpellingIndex::find(std::string_view spelling) const {
  const uint32_t hash = hash_of(spelling);
  for (size_t at = hash & (slots_.size() - 1); slots_[at].second >= 0; at = (at + 1) & (slots_.size() - 1))
    if (slots_[at].first == hash && (*spellings_)[static_cast<size_t>(slots_[at].second)] == spelling)
      return slots_[at].second;
  return -1;
}

Bpe::Bpe(std::vector<std::string> spellings, const std::vector<Merge>& merges, BpeOptions options,
         const std::string& source)
    : source_(source), spellings_(std::move(spellings)), index_(spellings_), options_(std::move(options)) {
  affixes_ = !options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty();
  if (!options_.unk_token.empty()) unk_id_ = find(options_.unk_token);
  for (int b = 0; b < 256; ++b) byte_ids_[static_cast<size_t>(b)] = options_.byte_fallback ? find(byte_token(b)) : -1;
  for (char32_t c = 0; c < character_ids_.size(); ++c) {
    std::string character;
    append_utf8(character, c);
    character_ids_[c] = find(character);
  }
  for (const std::string& spelling : spellings_) longest_spelling_ = std::max(longest_spelling_, spelling.size());
  add_merges(merges, source);
  stands_alone_ = std::make_unique<std::atomic<uint8_t>[]>(spellings_.size());

  // True if no merge joins a space mark to a preceding character that is no space mark. Words may then be cut there
  // without changing a result.
  space_mark_begins_segment_ = !affixes_ && find(space_mark) >= 0;
  for (const auto& [left, right] : merge_pairs_)
    if (spellings_[static_cast<size_t>(right)].starts_with(space_mark) &&
        !spellings_[static_cast<size_t>(left)].ends_with(space_mark))
      space_mark_begins_segment_ = false;
}

void Bpe::add_merges(const std::vector<Merge>& merges, const std::string& source) {
  const size_t capacity = std::bit_ceil(merges.size() * 2 + 2);
  slots_.resize(capacity);
  shift_ = 64 - std::countr_zero(capacity);
  merge_pairs_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const int32_t left_id = find(left), right_id = find(right);
    HONE_CHECK(left_id >= 0 && right_id >= 0, source, ": model.merges[", rank, "]: '", left_id < 0 ? left : right,
               "' is not in the vocabulary");
    const std::string& prefix = options_.continuing_subword_prefix;
    const std::string result = left + (right.starts_with(prefix) ? right.substr(prefix.size()) : right);
    const int32_t id = find(result);
    HONE_CHECK(id >= 0, source, ": model.merges[", rank, "]: the result '", result, "' is not in the vocabulary");
    const uint64_t key = pair_key(left_id, right_id);
    size_t at = scramble(key) >> shift_;
    while (slots_[at].pair != UINT64_MAX && slots_[at].pair != key) at = (at + 1) & (capacity - 1);
    slots_[at] = {
        key,
        {static_cast<uint32_t>(rank), id}};  // the later rank of a repeated pair counts, as in Hugging Face's reader
    merge_pairs_.emplace_back(left_id, right_id);
  }
}

Bpe::Joined Bpe::joined(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  for (size_t at = scramble(key) >> shift_;; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].pair == key) return slots_[at].joined;
    if (slots_[at].pair == UINT64_MAX) return {};
  }
}

std::vector<Bpe::Merge> Bpe::merges() const {
  std::vector<Merge> out;
  out.reserve(merge_pairs_.size());
  for (const auto& [left, right] : merge_pairs_)
    out.emplace_back(spellings_[static_cast<size_t>(left)], spellings_[static_cast<size_t>(right)]);
  return out;
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (options_.ignore_merges)
    if (const int32_t id = find(word); id >= 0) {
      ids.push_back(id);
      return;
    }
  if (!space_mark_begins_segment_) return encode_segment(word, ids);
  size_t begin = 0;
  for (size_t at = word.find(space_mark, 1); at < word.size(); at = word.find(space_mark, at + space_mark.size())) {
    if (word.substr(begin, at - begin).ends_with(space_mark)) continue;
    encode_segment(word.substr(begin, at - begin), ids);
    begin = at;
  }
  encode_segment(word.substr(begin), ids);
}

void Bpe::encode_segment(std::string_view segment, std::vector<int32_t>& ids) const {
  if (segment.empty()) return;
  const int32_t word_id = !affixes_ && segment.size() <= longest_spelling_ ? find(segment) : -1;
  const uint8_t known = word_id >= 0 ? stands_alone_[static_cast<size_t>(word_id)].load(std::memory_order_relaxed) : 2;
  if (known == 1) {
    ids.push_back(word_id);
    return;
  }
  const size_t begin = ids.size();
  first_symbols(segment, ids);
  if (ids.size() - begin <= short_word)
    merge_short(ids, begin);
  else
    merge_long(ids, begin);
  if (known == 0) {
    const bool alone = ids.size() == begin + 1 && ids.back() == word_id;
    stands_alone_[static_cast<size_t>(word_id)].store(alone ? 1 : 2, std::memory_order_relaxed);
  }
}

int32_t Bpe::character_id(std::string_view character, bool first, bool last) const {
  if (!affixes_) return find(character);
  std::string spelling = first ? std::string() : options_.continuing_subword_prefix;
  spelling += character;
  if (last) spelling += options_.end_of_word_suffix;
  return find(spelling);
}

void Bpe::first_symbols(std::string_view word, std::vector<int32_t>& ids) const {
  bool after_unk = false;
  for (size_t at = 0; at < word.size();) {
    const CodePoint c = code_point_at(word, at);
    const std::string_view character = word.substr(at, c.length);
    int32_t id = -1;
    if (c.valid)
      id = c.value < character_ids_.size() && !affixes_
               ? character_ids_[c.value]
               : character_id(character, at == 0, at + c.length == word.size());
    at += c.length;
    if (id >= 0) {
      ids.push_back(id);
      after_unk = false;
      continue;
    }
    const auto byte_id = [this](char b) { return byte_ids_[static_cast<uint8_t>(b)]; };
    if (std::all_of(character.begin(), character.end(), [&](char b) { return byte_id(b) >= 0; })) {
      for (const char b : character) ids.push_back(byte_id(b));
      after_unk = false;
    } else if (unk_id_ >= 0) {
      if (!after_unk || !options_.fuse_unk) ids.push_back(unk_id_);
      after_unk = true;
    } else {
      HONE_CHECK(options_.unk_token.empty(), source_, ": no token for the character '", character,
                 "', and model.unk_token '", options_.unk_token, "' is not in the vocabulary");
    }
  }
}

// For few symbols: searches the ranks of all adjacent pairs.
void Bpe::merge_short(std::vector<int32_t>& ids, size_t begin) const {
  size_t n = ids.size() - begin;
  if (n < 2) return;
  int32_t* symbol = ids.data() + begin;
  std::array<Joined, short_word> pairs;
  for (size_t i = 0; i + 1 < n; ++i) pairs[i] = joined(symbol[i], symbol[i + 1]);
  for (; n > 1;) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].id < 0) break;
    symbol[best] = pairs[best].id;
    std::copy(symbol + best + 2, symbol + n, symbol + best + 1);
    std::copy(pairs.begin() + static_cast<std::ptrdiff_t>(best) + 1, pairs.begin() + static_cast<std::ptrdiff_t>(n) - 1,
              pairs.begin() + static_cast<std::ptrdiff_t>(best));
    --n;
    if (best > 0) pairs[best - 1] = joined(symbol[best - 1], symbol[best]);
    if (best + 1 < n) pairs[best] = joined(symbol[best], symbol[best + 1]);
  }
  ids.resize(begin + n);
}

// For many symbols: a linked list and a heap of candidates; outdated candidates are dropped when they are popped.
void Bpe::merge_long(std::vector<int32_t>& ids, size_t begin) const {
  const size_t n = ids.size() - begin;
  HONE_CHECK(n < INT32_MAX, "a word has ", n, " characters; the limit is ", INT32_MAX);
  std::vector<Symbol> symbols(n);
  for (size_t i = 0; i < n; ++i)
    symbols[i] = {ids[begin + i], i + 1 < n ? static_cast<int32_t>(i + 1) : -1, static_cast<int32_t>(i) - 1};

  struct Candidate {
    uint32_t rank;
    int32_t place, left, right, id;
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](int32_t place) {
    if (place < 0) return;
    const Symbol& left = symbols[static_cast<size_t>(place)];
    if (left.next < 0) return;
    const int32_t right = symbols[static_cast<size_t>(left.next)].id;
    if (const Joined both = joined(left.id, right); both.id >= 0)
      candidates.push({both.rank, place, left.id, right, both.id});
  };
  for (size_t i = 0; i + 1 < n; ++i) consider(static_cast<int32_t>(i));
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbols[static_cast<size_t>(best.place)];
    if (left.id != best.left || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (right.id != best.right) continue;
    left.id = best.id;
    right.id = -1;  // merged into the left symbol
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.place;
    consider(left.previous);
    consider(best.place);
  }
  ids.resize(begin);
  for (int32_t at = 0; at >= 0; at = symbols[static_cast<size_t>(at)].next)
    ids.push_back(symbols[static_cast<size_t>(at)].id);
}

}  // namespace hone
