#include "core/text/tokenizer/post_processor.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

DocumentFrame read(const std::string& json) {
  DocumentFrame frame;
  read_post_processor(parse_json(json, "test"), "test", frame);
  return frame;
}
using Ids = std::vector<int32_t>;

TEST(PostProcessor, TemplatesPutIdsAround) {
  const std::string text =
      R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
    {"SpecialToken": {"id": "</s>", "type_id": 0}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [7, 8]}, "</s>": {"id": "</s>", "ids": [2]}}})";
  EXPECT_EQ(read(text).before, (Ids{7, 8}));
  EXPECT_EQ(read(text).after, (Ids{2}));
}

TEST(PostProcessor, SequencesWrapOutwards) {
  const DocumentFrame frame = read(
      R"({"type": "Sequence", "processors": [{"type": "RobertaProcessing", "cls": ["<s>", 1], "sep": ["</s>", 2]}, {"type": "ByteLevel"},
    {"type": "BertProcessing", "cls": ["[C]", 3], "sep": ["[S]", 4]}]})");
  EXPECT_EQ(frame.before, (Ids{3, 1}));
  EXPECT_EQ(frame.after, (Ids{2, 4}));
  EXPECT_TRUE(read("null").before.empty());
}

TEST(PostProcessor, BadOnesAreErrors) {
  for (const char* text :
       {R"({"type": "Other"})", R"({"type": "BertProcessing", "cls": ["a"], "sep": ["b", 1]})",
        R"({"type": "BertProcessing", "cls": ["a", -1], "sep": ["b", 1]})",
        R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}], "special_tokens": {}})",
        R"({"type": "TemplateProcessing", "single": [{"Sequence": {}}, {"Sequence": {}}], "special_tokens": {}})",
        R"({"type": "TemplateProcessing", "single": [3]})"})
    EXPECT_THROW(read(text), Error) << text;
}

}  // namespace
}  // namespace hone
