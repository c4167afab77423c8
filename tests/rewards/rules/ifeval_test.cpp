// The reward "ifeval": score and parts.
#include <gtest/gtest.h>

#include "rewards/reward.h"

namespace hone {
namespace {

Task task_of(JsonArray ids, JsonArray kwargs) {
  Task out;
  out.columns = JsonObject{{"instruction_id_list", std::move(ids)}, {"kwargs", std::move(kwargs)}};
  return out;
}

Completion completion_of(const char* text) { return {.ids = {1}, .text = text, .finish_reason = "stop"}; }

const Task two = task_of({"punctuation:no_comma", "length_constraints:number_words"},
                         {JsonObject{}, JsonObject{{"num_words", 3}, {"relation", "at least"}}});

TEST(IfEvalReward, TheScoreIsTheStrictVerdictOfTheWholePrompt) {
  const auto reward = make_reward("ifeval");
  const RewardScore right = reward->score(two, completion_of("one two three"));
  EXPECT_EQ(right.score, 1);
  EXPECT_EQ(
      right.parts,
      (Metrics{{"strict", 1}, {"loose", 1}, {"punctuation:no_comma", 1}, {"length_constraints:number_words", 1}}));
  const RewardScore loose = reward->score(two, completion_of("Sure, here:\none two three"));
  EXPECT_EQ(loose.score, 0);
  EXPECT_EQ(loose.parts.at("loose"), 1);
  EXPECT_EQ(loose.parts.at("punctuation:no_comma"), 0);
  EXPECT_EQ(loose.note, "does not follow punctuation:no_comma");
  EXPECT_EQ(make_reward("{kind = 'ifeval', loose = true}")->score(two, completion_of("a, b\none two three")).score, 1);
}

TEST(IfEvalReward, AKindThatOccursTwiceHasTwoParts) {
  const Task task = task_of({"punctuation:no_comma", "punctuation:no_comma"}, {JsonObject{}, nullptr});
  const RewardScore score = make_reward("{kind = 'ifeval', counts = true}")->score(task, completion_of("no"));
  EXPECT_EQ(score.parts.at("punctuation:no_comma#2"), 1);
  EXPECT_EQ(score.parts.at("num_instructions"), 2);
  EXPECT_EQ(score.parts.at("num_strict"), 2);
}

TEST(IfEvalReward, AWrongRowFailsAndNamesWhatIsWrong) {
  const RewardScore unknown = make_reward("ifeval")->score(task_of({"punctuation:no_coma"}, {JsonObject{}}), {});
  EXPECT_TRUE(unknown.failed);
  EXPECT_NE(unknown.note.find("did you mean 'punctuation:no_comma'"), std::string::npos) << unknown.note;
  EXPECT_TRUE(make_reward("ifeval")->score(task_of({"punctuation:no_comma"}, {}), {}).failed);
  EXPECT_TRUE(make_reward("ifeval")->score({}, {}).skipped);
}

}  // namespace
}  // namespace hone
