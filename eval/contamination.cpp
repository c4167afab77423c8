#include "eval/contamination.h"

#include <algorithm>

#include "core/text/unicode/unicode.h"
#include "rewards/answers/text.h"

namespace hone {
namespace {

constexpr uint64_t factor = 0x9E3779B97F4A7C15u;  // odd, so that its powers never become 0 modulo 2^64

// Spreads a word's FNV hash over all bits (the finalizer of MurmurHash3).
uint64_t mixed(uint64_t h) {
  h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdu;
  h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53u;
  return h ^ (h >> 33);
}

}  // namespace

void each_word(std::string_view text, FunctionRef<void(uint64_t)> word) {
  constexpr uint64_t start = 0xcbf29ce484222325u;
  uint64_t hash = start;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (is_space(c.value)) {
      if (hash != start) word(mixed(hash));
      hash = start;
    } else if (is_word(c.value)) {
      for (const char byte : text.substr(at, c.length))
        hash = (hash ^ static_cast<uint8_t>(to_lower(byte))) * 0x100000001b3u;
    }
    at += c.length;
  }
  if (hash != start) word(mixed(hash));
}

void each_string(const Json& value, FunctionRef<void(const std::string&)> string) {
  if (value.is_string()) string(value.as_string());
  if (value.is_array())
    for (const Json& item : value.as_array()) each_string(item, string);
  if (value.is_object())
    for (const auto& [name, member] : value.as_object()) each_string(member, string);
}

Contamination::Window::Window(size_t n) : words_(n) {
  for (size_t i = 1; i < n; ++i) oldest_ *= factor;
}

bool Contamination::Window::push(uint64_t word) {
  uint64_t& slot = words_[count_ % words_.size()];
  if (count_ >= words_.size()) hash_ -= slot * oldest_;
  slot = word;
  hash_ = hash_ * factor + word;
  return ++count_ >= words_.size();
}

Contamination::Contamination(int64_t n)
    : n_(static_cast<size_t>(n)), window_(static_cast<size_t>(std::max<int64_t>(n, 1))) {
  HONE_CHECK(n >= 1 && n <= 1024, "contamination: n is ", n, "; it must be in [1, 1024] words");
}

void Contamination::add_row(const Json& row, const std::string& where) {
  rows_.push_back({.where = where, .found_in = {}});
  each_string(row, [&](const std::string& text) {
    Window window(n_);
    size_t words = 0;
    each_word(text, [&](uint64_t word) {
      ++words;
      if (window.push(word)) index_[window.hash()].push_back({texts_.size(), words - n_});
    });
    if (words < n_) return;
    texts_.push_back({rows_.size() - 1, std::vector<bool>(words)});
    rows_.back().num_words += static_cast<int64_t>(words);
  });
}

void Contamination::begin_document(std::string where) {
  document_ = std::move(where);
  window_.clear();
  ++num_documents_;
}

void Contamination::add_text(std::string_view text) {
  each_word(text, [&](uint64_t word) {
    ++num_words_;
    if (!window_.push(word)) return;
    const auto match = index_.find(window_.hash());
    if (match == index_.end()) return;
    mark_covered(match->second);
    index_.erase(match);
  });
}

void Contamination::mark_covered(const std::vector<NgramPosition>& positions) {
  for (const NgramPosition& position : positions) {
    Text& text = texts_[position.text];
    Row& row = rows_[text.row];
    if (row.found_in.empty()) row.found_in = document_;
    for (size_t w = position.word; w < position.word + n_; ++w) {
      row.num_covered += !text.covered[w];
      text.covered[w] = true;
    }
  }
}

static double share(int64_t part, int64_t total) {
  return total > 0 ? static_cast<double>(part) / static_cast<double>(total) : 0;
}

Json Contamination::Row::to_json() const {
  return JsonObject{{"row", where},
                    {"share", share(num_covered, num_words)},
                    {"words", num_words},
                    {"covered", num_covered},
                    {"found_in", found_in}};
}

Json Contamination::summary() const {
  int64_t checked = 0, flagged = 0, mostly = 0, words = 0, covered = 0;
  for (const Row& row : rows_) {
    checked += row.num_words > 0;
    flagged += row.num_covered > 0;
    mostly += row.num_words > 0 && 5 * row.num_covered >= 4 * row.num_words;
    words += row.num_words;
    covered += row.num_covered;
  }
  return JsonObject{{"rows", rows_.size()},
                    {"checked", checked},
                    {"flagged", flagged},
                    {"flagged_share", share(flagged, checked)},
                    {"word_share", share(covered, words)},
                    {"mostly_covered", mostly},
                    {"n", n_},
                    {"documents", num_documents_},
                    {"words", num_words_}};
}

}  // namespace hone
