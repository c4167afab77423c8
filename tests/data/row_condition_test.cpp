#include "data/row_condition.h"

#include <gtest/gtest.h>

#include "core/config/config.h"
#include "tests/support/errors.h"

namespace hone {
namespace {

bool holds(const std::string& condition, const std::string& row) {
  return Config::from_text(condition, "test").as<RowCondition>().holds(parse_json(row, "row"));
}

TEST(RowCondition, ComparesAColumnAsText) {
  EXPECT_TRUE(holds("", R"({"a": 1})"));
  EXPECT_TRUE(holds("column = 'a'\nequals = 'x'", R"({"a": "x"})"));
  EXPECT_FALSE(holds("column = 'a'\nequals = 'x'", R"({"a": "y"})"));
  EXPECT_FALSE(holds("column = 'a'\nequals = 'x'", R"({"b": "x"})"));
  EXPECT_TRUE(holds("column = 'a'\nequals = '3'", R"({"a": 3})"));
  EXPECT_TRUE(holds("column = 'a'\nequals = 'true'", R"({"a": true})"));
  EXPECT_TRUE(holds("column = 'a'\none_of = ['x', 'y']", R"({"a": "y"})"));
  EXPECT_FALSE(holds("column = 'a'\none_of = ['x', 'y']", R"({"a": "z"})"));
}

TEST(RowCondition, WithoutAValueTheColumnMustBeThere) {
  EXPECT_TRUE(holds("column = 'a'", R"({"a": ""})"));
  EXPECT_FALSE(holds("column = 'a'", R"({"a": null})"));
  EXPECT_FALSE(holds("column = 'a'", R"([1])"));
}

TEST(RowCondition, AValueNeedsAColumn) {
  EXPECT_NE(test::error_of([] { holds("equals = 'x'", "{}"); }).find("need a column"), std::string::npos);
}

}  // namespace
}  // namespace hone
