#include "core/text/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <thread>

#include "core/base/check.h"
#include "core/base/rng.h"
#include "core/text/unicode/unicode.h"

namespace hone {
namespace {

// The literal definition: merge the leftmost pair with the lowest rank until no pair has a rank.
std::vector<std::string> merged_by_definition(std::vector<std::string> symbols, const std::vector<Bpe::Merge>& merges) {
  for (;;) {
    size_t best_rank = merges.size(), best = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i)
      for (size_t rank = 0; rank < best_rank; ++rank)
        if (merges[rank].first == symbols[i] && merges[rank].second == symbols[i + 1]) best_rank = rank, best = i;
    if (best_rank == merges.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

std::vector<std::string> characters(std::string_view word) {
  std::vector<std::string> out;
  for (size_t at = 0; at < word.size(); at += code_point_at(word, at).length)
    out.emplace_back(word.substr(at, code_point_at(word, at).length));
  return out;
}

// Random merges of results of earlier merges. Every result is in the vocabulary.
struct RandomBpe {
  std::vector<std::string> spellings;
  std::vector<Bpe::Merge> merges;
  RandomBpe(std::vector<std::string> alphabet, Rng& rng, int count,
            bool (*allowed)(const std::string&, const std::string&))
      : spellings(std::move(alphabet)) {
    std::set<Bpe::Merge> seen;
    std::set<std::string> known(spellings.begin(), spellings.end());
    while (static_cast<int>(merges.size()) < count) {
      const Bpe::Merge merge(spellings[rng.below(spellings.size())], spellings[rng.below(spellings.size())]);
      if (merge.first.size() + merge.second.size() > 24 || !allowed(merge.first, merge.second) ||
          !seen.insert(merge).second)
        continue;
      merges.push_back(merge);
      if (known.insert(merge.first + merge.second).second) spellings.push_back(merge.first + merge.second);
    }
  }
};

void expect_as_defined(const RandomBpe& random, const std::vector<std::string>& alphabet, Rng& rng) {
  const Bpe bpe(random.spellings, random.merges, {}, "test");
  for (int trial = 0; trial < 300; ++trial) {
    std::string word;
    for (uint64_t n = 1 + rng.below(trial % 3 == 0 ? 120 : 20); n > 0; --n)
      word += alphabet[rng.below(alphabet.size())];
    std::vector<int32_t> ids;
    bpe.encode(word, ids);
    std::vector<std::string> spelled;
    for (const int32_t id : ids) spelled.push_back(random.spellings[static_cast<size_t>(id)]);
    ASSERT_EQ(spelled, merged_by_definition(characters(word), random.merges)) << word;
  }
}

TEST(Bpe, ShortAndLongWordsAreMergedByDefinition) {
  const std::vector<std::string> alphabet = {"a", "b", "c", "é", "日"};
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Rng rng(seed);
    expect_as_defined(RandomBpe(alphabet, rng, 40, [](const auto&, const auto&) { return true; }), alphabet, rng);
  }
}

TEST(Bpe, WordsCutAtSpaceMarksAreMergedByDefinition) {
  const std::vector<std::string> alphabet = {"a", "b", "\u2581"};
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Rng rng(seed);
    const auto allowed = [](const std::string& left, const std::string& right) {
      return !right.starts_with("\u2581") || left.ends_with("\u2581");
    };
    expect_as_defined(RandomBpe(alphabet, rng, 30, allowed), alphabet, rng);
  }
}

TEST(Bpe, IgnoreMergesTakesAWholeWordFirst) {
  const std::vector<std::string> spellings = {"a", "b", "c", "ab", "abc"};
  const std::vector<Bpe::Merge> merges = {{"a", "b"}};
  std::vector<int32_t> ids;
  Bpe(spellings, merges, {.ignore_merges = true}, "test").encode("abc", ids);
  EXPECT_EQ(ids, std::vector<int32_t>{4});
  ids.clear();
  Bpe(spellings, merges, {}, "test").encode("abc", ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{3, 2}));
}

TEST(Bpe, UnknownCharactersAreBytesOrUnkOrFusedUnkOrNothing) {
  std::vector<std::string> spellings = {"<unk>", "a", "<0xC3>", "<0xA9>"};
  const auto encode = [&](BpeOptions options, std::string_view word) {
    std::vector<int32_t> ids;
    Bpe(spellings, {}, std::move(options), "test").encode(word, ids);
    return ids;
  };
  EXPECT_EQ(encode({.unk_token = "<unk>", .byte_fallback = true}, "aé"), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(encode({.unk_token = "<unk>", .byte_fallback = true}, "a日"), (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(encode({.unk_token = "<unk>"}, "日日a日"), (std::vector<int32_t>{0, 0, 1, 0}));
  EXPECT_EQ(encode({.unk_token = "<unk>", .fuse_unk = true}, "日日a日"), (std::vector<int32_t>{0, 1, 0}));
  EXPECT_EQ(encode({}, "日a"), (std::vector<int32_t>{1}));
  EXPECT_THROW(encode({.unk_token = "<oov>"}, "日a"), Error);
}

TEST(Bpe, AffixesMarkTheInsideAndTheEndOfWords) {
  const std::vector<std::string> spellings = {"a", "##b", "##b</w>", "a##b", "ab</w>", "ab"};
  std::vector<int32_t> ids;
  Bpe(spellings, {{"a", "##b</w>"}, {"a", "##b"}}, {.continuing_subword_prefix = "##", .end_of_word_suffix = "</w>"},
      "test")
      .encode("ab", ids);
  EXPECT_EQ(ids, std::vector<int32_t>{4});
}

TEST(Bpe, MergesOutsideTheVocabularyAreErrors) {
  EXPECT_THROW(Bpe({"a", "b"}, {{"a", "x"}}, {}, "test"), Error);
  EXPECT_THROW(Bpe({"a", "b"}, {{"a", "b"}}, {}, "test"), Error);
}

TEST(Bpe, ManyThreadsGiveOneResult) {
  Rng rng(5);
  const std::vector<std::string> alphabet = {"a", "b", "c"};
  const RandomBpe random(alphabet, rng, 60, [](const auto&, const auto&) { return true; });
  std::vector<std::string> words;
  for (int i = 0; i < 500; ++i) {
    words.emplace_back();
    for (uint64_t n = 1 + rng.below(8); n > 0; --n) words.back() += alphabet[rng.below(3)];
  }
  const auto encode_all = [&](const Bpe& bpe) {
    std::vector<int32_t> ids;
    for (const std::string& word : words) bpe.encode(word, ids);
    return ids;
  };
  const auto alone = encode_all(Bpe(random.spellings, random.merges, {}, "test"));
  const Bpe shared(random.spellings, random.merges, {}, "test");
  std::vector<std::vector<int32_t>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = encode_all(shared); });
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, alone);
}

TEST(Bpe, AWordOfAMillionCharactersIsNotQuadratic) {
  std::vector<int32_t> ids;
  Bpe({"a", "b", "ab", "aa", "aaaa"}, {{"a", "b"}, {"a", "a"}, {"aa", "aa"}}, {}, "test")
      .encode(std::string(1000000, 'a'), ids);
  EXPECT_EQ(ids, std::vector<int32_t>(250000, 4));
}

}  // namespace
}  // namespace hone
