#include <gtest/gtest.h>

#include <string>

#include "rewards/answers/math_answer.h"
#include "rewards/math/compare.h"
#include "tests/support/cpu_time.h"

namespace hone {

TEST(MathEqual, FormsOfOneNumber) {
  for (const char* answer : {"1/2", "0.5", "\\frac12", "\\dfrac{1}{2}", ".50", "2/4", "x = 0.5", "50\\%",
                             "\\frac{\\sqrt{4}}{4}", "2^{-1}", "0.5\\text{ cm}", "\\sin(\\pi/6)"})
    EXPECT_TRUE(math_equal("\\frac{1}{2}", answer)) << answer;
  for (const char* answer : {"2", "1/3", "0.51", "-1/2", "", "x", "\\frac{1}{2", "1:2", "(1,2)", "\\frac{1}{2}x"})
    EXPECT_FALSE(math_equal("\\frac{1}{2}", answer)) << answer;
}

TEST(MathEqual, BracesSayWhatBelongsTogether) {
  EXPECT_FALSE(math_equal("\\frac{15}{2}", "\\dfrac{1}{52}"));
  EXPECT_FALSE(math_equal("x^{12}", "x^{1}2"));
}

TEST(MathEqual, LargeNumbersAreExact) {
  EXPECT_TRUE(math_equal("2^{200}", "1606938044258990275541962092341162602522202993782792835301376"));
  EXPECT_FALSE(math_equal("2^{200}", "1606938044258990275541962092341162602522202993782792835301377"));
  EXPECT_TRUE(math_equal("10^{10^{10}}", "10 \\cdot 10^{10^{10}-1}"));
  EXPECT_FALSE(math_equal("10^{10^{10}}", "10^{10^{10}-1}"));
  EXPECT_TRUE(math_equal("\\binom{30}{15}", "155117520"));
}

TEST(MathEqual, ExpressionsWithVariables) {
  EXPECT_TRUE(math_equal("(x+1)^2", "x^2+2x+1"));
  EXPECT_TRUE(math_equal("\\sec^2 y", "1+\\tan^2 y"));
  EXPECT_FALSE(math_equal("(x+1)^2", "x^2+1"));
  EXPECT_FALSE(math_equal("x+y", "x+z"));
  EXPECT_TRUE(math_equal("x+y", "a+b", {.any_names = true}));
  EXPECT_TRUE(math_equal("2x+4y=3", "y = -\\frac{x}{2}+0.75"));
  EXPECT_FALSE(math_equal("2x+4y=3", "y = \\frac{x}{2}+0.75"));
}

TEST(MathEqual, StrictAsksForTheReferencesForm) {
  const MathPolicy strict{.strict = true};
  EXPECT_TRUE(math_equal("5", "5.0", strict));
  EXPECT_FALSE(math_equal("5", "10/2", strict));
  EXPECT_TRUE(math_equal("5", "10/2"));
  EXPECT_FALSE(math_equal("1,2", "2,1", strict));
  EXPECT_TRUE(math_equal("1,2", "2,1"));
}

TEST(MathEqual, TextsThatEndTooSoon) {
  for (const char* text : {"5 cm^",
                           "\\{1,2om{5}}",
                           "\\{1}",
                           "\\text",
                           "\\text{",
                           "1_",
                           "x_",
                           "x^",
                           "\\sqrt[",
                           "\\frac",
                           "0.\\overline",
                           "0.\\overline{",
                           "\\begin",
                           "\\begin{matrix}1",
                           "\\lfloor",
                           "|",
                           "3:",
                           "1e",
                           "1,",
                           "\\mathbb",
                           "{1 \\over",
                           "\\sin^",
                           "\\pm",
                           "2 \\text{ million",
                           "-",
                           "1 2/"})
    EXPECT_FALSE(math_equal("7", text)) << text;
}

TEST(MathEqual, NestedEquationsOfALongListTakeNoLonger) {
  const auto nested = [](std::string inner) {
    for (int i = 0; i < 16; ++i) inner = "x=(" + inner + ")";
    return inner;
  };
  std::string factorials;
  for (int i = 0; i < 300; ++i) factorials += "999!+";
  const CpuTime time;
  EXPECT_FALSE(math_equal("5", nested(factorials + "x") + "," + nested(factorials + "y")));
  EXPECT_LT(time.seconds(), 1.0);
}

TEST(MathExtract, OneAnswerInOrderOfPreference) {
  EXPECT_EQ(extract_answer("The answer is 3. \\boxed{4} is 5").front(), "4");
  EXPECT_EQ(extract_answer("\\boxed{1} and \\boxed{2}").front(), "1, 2");
  EXPECT_EQ(extract_answer("so 7\n#### 8").front(), "8");
  EXPECT_EQ(extract_answer("The answer is $9$, not $10$.").front(), "9");
  EXPECT_EQ(extract_answer("She pays $18 for one day of work").front(), "\\$18");
  EXPECT_EQ(math_answer("<think>17</think> She makes 9 * 2 = $18 a day."), "9 * 2 = \\$18");
  EXPECT_EQ(math_answer("<think>17</think>"), std::nullopt);
  EXPECT_TRUE(extract_answer("").empty());
}

}  // namespace hone
