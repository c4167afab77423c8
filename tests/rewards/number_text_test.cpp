#include "rewards/number_text.h"

#include <gtest/gtest.h>

namespace hone {

static std::string first(std::string_view text) {
  const auto found = first_number(text);
  return found ? found->digits : "none";
}

static std::string last(std::string_view text) {
  const auto found = last_number(text);
  return found ? found->digits : "none";
}

TEST(NumberText, AsPeopleWriteThem) {
  EXPECT_EQ(first("$1,234.50 a month"), "1234.5");
  EXPECT_EQ(first("-$3"), "-3");
  EXPECT_EQ(first("it is -.50"), "-0.5");
  EXPECT_EQ(first("007"), "7");
  EXPECT_EQ(first("-0.0"), "0");
  EXPECT_EQ(first("1,23"), "1");  // no group of three
  EXPECT_EQ(first("1234,567"), "1234");
  EXPECT_EQ(last("1,234,567."), "1234567");
  EXPECT_EQ(last("7 - 3"), "3");  // a minus, not a sign
  EXPECT_EQ(last("= -3"), "-3");
  EXPECT_EQ(last("version 1.2.3"), "1.2");
  EXPECT_EQ(last("x2 and y_3"), "none");
  EXPECT_EQ(last("none at all"), "none");
  EXPECT_EQ(last(""), "none");
}

TEST(NumberText, WhereItStands) {
  const std::string_view text = "costs -$18.50 now";
  const auto found = first_number(text);
  ASSERT_TRUE(found);
  EXPECT_EQ(text.substr(found->begin, found->end - found->begin), "-$18.50");
  EXPECT_EQ(found->value, -18.5);
}

TEST(NumberText, AnyLengthIsReadExactlyUpToItsBound) {
  const std::string digits(300, '7');
  EXPECT_EQ(last("so " + digits), digits);
  EXPECT_EQ(first(std::string(1000, '7')), std::string(400, '7'));
  EXPECT_EQ(canonical_digits("+007.500"), "7.5");
  EXPECT_EQ(canonical_digits("-000.000"), "0");
}

}  // namespace hone
