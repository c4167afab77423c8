#include "core/text/tokenizer/bpe_train.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "core/base/parallel_for.h"
#include "core/text/tokenizer/added_tokens.h"
#include "core/text/tokenizer/byte_level.h"
#include "core/text/tokenizer/pre_tokenizer.h"

namespace hone {
namespace {

using WordCounts = std::unordered_map<std::string, int64_t>;
constexpr size_t batch_bytes = size_t{16} << 20;

Json pre_tokenizer_json(const std::string& pattern) {
  const auto byte_level = [](bool use_regex) {
    return Json(JsonObject{
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}});
  };
  if (pattern.empty()) return byte_level(true);
  const Json split = JsonObject{
      {"type", "Split"}, {"pattern", JsonObject{{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return JsonObject{{"type", "Sequence"}, {"pretokenizers", JsonArray{split, byte_level(false)}}};
}

// Counts each word (spelled in the byte alphabet). Counts are sums, so neither threads nor batches matter.
class WordCounter {
 public:
  explicit WordCounter(const BpeTrainOptions& options)
      : words_(make_pre_tokenizer(pre_tokenizer_json(options.pattern), "bpe training: pattern")) {
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
    const auto pieces = std::min<int64_t>(static_cast<int64_t>(batch.size()), int64_t{4} * num_threads());
    std::vector<WordCounts> counts(static_cast<size_t>(pieces));
    parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece)
        for (size_t i = static_cast<size_t>(piece); i < batch.size(); i += static_cast<size_t>(pieces))
          add_text(batch[i], counts[static_cast<size_t>(piece)]);
    });
    for (const WordCounts& part : counts)
      for (const auto& [word, times] : part) total[word] += times;
  }
  void add_text(std::string_view text, WordCounts& counts) const {
    special_.each(
        text, true,
        [&](size_t begin, size_t end) {
          const TextStart start = begin == 0 ? TextStart::text : TextStart::part;
          words_->split(text.substr(begin, end - begin), start, [&](std::string_view word, TextStart) {
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
  size_t operator()(Pair p) const {
    return (uint64_t{static_cast<uint32_t>(p.left)} << 32 | static_cast<uint32_t>(p.right)) * 0x9E3779B97F4A7C15u >> 7;
  }
};

// The symbols of the words and the counts of all neighboring pairs, both always exact.
class Merger {
 public:
  Merger(std::vector<Word> words, const std::vector<std::string>& vocab)
      : words_(std::move(words)), queue_(Less{vocab}) {
    for (uint32_t w = 0; w < words_.size(); ++w)
      for (size_t i = 0; i + 1 < words_[w].symbols.size(); ++i)
        increase({words_[w].symbols[i], words_[w].symbols[i + 1]}, w);
    push_increased();
  }

  // Returns the most frequent pair that occurs at least min_count times, if there is one. Among equals the pair with
  // the greater byte strings wins.
  std::optional<Pair> best(int64_t min_count) {
    while (!queue_.empty()) {
      const Entry top = queue_.top();
      const int64_t now = pairs_.at(top.pair).count;
      if (now == top.count) return now >= min_count ? std::optional(top.pair) : std::nullopt;
      queue_.pop();
      if (now > 0 && now < top.count) queue_.push({now, top.pair});
    }
    return std::nullopt;
  }

  // Replaces the pair by `symbol` in every word.
  void merge(Pair pair, int32_t symbol) {
    const std::vector<uint32_t> places = std::exchange(pairs_.at(pair).words, {});
    for (const uint32_t w : places) merge_in(w, pair, symbol);
    push_increased();
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
      const auto bytes = [this](int32_t id) -> const std::string& { return vocab[static_cast<size_t>(id)]; };
      const int order = bytes(a.pair.left).compare(bytes(b.pair.left));
      return order != 0 ? order < 0 : bytes(a.pair.right) < bytes(b.pair.right);
    }
  };
  struct Occurrences {
    int64_t count = 0;
    std::vector<uint32_t> words;  // every word with the pair; may also have repeats and words that no longer have it
    bool increased = false;
  };

  void increase(Pair pair, uint32_t w) {
    Occurrences& entry = pairs_[pair];
    entry.count += words_[w].count;
    if (entry.words.empty() || entry.words.back() != w) entry.words.push_back(w);
    if (!entry.increased) increased_.push_back(pair);
    entry.increased = true;
  }
  void decrease(Pair pair, uint32_t w) { pairs_.at(pair).count -= words_[w].count; }

  // For every pair the queue has an entry of at least its count. A count that fell is corrected when its entry is
  // popped.
  void push_increased() {
    for (const Pair pair : increased_) {
      Occurrences& entry = pairs_.at(pair);
      entry.increased = false;
      if (entry.count > 0) queue_.push({entry.count, pair});
    }
    increased_.clear();
  }

  void merge_in(uint32_t w, Pair pair, int32_t symbol) {
    std::vector<int32_t>& s = words_[w].symbols;
    size_t kept = 0;  // the word is s[0, kept) followed by s[i, ...)
    for (size_t i = 0; i < s.size();) {
      if (i + 1 == s.size() || s[i] != pair.left || s[i + 1] != pair.right) {
        s[kept++] = s[i++];
        continue;
      }
      decrease(pair, w);
      if (kept > 0) {
        decrease({s[kept - 1], pair.left}, w);
        increase({s[kept - 1], symbol}, w);
      }
      if (i + 2 < s.size()) {
        decrease({pair.right, s[i + 2]}, w);
        increase({symbol, s[i + 2]}, w);
      }
      s[kept++] = symbol;
      i += 2;
    }
    s.resize(kept);
  }

  std::vector<Word> words_;
  std::unordered_map<Pair, Occurrences, PairHash> pairs_;
  std::priority_queue<Entry, std::vector<Entry>, Less> queue_;
  std::vector<Pair> increased_;
};

std::vector<Word> words_as_symbols(const WordCounts& counts, const std::vector<int32_t>& byte_ids) {
  std::vector<Word> words;
  words.reserve(counts.size());
  for (const auto& [spelling, count] : counts) {
    Word word;
    word.count = count;
    const std::string bytes = unspell_bytes(spelling).value();
    for (const char b : bytes) word.symbols.push_back(byte_ids[static_cast<uint8_t>(b)]);
    words.push_back(std::move(word));
  }
  return words;
}

void check(const BpeTrainOptions& options) {
  std::unordered_set<std::string_view> names;
  for (const std::string& token : options.special_tokens) {
    HONE_CHECK(!token.empty(), "bpe training: a special token is empty");
    HONE_CHECK(unspell_bytes(token).value_or("").size() != 1, "bpe training: special token '", token,
               "' is spelled as one of the 256 bytes");
    HONE_CHECK(names.insert(token).second, "bpe training: special token '", token, "' is given twice");
  }
  const auto least = static_cast<int64_t>(256 + options.special_tokens.size());
  HONE_CHECK(options.vocab_size >= least, "bpe training: vocab_size is ", options.vocab_size, ", but 256 bytes and ",
             options.special_tokens.size(), " special tokens need ", least);
  HONE_CHECK(options.vocab_size <= 1 << 24, "bpe training: vocab_size is ", options.vocab_size, ", more than ",
             1 << 24);
}

}  // namespace

BpeTrainResult train_bpe(const std::function<bool(std::string&)>& next, const BpeTrainOptions& options) {
  check(options);
  BpeTrainResult result;
  result.vocab = options.special_tokens;
  std::vector<int32_t> byte_ids(256);
  for (const uint8_t byte : byte_alphabet().order) {
    byte_ids[byte] = static_cast<int32_t>(result.vocab.size());
    result.vocab.emplace_back(1, static_cast<char>(byte));
  }
  std::unordered_map<std::string, int32_t> known;
  for (size_t id = options.special_tokens.size(); id < result.vocab.size(); ++id)
    known.emplace(result.vocab[id], static_cast<int32_t>(id));

  Merger merger(words_as_symbols(WordCounter(options).count(next), byte_ids), result.vocab);
  std::unordered_set<Pair, PairHash> done;
  while (static_cast<int64_t>(result.vocab.size()) < options.vocab_size) {
    const auto pair = merger.best(std::max<int64_t>(options.min_frequency, 1));
    if (!pair) break;
    std::pair<std::string, std::string> parts(result.vocab[static_cast<size_t>(pair->left)],
                                              result.vocab[static_cast<size_t>(pair->right)]);
    // Two merges that make the same bytes share one token.
    const auto [entry, is_new] = known.emplace(parts.first + parts.second, static_cast<int32_t>(result.vocab.size()));
    if (is_new) result.vocab.push_back(entry->first);
    merger.merge(*pair, entry->second);
    if (done.insert(*pair).second) result.merges.push_back(std::move(parts));
  }
  return result;
}

Json bpe_tokenizer_json(const BpeTrainResult& result, const BpeTrainOptions& options) {
  JsonArray added, merges;
  JsonObject vocab;
  for (size_t id = 0; id < options.special_tokens.size(); ++id)
    added.push_back(JsonObject{{"id", id},
                               {"content", options.special_tokens[id]},
                               {"single_word", false},
                               {"lstrip", false},
                               {"rstrip", false},
                               {"normalized", false},
                               {"special", true}});
  for (size_t id = 0; id < result.vocab.size(); ++id)
    vocab.emplace_back(id < options.special_tokens.size() ? result.vocab[id] : spell_bytes(result.vocab[id]), id);
  for (const auto& [left, right] : result.merges) merges.emplace_back(spell_bytes(left) + " " + spell_bytes(right));
  Json model = JsonObject{{"type", "BPE"},
                          {"dropout", nullptr},
                          {"unk_token", nullptr},
                          {"continuing_subword_prefix", nullptr},
                          {"end_of_word_suffix", nullptr},
                          {"fuse_unk", false},
                          {"byte_fallback", false},
                          {"ignore_merges", false},
                          {"vocab", std::move(vocab)},
                          {"merges", std::move(merges)}};
  const Json byte_level =
      JsonObject{{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  return JsonObject{{"version", "1.0"},          {"truncation", nullptr},
                    {"padding", nullptr},        {"added_tokens", std::move(added)},
                    {"normalizer", nullptr},     {"pre_tokenizer", pre_tokenizer_json(options.pattern)},
                    {"post_processor", nullptr}, {"decoder", byte_level},
                    {"model", std::move(model)}};
}

}  // namespace hone
