#include "core/text/tokenizer/tokenizer_json.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

std::string with(const std::string& model, const std::string& rest = "") {
  return "{" + rest + R"("model": {"type": "BPE", )" + model + "}}";
}

TokenizerParts read(const std::string& text) { return read_tokenizer_json(parse_json(text, "t.json"), "t.json"); }

TEST(TokenizerJson, ReadsBothSpellingsOfMerges) {
  for (const char* merges : {R"(["a b", "ab c"])", R"([["a", "b"], ["ab", "c"]])"}) {
    const auto parts =
        read(with(R"("vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}, "merges": )" + std::string(merges)));
    std::vector<int32_t> ids;
    parts.model->encode("abcab", ids);
    EXPECT_EQ(ids, (std::vector<int32_t>{4, 3}));
    EXPECT_EQ(parts.vocab_size, 5);
  }
}

TEST(TokenizerJson, WrittenAgainItReadsTheSame) {
  const std::string good = with(
      R"("unk_token": "b", "fuse_unk": true, "vocab": {"a": 3, "b": 1, "a b": 7, " b": 5}, "merges": [["a", " b"]])",
      R"("version": "1.0", "added_tokens": [{"id": 9, "content": "zz", "special": false, "lstrip": true}], "normalizer": {"type": "NFC"}, )");
  const Json first = write_tokenizer_json(read(good));
  const Json second = write_tokenizer_json(read_tokenizer_json(first, "again"));
  EXPECT_EQ(first, second);
  EXPECT_EQ(first.at("normalizer").at("type").as_string(), "NFC");
  EXPECT_EQ(first.at("model").at("unk_token").as_string(), "b");
  EXPECT_EQ(first.at("added_tokens").as_array().at(0).at("lstrip"), Json(true));
  EXPECT_EQ(read(good).vocab_size, 10);
}

struct Bad {
  std::string text, words;  // `words`: part of the error message
};

TEST(TokenizerJson, HostileFilesAreErrorsThatNameTheField) {
  const std::string vocab = R"("vocab": {"a": 0, "b": 1, "ab": 2}, )";
  const auto merges = [](const std::string& list) {
    return R"("vocab": {"a": 0, "b": 1, "ab": 2}, "merges": )" + list;
  };
  const auto added = [&](const std::string& list) {
    return with(vocab + R"("merges": [])", "\"added_tokens\": " + list + ", ");
  };
  const std::vector<Bad> all = {
      {"[]", "t.json"},
      {"{}", "model"},
      {R"({"model": 3})", "model"},
      {R"({"model": {"type": "Unigram", "vocab": []}})", "Unigram"},
      {with(R"("merges": [])"), "vocab"},
      {with(R"("vocab": {"a": 0})"), "merges"},
      {with(R"("vocab": ["a"], "merges": [])"), "model.vocab"},
      {with(R"("vocab": {"a": "0"}, "merges": [])"), "model.vocab['a']"},
      {with(R"("vocab": {"a": -1}, "merges": [])"), "model.vocab['a']"},
      {with(R"("vocab": {"a": 1.5}, "merges": [])"), "model.vocab['a']"},
      {with(R"("vocab": {"a": 1e300}, "merges": [])"), "model.vocab['a']"},
      {with(R"("vocab": {"a": 4294967296}, "merges": [])"), "out of range"},
      {with(R"("vocab": {"a": 2147483647}, "merges": [])"), "out of range"},
      {with(R"("vocab": {"a": 9223372036854775807}, "merges": [])"), "out of range"},
      {with(R"("vocab": {"a": 0, "b": 0}, "merges": [])"), "id 0 is 'a' already"},
      {with(R"("vocab": {"": 0}, "merges": [])"), "empty spelling"},
      {with(merges(R"({"a": "b"})")), "model.merges"},
      {with(merges(R"([3])")), "model.merges[0]"},
      {with(merges(R"(["a b", "ab"])")), "model.merges[1]"},
      {with(merges(R"(["a b ab"])")), "model.merges[0]"},
      {with(merges(R"([["a"]])")), "model.merges[0]"},
      {with(merges(R"([["a", 3]])")), "model.merges[0]"},
      {with(merges(R"([["a", ""]])")), "a part is empty"},
      {with(merges(R"([["", "a"]])")), "a part is empty"},
      {with(merges(R"([["a", "x"]])")), "'x' is not in the vocabulary"},
      {with(merges(R"([["b", "a"]])")), "the result 'ba'"},
      {with(vocab + R"("merges": [], "dropout": 0.1)"), "model.dropout"},
      {with(vocab + R"("merges": [], "fuse_unk": "yes")"), "model.fuse_unk"},
      {with(vocab + R"("merges": [], "unk_token": 3)"), "model.unk_token"},
      {added("{}"), "added_tokens"},
      {added("[3]"), "added_tokens[0]"},
      {added(R"([{"id": 5}])"), "content"},
      {added(R"([{"content": "x"}])"), "id"},
      {added(R"([{"id": -5, "content": "x"}])"), "added_tokens[0].id"},
      {added(R"([{"id": 99999999, "content": "x"}])"), "added_tokens[0].id"},
      {added(R"([{"id": 1, "content": "x"}])"), "which is 'b'"},
      {added(R"([{"id": 5, "content": "b"}])"), "but 1 in model.vocab"},
      {added(R"([{"id": 5, "content": "x"}, {"id": 5, "content": "y"}])"), "which is 'x'"},
      {added(R"([{"id": 5, "content": "x", "special": 1}])"), "added_tokens[0].special"},
      {with(vocab + R"("merges": [])", R"("normalizer": {"type": "Magic"}, )"), "normalizer.type"},
      {with(vocab + R"("merges": [])", R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}}, )"),
       "pre_tokenizer.pattern"},
      {with(vocab + R"("merges": [])", R"("decoder": [], )"), "decoder"},
      {with(vocab + R"("merges": [])",
            R"("post_processor": {"type": "BertProcessing", "cls": ["x", 77], "sep": ["y", 1]}, )"),
       "id 77"},
  };
  for (const Bad& bad : all) {
    try {
      read(bad.text);
      ADD_FAILURE() << "read: " << bad.text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("t.json"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(bad.words), std::string::npos) << bad.text << "\n" << error.what();
    }
  }
}

TEST(TokenizerJson, DeepNestingIsAnErrorOrHarmless) {
  for (const int depth : {20, 100, 5000}) {
    std::string open, close;
    for (int i = 0; i < depth; ++i) open += R"({"type": "Sequence", "normalizers": [)", close += "]}";
    const std::string text = with(R"("vocab": {"a": 0}, "merges": [])", "\"normalizer\": " + open + close + ", ");
    if (depth < 100)
      EXPECT_NO_THROW(read(text));
    else
      try {
        read(text);
      } catch (const Error&) {
        SUCCEED();
      }
  }
}

TEST(TokenizerJson, StepsThatMultiplyTextAreErrorsWhenTheyRun) {
  std::string replaces, byte_levels;
  for (int i = 0; i < 40; ++i) {
    replaces +=
        std::string(i ? ", " : "") +
        R"({"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}]})";
    byte_levels +=
        std::string(i ? ", " : "") +
        R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})";
  }
  const auto parts =
      read(with(R"("vocab": {"a": 0}, "merges": [])",
                "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [" + replaces +
                    "]}, \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [" + byte_levels + "]}, "));
  EXPECT_THROW(parts.normalizer->apply("a", true), Error);
  EXPECT_THROW(parts.pre_tokenizer->split(" ", TextStart::text, [](std::string_view, TextStart) {}), Error);
}

TEST(TokenizerJson, CyclicMergesEnd) {
  // Each merge needs the result of the other one.
  const auto parts = read(with(
      R"("vocab": {"a": 0, "aa": 1, "aaa": 2, "aaaa": 3}, "merges": ["aa a", "a aa", "a a", "aaa a", "a aaa", "aa aa"])"));
  std::vector<int32_t> ids;
  parts.model->encode(std::string(1001, 'a'), ids);
  size_t letters = 0;
  for (const int32_t id : ids) letters += parts.model->spellings()[static_cast<size_t>(id)].size();
  EXPECT_EQ(letters, 1001u);
}

TEST(TokenizerJson, IdsMayHaveGaps) {
  const auto parts = read(with(R"("vocab": {"a": 0, "b": 1000}, "merges": [])"));
  EXPECT_EQ(parts.vocab_size, 1001);
  EXPECT_EQ(parts.model->find("b"), 1000);
}

}  // namespace
}  // namespace hone
