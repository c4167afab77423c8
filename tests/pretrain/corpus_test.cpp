#include "pretrain/corpus.h"

#include <gtest/gtest.h>

#include "core/config/config.h"
#include "core/io/file.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

std::vector<std::string> documents(const CorpusSource& source) {
  std::vector<std::string> out;
  const auto next = corpus_reader(source);
  for (std::string text; next(text);) out.push_back(text);
  return out;
}

TEST(Corpus, RowsAndWholeFilesAreDocumentsInOrder) {
  const TemporaryFolder folder;
  write_file_atomic(folder.path() / "a.jsonl", "{\"story\": \"one\"}\n\n{\"story\": \"two\"}\n");
  write_file_atomic(folder.path() / "b.txt", "three\nlines\n");
  write_file_atomic(folder.path() / "c.jsonl", "{\"story\": \"four\"}");
  const auto path = [&](const char* name) { return (folder.path() / name).string(); };
  EXPECT_EQ(
      documents({.files = {path("a.jsonl"), path("b.txt"), path("c.jsonl")}, .text_key = "story", .generator = {}}),
      (std::vector<std::string>{"one", "two", "three\nlines\n", "four"}));
  EXPECT_THROW(documents({.files = {path("a.jsonl")}, .generator = {}}), Error);  // there is no member `text`
  EXPECT_THROW(documents({.files = {path("none.jsonl")}, .generator = {}}), Error);
  EXPECT_THROW(documents({}), Error);
}

TEST(Corpus, AGeneratorsDocumentsAreItsTrainSplit) {
  const CorpusSource source =
      Config::from_text("generator = { kind = 'arithmetic', digits = 1, heldout = 20 }\ndocuments = 3", "corpus.toml")
          .as<CorpusSource>();
  const std::vector<std::string> texts = documents(source);
  ASSERT_EQ(texts.size(), 3u);
  for (int64_t i = 0; i < 3; ++i) {
    const Example example = source.generator.generator->example("train", i);
    EXPECT_EQ(texts[static_cast<size_t>(i)], example.prompt + example.completion);
  }
}

TEST(Corpus, ATrainedTokenizerReadsBackAndTokenisesOnce) {
  const TemporaryFolder folder;
  write_file_atomic(folder.path() / "a.txt", "the cat sat on the mat, the cat sat");
  const CorpusSource source{.files = {(folder.path() / "a.txt").string()}, .generator = {}};
  train_tokenizer(source, {.vocab_size = 262, .special_tokens = {"<end>"}}, folder.path() / "tok");
  const Tokenizer tokenizer = Tokenizer::load(folder.path() / "tok");
  EXPECT_EQ(tokenizer.vocab_size(), 262);
  ASSERT_TRUE(tokenizer.eos());
  const TokenFile tokens(tokenize_corpus(source, tokenizer, folder.path() / "data"));
  EXPECT_EQ(tokens.num_documents(), 1);
  std::vector<int32_t> ids(static_cast<size_t>(tokens.num_tokens()));
  tokens.read(0, ids);
  EXPECT_EQ(ids.back(), *tokenizer.eos());
  ids.pop_back();
  EXPECT_EQ(tokenizer.decode(ids), "the cat sat on the mat, the cat sat");
}

}  // namespace
}  // namespace hone::test
