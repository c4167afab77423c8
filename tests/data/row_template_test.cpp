#include "data/row_template.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

std::string fill(std::string_view text, std::string_view row) {
  return fill_template(text, parse_json(row, "row"), "rows.jsonl:3");
}

std::string error_of(std::string_view text, std::string_view row) {
  try {
    fill(text, row);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(RowTemplate, MembersStandWhereTheyAreNamed) {
  EXPECT_EQ(fill("Q: {q}\nA:{n}{none}", R"({"q": "why?", "n": 2.5, "none": null})"), "Q: why?\nA:2.5");
  EXPECT_EQ(fill("{{x}} {x}", R"({"x": "{y}"})"), "{x} {y}");
  EXPECT_EQ(fill("no member", "{}"), "no member");
}

TEST(RowTemplate, PathsReachIntoMembersAndLists) {
  EXPECT_EQ(fill("{a.b} {c.1} {c}", R"({"a": {"b": "x"}, "c": [1, "two"]})"), R"(x two [1, "two"])");
  EXPECT_EQ(fill("{a.b}", R"({"a.b": "whole", "a": {"b": "part"}})"), "whole");
  for (const char* path : {"{c.2}", "{c.-1}", "{c.x}", "{c.}", "{a.b.c}", "{}"})
    EXPECT_NE(error_of(path, R"({"a": {"b": "x"}, "c": [1, 2]})").find("has no member"), std::string::npos) << path;
}

TEST(RowTemplate, AConditionalTextStandsOnlyBesideAMemberThatSaysSomething) {
  constexpr const char* text = "{instruction}{input?\n\nInput: }{input}!";
  EXPECT_EQ(fill(text, R"({"instruction": "Add.", "input": "1 2"})"), "Add.\n\nInput: 1 2!");
  EXPECT_EQ(fill(text, R"({"instruction": "Add.", "input": ""})"), "Add.!");
  EXPECT_EQ(fill("{input?x}{n?y}", R"({"n": 0})"), "y");
}

TEST(RowTemplate, AMissingMemberIsNamedWithItsRowAndWhatTheRowHas) {
  const std::string error = error_of("{promt}", R"({"prompt": "x", "answer": "y"})");
  for (const char* part : {"rows.jsonl:3", "'promt'", "prompt, answer"})
    EXPECT_NE(error.find(part), std::string::npos) << error;
  EXPECT_NE(error_of("{a", R"({"a": 1})").find("without }"), std::string::npos);
}

}  // namespace
}  // namespace hone
