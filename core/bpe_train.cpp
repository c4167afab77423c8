#include "core/bpe_train.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "core/added_tokens.h"
#include "core/byte_level.h"
#include "core/parallel_for.h"
#include "core/pre_tokenizer.h"

namespace hone {
namespace {

using WordCounts = std::unordered_map<std::string, int64_t>;
constexpr size_t batch_bytes = size_t{16} << 20;

Json pre_tokenizer_json(const std::string& pattern) {
  const auto byte_level = [](bool use_regex) { return Json(JsonObject{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}}); };
  if (pattern.empty()) return byte_level(true);
  const Json split = JsonObject{{"type", "Split"}, {"pattern", JsonObject{{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return JsonObject{{"type", "Sequence"}, {"pretokenizers", JsonArray{split, byte_level(false)}}};
}

// How often each word (spelled in the byte alphabet) occurs. Sums, so neither threads nor batches matter.
class WordCounter {
 public:
  explicit WordCounter(const BpeTrainOptions& options) : words_(make_pre_tokenizer(pre_tokenizer_json(options.pattern), "bpe training: pattern")) {
    std::vector<AddedToken> special;
    for (const std::string& token : options.special_tokens) special.push_back({.content = token, .special = true});
    special_ = AddedTokenMatcher(std::move(special));
  }

  WordCounts count(const std::function<bool(std::string&)>& next) {
    WordCounts total;
    std::vector<std::string> batch;
    size_t bytes = 0;
    const auto flush = [&] {
      add_batch(batch, total);
      batch.clear();
      bytes = 0;
    };
    for (std::string text; next(text); text.clear()) {
      bytes += text.size();
      batch.push_back(std::move(text));
      if (bytes >= batch_bytes) flush();
    }
    flush();
    return total;
  }

 private:
  void add_batch(const std::vector<std::string>& batch, WordCounts& total) const {
    const auto pieces = std::min<int64_t>(static_cast<int64_t>(batch.size()), 4 * num_threads());
    std::vector<WordCounts> counts(static_cast<size_t>(pieces));
    parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece)
        for (size_t i = static_cast<size_t>(piece); i < batch.size(); i += static_cast<size_t>(pieces)) add_text(batch[i], counts[static_cast<size_t>(piece)]);
    });
    for (const WordCounts& part : counts)
      for (const auto& [word, times] : part) total[word] += times;
  }
  void add_text(std::string_view text, WordCounts& counts) const {
    special_.each(
        text, true,
        [&](size_t begin, size_t end) {
          words_->split(text.substr(begin, end - begin), begin == 0, [&](std::string_view word, bool) {
            if (!word.empty()) ++counts[std::string(word)];
          });
        },
        [](int32_t) {});
  }

  std::unique_ptr<PreTokenizer> words_;
  AddedTokenMatcher special_;
};

struct Word {
  std::vector<int32_t> symbols;
  int64_t count = 0;
};

struct Pair {
  int32_t left = 0, right = 0;
  bool operator==(const Pair&) const = default;
};
struct PairHash {
  size_t operator()(Pair p) const { return (uint64_t{static_cast<uint32_t>(p.left)} << 32 | static_cast<uint32_t>(p.right)) * 0x9E3779B97F4A7C15u >> 7; }
};

// Counts of all neighbouring pairs, kept up to date while words are merged.
class Merger {
 public:
  Merger(std::vector<Word> words, std::vector<std::string>& vocab) : words_(std::move(words)), vocab_(vocab), queue_(Less{vocab}) {
    for (size_t w = 0; w < words_.size(); ++w)
      for (size_t i = 0; i + 1 < words_[w].symbols.size(); ++i) add({words_[w].symbols[i], words_[w].symbols[i + 1]}, words_[w].count, static_cast<uint32_t>(w));
    push_fresh();
  }

  // The most frequent pair, the greater byte strings among equals; false when none occurs min_count times.
  bool best(int64_t min_count, Pair& out) {
    while (!queue_.empty()) {
      const Entry top = queue_.top();
      const int64_t now = pairs_.at(top.pair).count;
      if (now == top.count && now > 0) {
        out = top.pair;
        return now >= min_count;
      }
      queue_.pop();
      if (now > 0 && now < top.count) queue_.push({now, top.pair});
    }
    return false;
  }

  // Replaces the pair by `symbol` in every word.
  void merge(Pair pair, int32_t symbol) {
    const std::vector<uint32_t> places = std::move(pairs_.at(pair).words);
    for (const uint32_t w : places) merge_in(w, pair, symbol);
    pairs_.erase(pair);
    std::erase_if(fresh_, [&](Pair p) { return p == pair; });
    drop(pair);
    push_fresh();
  }

 private:
  struct Entry {
    int64_t count;
    Pair pair;
  };
  struct Less {
    const std::vector<std::string>& vocab;
    bool operator()(const Entry& a, const Entry& b) const {
      if (a.count != b.count) return a.count < b.count;
      const auto bytes = [&](int32_t id) -> const std::string& { return vocab[static_cast<size_t>(id)]; };
      if (const int order = bytes(a.pair.left).compare(bytes(b.pair.left)); order != 0) return order < 0;
      return bytes(a.pair.right) < bytes(b.pair.right);
    }
  };
  struct Occurrences {
    int64_t count = 0;
    std::vector<uint32_t> words;   // every word that holds the pair; some may hold it no more, or be named twice
  };

  void add(Pair pair, int64_t count, uint32_t word) {
    Occurrences& entry = pairs_[pair];
    if (entry.words.empty() || entry.words.back() != word) entry.words.push_back(word);
    if (entry.count == 0) fresh_.push_back(pair);
    entry.count += count;
  }
  void push_fresh();
  void merge_in(uint32_t w, Pair pair, int32_t symbol);
  void drop(Pair pair);

  std::vector<Word> words_;
  const std::vector<std::string>& vocab_;
  std::unordered_map<Pair, Occurrences, PairHash> pairs_;
  std::priority_queue<Entry, std::vector<Entry>, Less> queue_;
  std::vector<Pair> fresh_;
};

}  // namespace
}  // namespace hone
