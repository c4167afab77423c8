// The answers that rewards expose for votes are the answers that they score, and equality is that of the reward.
#include <gtest/gtest.h>

#include "rewards/reward.h"

namespace hone::test {
namespace {

class ReadAnswerTest : public ::testing::Test {
 protected:
  std::optional<std::string> read(const std::string& reward, const std::string& text,
                                  const std::string& reference = "1/2") {
    task.answer = reference;
    Completion completion;
    completion.text = text;
    return make_reward(reward)->read_answer(task, completion);
  }
  bool same(const std::string& reward, const std::string& a, const std::string& b) {
    return make_reward(reward)->same_answers(task, a, b);
  }
  Task task;
};

TEST_F(ReadAnswerTest, MathReadsTheJudgedPartAndComparesItsValue) {
  EXPECT_EQ(read("math", "First 7, then 8. So \\boxed{0.5}"), "0.5");
  EXPECT_EQ(read("math", ""), std::nullopt);
  for (const char* other : {"\\frac{1}{2}", "0.5", "\\frac12", "50\\%"}) {
    EXPECT_TRUE(same("math", "1/2", other)) << other;
    EXPECT_TRUE(same("math", other, "1/2")) << other;
  }
  EXPECT_FALSE(same("math", "1/2", "1/3"));
  EXPECT_FALSE(same("{kind = 'math', strict = true}", "5", "10/2"));
}

TEST_F(ReadAnswerTest, NumberReadsDigitsAndKeepsItsTolerance) {
  EXPECT_EQ(read("number", "3 apples and 4: the answer is 1,007.50", "7"), "1007.5");
  EXPECT_EQ(read("number", "none", "7"), std::nullopt);
  EXPECT_FALSE(same("number", "7", "7.01"));
  EXPECT_TRUE(same("{kind = 'number', tolerance = 0.1}", "7", "7.01"));
  EXPECT_TRUE(same("{kind = 'number', relative_tolerance = 0.1}", "-70", "-71"));
}

TEST_F(ReadAnswerTest, ChoiceExactAndTheTaggedForm) {
  EXPECT_EQ(read("choice", "\\boxed{B}", "C"), "B");
  EXPECT_EQ(read("choice", "I do not know whether it rains.", "C"), std::nullopt);
  EXPECT_EQ(read("exact", " Paris \n", "x"), "Paris");
  EXPECT_EQ(read("exact", " \n", "x"), std::nullopt);
  EXPECT_FALSE(same("exact", "Paris", "paris"));
  EXPECT_TRUE(same("{kind = 'exact', ignore_case = true}", "Paris", "paris"));
  EXPECT_EQ(read("r1_zero", "<think> so </think> <answer> \\boxed{3} </answer>", "3"), "3");
  EXPECT_EQ(read("r1_zero", "The answer is 3.", "3"), std::nullopt);
  EXPECT_TRUE(same("r1_zero", "0.5", "0.50"));
}

TEST_F(ReadAnswerTest, ACompositesAnswerIsItsFirstReadersAndPuzzlesWithManySolutionsHaveNone) {
  const std::string composite =
      "{kind = 'composite', parts = [{kind = 'length'}, {kind = 'number', tolerance = 1.0}, {kind = 'choice'}]}";
  EXPECT_TRUE(make_reward(composite)->reads_answers(task));
  EXPECT_EQ(read(composite, "It is 12.", "12"), "12");
  EXPECT_TRUE(same(composite, "12", "13"));
  EXPECT_FALSE(
      make_reward("{kind = 'composite', parts = [{kind = 'length'}, {kind = 'format'}]}")->reads_answers(task));
  for (const char* none : {"length", "format", "countdown", "sequence_completion"})
    EXPECT_FALSE(make_reward(none)->reads_answers(task)) << none;

  const std::string mixed =
      "{kind = 'composite', parts = [{kind = 'choice', when = {column = 'form', equals = 'letter'}}, {kind = 'number', "
      "when = {column = 'form', "
      "equals "
      "= 'sum'}}]}";
  for (const auto& [form, answer] : {std::pair("letter", "B"), std::pair("sum", "7")}) {
    task.columns = JsonObject{{"form", form}};
    EXPECT_EQ(read(mixed, "The answer is (B). #### 7", "7"), answer);
  }
  task.columns = JsonObject{{"task", "leg_counting"}};
  EXPECT_TRUE(make_reward("reasoning_gym")->reads_answers(task));
  EXPECT_EQ(read("reasoning_gym", "<answer> 12 </answer>", "12"), "12");
  EXPECT_TRUE(same("reasoning_gym", "12", "12.0"));
  task.columns = JsonObject{{"task", "sudoku"}};
  EXPECT_FALSE(make_reward("reasoning_gym")->reads_answers(task));
}

}  // namespace
}  // namespace hone::test
