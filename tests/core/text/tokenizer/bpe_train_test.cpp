#include "core/text/tokenizer/bpe_train.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/base/parallel_for.h"
#include "core/base/rng.h"
#include "core/text/tokenizer/bpe.h"
#include "core/text/tokenizer/byte_level.h"
#include "core/text/tokenizer/pre_tokenizer.h"
#include "core/text/tokenizer/tokenizer.h"

namespace hone {
namespace {

std::function<bool(std::string&)> each_of(const std::vector<std::string>& texts) {
  return [&texts, i = size_t{0}](std::string& out) mutable {
    if (i == texts.size()) return false;
    out = texts[i++];
    return true;
  };
}

// Recounts every pair before every merge.
std::vector<Bpe::Merge> trained_by_definition(const std::vector<std::string>& texts, size_t num_merges) {
  std::map<std::vector<std::string>, int64_t> words;
  const auto pre_tokenizer =
      make_pre_tokenizer(parse_json(R"({"type": "ByteLevel", "add_prefix_space": false})", "test"), "test");
  for (const std::string& text : texts)
    pre_tokenizer->split(text, TextStart::text, [&](std::string_view word, TextStart) {
      std::vector<std::string> symbols;
      const std::string bytes = unspell_bytes(word).value();
      for (const char b : bytes) symbols.emplace_back(1, b);
      ++words[symbols];
    });
  std::vector<Bpe::Merge> merges;
  while (merges.size() < num_merges) {
    std::map<Bpe::Merge, int64_t> counts;
    for (const auto& [word, count] : words)
      for (size_t i = 0; i + 1 < word.size(); ++i) counts[{word[i], word[i + 1]}] += count;
    if (counts.empty()) break;
    const auto best = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
                        return std::tie(a.second, a.first) < std::tie(b.second, b.first);
                      })->first;
    merges.push_back(best);
    std::map<std::vector<std::string>, int64_t> next;
    for (const auto& [word, count] : words) {
      std::vector<std::string> joined;
      for (size_t i = 0; i < word.size(); ++i) {
        if (i + 1 < word.size() && word[i] == best.first && word[i + 1] == best.second)
          joined.push_back(best.first + best.second), ++i;
        else
          joined.push_back(word[i]);
      }
      next[joined] += count;
    }
    words = std::move(next);
  }
  return merges;
}

std::vector<std::string> random_texts(uint64_t seed, int letters) {
  Rng rng(seed);
  std::vector<std::string> texts(20);
  for (std::string& text : texts)
    for (uint64_t words = 10 + rng.below(20); words > 0; --words) {
      for (uint64_t n = 1 + rng.below(9); n > 0; --n)
        text += static_cast<char>('a' + rng.below(static_cast<uint64_t>(letters)));
      text += rng.below(5) == 0 ? ", é" : " ";
    }
  return texts;
}

TEST(BpeTrain, MergesAreThoseOfTheDefinition) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const auto texts = random_texts(seed, seed % 2 ? 2 : 6);
    const auto expected = trained_by_definition(texts, 80);
    const auto result = train_bpe(each_of(texts), {.vocab_size = static_cast<int64_t>(256 + expected.size())});
    EXPECT_EQ(result.merges, expected) << seed;
  }
}

TEST(BpeTrain, TiesGoToTheGreaterBytes) {
  const std::vector<std::string> texts = {"ab", "cd", "\xC3\xA9"};
  const auto result = train_bpe(each_of(texts), {.vocab_size = 259});
  EXPECT_EQ(result.merges, (std::vector<Bpe::Merge>{{"\xC3", "\xA9"}, {"c", "d"}, {"a", "b"}}));
}

TEST(BpeTrain, NothingDependsOnThreadsOrOnHowTextIsCutIntoDocuments) {
  const auto texts = random_texts(3, 5);
  const int before = num_threads();
  std::vector<BpeTrainResult> results;
  for (const int threads : {1, 2, 5}) {
    set_num_threads(threads);
    results.push_back(train_bpe(each_of(texts), {.vocab_size = 330}));
  }
  set_num_threads(before);
  for (const auto& result : results) {
    EXPECT_EQ(result.merges, results[0].merges);
    EXPECT_EQ(result.vocab, results[0].vocab);
  }
}

TEST(BpeTrain, SpecialTokensComeFirstAndAreNeverMerged) {
  const std::vector<std::string> texts = {"aa<|end|>aa<|end|>aa", "<|end|>", "a<|en"};
  const auto result = train_bpe(each_of(texts), {.vocab_size = 400, .special_tokens = {"<|end|>", "<|pad|>"}});
  EXPECT_EQ(result.vocab[0], "<|end|>");
  EXPECT_EQ(result.vocab[1], "<|pad|>");
  EXPECT_EQ(result.vocab[2], "!");
  EXPECT_EQ(result.merges.at(0), (Bpe::Merge{"a", "a"}));
  for (size_t id = 258; id < result.vocab.size(); ++id) EXPECT_EQ(result.vocab[id].find("|>"), std::string::npos);
  EXPECT_LT(result.vocab.size(), 400u);  // the text has no more pairs
}

TEST(BpeTrain, RarePairsAreLeftAlone) {
  const std::vector<std::string> texts = {"ab ab ab cd"};
  const auto result = train_bpe(each_of(texts), {.vocab_size = 400, .min_frequency = 2});
  EXPECT_EQ(result.merges, (std::vector<Bpe::Merge>{{"a", "b"}, {" ", "ab"}}));
}

TEST(BpeTrain, TheTrainedTokenizerRoundTripsAnyBytes) {
  const BpeTrainOptions options{
      .vocab_size = 320, .special_tokens = {"<|end|>"}, .pattern = "\\p{L}+|\\p{N}|[^\\p{L}\\p{N}]+"};
  const auto tokenizer =
      Tokenizer::from_json(bpe_tokenizer_json(train_bpe(each_of(random_texts(1, 4)), options), options), "trained",
                           JsonObject{{"eos_token", "<|end|>"}});
  EXPECT_EQ(tokenizer.vocab_size(), 320);
  EXPECT_EQ(tokenizer.eos(), 0);
  std::string bytes;
  for (int i = 0; i < 4096; ++i) bytes.push_back(static_cast<char>(philox(1, 2, static_cast<uint64_t>(i)).word[0]));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(bytes)), bytes);
  EXPECT_EQ(tokenizer.encode("abcd").size(), tokenizer.encode("abcd<|end|>").size() - 1);
}

TEST(BpeTrain, BadOptionsAreErrors) {
  const std::vector<std::string> texts = {"ab"};
  EXPECT_THROW(train_bpe(each_of(texts), {.vocab_size = 255}), Error);
  EXPECT_THROW(train_bpe(each_of(texts), {.vocab_size = 256, .special_tokens = {"<s>"}}), Error);
  EXPECT_THROW(train_bpe(each_of(texts), {.vocab_size = int64_t{1} << 40}), Error);
  EXPECT_THROW(train_bpe(each_of(texts), {.vocab_size = 300, .special_tokens = {"<s>", "<s>"}}), Error);
  EXPECT_THROW(train_bpe(each_of(texts), {.vocab_size = 300, .special_tokens = {""}}), Error);
  EXPECT_THROW(train_bpe(each_of(texts), {.vocab_size = 300, .special_tokens = {"a"}}), Error);
  EXPECT_THROW(train_bpe(each_of(texts), {.vocab_size = 300, .pattern = "("}), Error);
}

}  // namespace
}  // namespace hone
