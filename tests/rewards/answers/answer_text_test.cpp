#include "rewards/answers/answer_text.h"

#include <gtest/gtest.h>

namespace hone {

TEST(FinalAnswer, IsLookedForInOrder) {
  EXPECT_EQ(final_answer("<think>\\boxed{1}</think> <answer> 1 + 2 </answer>"), "1 + 2");
  EXPECT_EQ(final_answer("<answer>1</answer> no: <answer>2</answer>"), "2");
  EXPECT_EQ(final_answer("<answer>cut off"), "cut off");
  EXPECT_EQ(final_answer("<answer>the sum is \\boxed{3}</answer>"), "3");
  EXPECT_EQ(final_answer("<answer>my answer: 3</answer>"), "my answer: 3");
  EXPECT_EQ(final_answer("<think>The answer is 1</think>\n2"), "2");
  EXPECT_EQ(final_answer("so \\boxed{x, y}. The answer is 3"), "x, y");
  EXPECT_EQ(final_answer("The answer is: 3\nbecause 2 < 3"), "3");
  EXPECT_EQ(final_answer("Answer:\n1 2\n3 4\n"), "1 2\n3 4");
  EXPECT_EQ(final_answer("**Answer:** 7"), "7");
  EXPECT_EQ(final_answer("Here it is:\n```text\n1 2\n3 4\n```\nas asked"), "1 2\n3 4");
  EXPECT_EQ(final_answer("<answer>```json\n[1]\n```</answer>"), "[1]");
  EXPECT_EQ(final_answer(" just this \n"), "just this");
  EXPECT_EQ(final_answer("```"), "```");
  EXPECT_EQ(final_answer(""), "");
}

TEST(SameAnswer, ByTheFormOfTheReference) {
  EXPECT_TRUE(same_answer("1652", "1,652"));
  EXPECT_TRUE(same_answer("7.56090", "7.5609"));
  EXPECT_TRUE(same_answer("-3", "-3."));
  EXPECT_FALSE(same_answer("1652", "652"));
  EXPECT_FALSE(same_answer("1652", "1652 or 1653"));
  EXPECT_TRUE(same_answer("True", "true."));
  EXPECT_TRUE(same_answer("father-in-law", "\"Father-in-law\""));
  EXPECT_FALSE(same_answer("True", "not true"));
  EXPECT_TRUE(same_answer("['76.9758', '1']", "[76.9758,1]"));
  EXPECT_FALSE(same_answer("[1, 2]", "[12]"));
  EXPECT_TRUE(same_answer("a, b, c", "a,b,  c"));
  EXPECT_FALSE(same_answer("a, b, c", "a, c, b"));
  EXPECT_TRUE(same_answer("1 2\n3 4", "1 2 \n\n 3   4"));
  EXPECT_FALSE(same_answer("1 2\n3 4", "1 2 3 4"));
  EXPECT_TRUE(same_answer("That is all.", "That is all."));
  EXPECT_FALSE(same_answer("#A B#", "#a b#"));
  EXPECT_TRUE(same_answer("0x1e0", "`0x1e0`"));
  EXPECT_FALSE(same_answer("5", ""));
  EXPECT_FALSE(same_answer("a b", std::string(1 << 20, ' ')));
}

}  // namespace hone
