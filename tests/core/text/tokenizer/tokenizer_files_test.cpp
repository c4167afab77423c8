#include "core/text/tokenizer/tokenizer_files.h"

#include <gtest/gtest.h>

#include "core/io/file.h"
#include "core/text/tokenizer/tokenizer.h"
#include "tests/support/support.h"

namespace hone {
namespace {

using Ids = std::vector<int32_t>;
constexpr const char* tiny =
    R"({"added_tokens": [{"id": 3, "content": "<e>", "special": true}, {"id": 4, "content": "<b>", "special": true}],
  "decoder": {"type": "Fuse"}, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";

std::string error_of(const std::filesystem::path& path) {
  try {
    Tokenizer::load(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(TokenizerFiles, SpecialIdsComeFromTheConfigs) {
  const test::TemporaryFolder folder;
  write_file_atomic(folder.path() / "tokenizer.json", tiny);
  EXPECT_EQ(Tokenizer::load(folder.path()).eos(), std::nullopt);
  write_file_atomic(folder.path() / "config.json", R"({"eos_token_id": 2, "bos_token_id": null})");
  EXPECT_EQ(Tokenizer::load(folder.path()).eos(), 2);
  write_file_atomic(folder.path() / "generation_config.json", R"({"eos_token_id": [4, 1], "pad_token_id": 0})");
  EXPECT_EQ(Tokenizer::load(folder.path()).stop_ids(), (Ids{4, 1}));
  write_file_atomic(folder.path() / "special_tokens_map.json", R"({"bos_token": "<b>", "eos_token": "a"})");
  write_file_atomic(
      folder.path() / "tokenizer_config.json",
      R"({"eos_token": {"content": "<e>"}, "pad_token": null, "chat_template": [{"name": "tools", "template": "T"}, {"name": "default", "template": "D"}]})");
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer.eos(), 3);
  EXPECT_EQ(tokenizer.bos(), 4);
  EXPECT_EQ(tokenizer.pad(), 0);
  EXPECT_EQ(tokenizer.stop_ids(), (Ids{3, 4, 1}));
  EXPECT_EQ(tokenizer.special_token("eos_token"), "<e>");
  EXPECT_EQ(tokenizer.special_token("pad_token"), "a");
  EXPECT_EQ(tokenizer.special_token("sep_token"), "");
  EXPECT_EQ(tokenizer.chat_template(), "D");
  write_file_atomic(folder.path() / "chat_template.jinja", "J");
  EXPECT_EQ(Tokenizer::load(folder.path()).chat_template(), "J");
}

TEST(TokenizerFiles, VocabAndMergesAreGpt2) {
  const test::TemporaryFolder folder;
  write_file_atomic(folder.path() / "vocab.json",
                    R"({"a": 0, "b": 1, "ab": 2, "Ġ": 3, "model": 4, "char_ords": 5, "<|endoftext|>": 6})");
  write_file_atomic(folder.path() / "merges.txt", "#version: 0.2\na b\r\n");
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer.encode("ab ab<|endoftext|>"), (Ids{2, 3, 2, 6}));
  EXPECT_TRUE(tokenizer.is_special(6));
  write_file_atomic(
      folder.path() / "tokenizer_config.json",
      R"({"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": {"7": {"content": "<x>", "special": true}}})");
  EXPECT_EQ(Tokenizer::load(folder.path()).encode("a<x>"), (Ids{0, 7}));
  write_file_atomic(folder.path() / "tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer"})");
  EXPECT_NE(error_of(folder.path()).find("Qwen2Tokenizer"), std::string::npos);
  write_file_atomic(folder.path() / "tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "<x>"}}})");
  EXPECT_NE(error_of(folder.path()).find("added_tokens_decoder['x']"), std::string::npos);
}

TEST(TokenizerFiles, CharacterTablesFollowFourSpecialTokens) {
  const test::TemporaryFolder folder;
  write_file_atomic(folder.path() / "tokenizer_config.json",
                    R"({"char_ords": [48, 49, 233, 26085], "chat_template": "{{ sep_token }}"})");
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer.encode("10é日xS"), (Ids{5, 4, 6, 7, 3, 0}));
  EXPECT_EQ(tokenizer.decode(Ids{5, 4, 6, 7, 1, 2}, true), "10é日");
  EXPECT_EQ(tokenizer.eos(), 1);
  const test::TemporaryFolder copy;
  tokenizer.save(copy.path());
  const Tokenizer again = Tokenizer::load(copy.path());
  EXPECT_EQ(again.encode("10é日xS"), (Ids{5, 4, 6, 7, 3, 0}));
  EXPECT_EQ(again.eos(), 1);
  EXPECT_EQ(again.special_token("sep_token"), "S");
  EXPECT_EQ(again.chat_template(), "{{ sep_token }}");
  for (const char* bad : {R"({"char_ords": [55296]})", R"({"char_ords": [-1]})", R"({"char_ords": [1114112]})",
                          R"({"char_ords": ["a"]})", R"({"char_ords": [65, 65]})", R"({"char_ords": [83]})"}) {
    write_file_atomic(folder.path() / "tokenizer_config.json", bad);
    EXPECT_NE(error_of(folder.path()), "") << bad;
  }
}

// Taken for a file that is not there, a template that is a broken link would be no template.
TEST(TokenizerFiles, ALinkThatLeadsNowhereIsNamed) {
  for (const char* name : {"tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json",
                           "generation_config.json", "config.json", "tokenizer.json"})
    for (const char* target : {"nowhere", name}) {  // or in a circle
      const test::TemporaryFolder folder;
      if (std::string(name) != "tokenizer.json") write_file_atomic(folder.path() / "tokenizer.json", tiny);
      std::filesystem::create_symlink(target, folder.path() / name);
      EXPECT_NE(error_of(folder.path()).find(name), std::string::npos) << error_of(folder.path());
    }
}

TEST(TokenizerFiles, MissingAndMismatchedFilesAreNamed) {
  const test::TemporaryFolder folder;
  EXPECT_NE(error_of(folder.path()).find("no tokenizer here"), std::string::npos);
  EXPECT_NE(error_of(folder.path() / "nothing.json").find("nothing.json"), std::string::npos);
  write_file_atomic(folder.path() / "tokenizer.json", tiny);
  write_file_atomic(folder.path() / "config.json", R"({"eos_token_id": 5})");
  EXPECT_NE(error_of(folder.path()).find("eos_token_id is 5"), std::string::npos);
  write_file_atomic(folder.path() / "config.json", R"({"eos_token_id": "x"})");
  EXPECT_NE(error_of(folder.path()).find("config.json: eos_token_id"), std::string::npos);
  write_file_atomic(folder.path() / "config.json", "{}");
  write_file_atomic(folder.path() / "tokenizer.json", std::string(tiny).substr(0, 90));
  EXPECT_NE(error_of(folder.path()).find("tokenizer.json"), std::string::npos);
  write_file_atomic(folder.path() / "other.json", R"({"a": 1})");
  EXPECT_NE(error_of(folder.path() / "other.json").find("merges.txt"), std::string::npos);
}

}  // namespace
}  // namespace hone
