#include <gtest/gtest.h>

#include "rewards/math/number_answer.h"

namespace hone {

static std::string first(std::string_view text) {
  const auto found = first_number(text);
  return found ? found->digits : "none";
}

// The value of one expression, and the number of an entire completion.
static std::string value(std::string_view text) {
  const auto found = number_value(text);
  return found ? found->digits : "none";
}

static std::string answer(std::string_view text) {
  const auto found = number_answer(text, {"####", "answer is"});
  return found ? found->digits : "none";
}

TEST(NumberText, AsPeopleWriteThem) {
  EXPECT_EQ(first("$1,234.50 a month"), "1234.5");
  EXPECT_EQ(first("-$3"), "-3");
  EXPECT_EQ(first("it is -.50"), "-0.5");
  EXPECT_EQ(first("007"), "7");
  EXPECT_EQ(first("-0.0"), "0");
  EXPECT_EQ(first("1,23"), "1");  // not a group of three digits
  EXPECT_EQ(first("1234,567"), "1234");
  EXPECT_EQ(answer("1,234,567."), "1234567");
  EXPECT_EQ(answer("7 - 3"), "none");  // neither operand is the answer
  EXPECT_EQ(answer("= -3"), "-3");
  EXPECT_EQ(answer("version 1.2.3"), "none");
  EXPECT_EQ(answer("x2 and y_3"), "none");
  EXPECT_EQ(answer("none at all"), "none");
  EXPECT_EQ(answer(""), "none");
}

TEST(NumberText, ValuesAreExact) {
  EXPECT_EQ(value("5/2"), "2.5");
  EXPECT_EQ(value("-5/2"), "-2.5");
  EXPECT_EQ(value("10/4"), "2.5");
  EXPECT_EQ(value("10/6"), "5/3");
  EXPECT_EQ(value("1 1/2"), "1.5");
  EXPECT_EQ(value("1/1024"), "0.0009765625");
  EXPECT_EQ(value("\\frac{5}{2}"), "2.5");
  EXPECT_EQ(value("1.5e3"), "1500");
  EXPECT_EQ(value("25e-4"), "0.0025");
  EXPECT_EQ(value("3 + 4 = 7"), "7");
  EXPECT_EQ(value("-$18.50"), "-18.5");
  for (const char* none : {"1/0", "1/2/3", "2^10", "3-4", "10:30", "2x", "(1, 2)", "1,2", "1.2.3", "x", "", "1e",
                           "1e99999", "\\frac12", "\\frac{1}", "\\sqrt{2}", "--"})
    EXPECT_EQ(value(none), "none") << none;
  EXPECT_EQ(number_value("1/3")->value, 1.0 / 3);
}

TEST(NumberText, OfACompletion) {
  EXPECT_EQ(answer("3 of 4\n#### 5\n6"), "5");
  EXPECT_EQ(answer("The answer is 5 or 6"), "none");
  EXPECT_EQ(answer("She pays 3 million dollars"), "3000000");
  EXPECT_EQ(answer("A: 7\nDone."), "7");
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
  EXPECT_EQ(answer("so " + digits), digits);
  EXPECT_EQ(first(std::string(1000, '7')), std::string(400, '7'));
  EXPECT_EQ(canonical_digits("+007.500"), "7.5");
  EXPECT_EQ(canonical_digits("-000.000"), "0");
}

}  // namespace hone
