#include "core/text/tokenizer/normalizer.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

std::string normalized(const std::string& json, const std::string& text, bool begins = true) {
  return make_normalizer(parse_json(json, "test"), "test")->apply(text, begins);
}

TEST(Normalizer, Forms) {
  EXPECT_EQ(normalized(R"({"type": "NFC"})", "e\u0301"), "é");
  EXPECT_EQ(normalized(R"({"type": "NFD"})", "é"), "e\u0301");
  EXPECT_EQ(normalized(R"({"type": "NFKC"})", "ﬁ"), "fi");
  EXPECT_EQ(normalized(R"({"type": "NFKD"})", "²"), "2");
}

TEST(Normalizer, PrependAndReplaceAsLlamaHasThem) {
  const std::string llama =
      R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})";
  EXPECT_EQ(normalized(llama, "a  b"), "▁a▁▁b");
  EXPECT_EQ(normalized(llama, "a  b", false), "a▁▁b");
  EXPECT_EQ(normalized(llama, ""), "");
  EXPECT_EQ(normalized(R"({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})", "a   b c"), "a b c");
}

TEST(Normalizer, StripTakesWhiteSpaceOffEitherEnd) {
  EXPECT_EQ(normalized(R"({"type": "Strip", "strip_left": true, "strip_right": true})", " \u3000a b\n"), "a b");
  EXPECT_EQ(normalized(R"({"type": "Strip", "strip_left": false, "strip_right": true})", " a "), " a");
  EXPECT_EQ(normalized(R"({"type": "Strip"})", " \t "), "");
  EXPECT_EQ(normalized(R"({"type": "Strip"})", " a ", false), " a");
}

TEST(Normalizer, NullIsNoneAndUnknownKindsAreErrors) {
  EXPECT_EQ(make_normalizer(Json(), "test"), nullptr);
  EXPECT_THROW(normalized(R"({"type": "NFX"})", ""), Error);
  EXPECT_THROW(normalized(R"({"type": "Prepend"})", ""), Error);
  EXPECT_THROW(normalized(R"({"type": "Sequence", "normalizers": {}})", ""), Error);
  EXPECT_THROW(normalized(R"("NFC")", ""), Error);
}

}  // namespace
}  // namespace hone
