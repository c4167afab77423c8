#include "core/io/file.h"
#include "core/io/json.h"
#include "rewards/reward.h"
#include "tests/support/support.h"

namespace hone {

// Returns [format, answer, score] as the reference grader does.
static std::vector<double> grade(const Reward& reward, const std::string& response, const Json& truth) {
  Task task;
  if (truth.is_string())
    task.answer = truth.as_string();
  else
    task.columns.set("answer", truth);
  const RewardScore score = reward.score(task, {.ids = {}, .text = response, .finish_reason = "stop"});
  return {score.parts.at("format"), score.parts.at("answer"), score.score};
}

static std::vector<double> expected(const Json& one, const char* key) {
  std::vector<double> out;
  for (const Json& value : one.at(key).as_array()) out.push_back(value.as_double());
  return out;
}

TEST(R1Zero, GradesAsTheReferenceGraderDid) {
  HONE_SHARED_OR_SKIP(path, "vectors/a5/reward_grader.json");
  const Json cases = parse_json(read_file(path), path.string());
  const auto tagged = make_reward("r1_zero"), boxed = make_reward("{kind = 'r1_zero', from = 'boxed'}");
  int judged = 0;
  for (const Json& one : cases.at("answers").as_array()) {
    const std::string& answer = one.at("answer").as_string();
    EXPECT_EQ(grade(*tagged, "r </think> <answer> " + answer + " </answer>", one.at("ground_truth")),
              expected(one, "r1_zero"))
        << one.dump();
    EXPECT_EQ(grade(*boxed, "\\boxed{" + answer + "}", one.at("ground_truth")), expected(one, "question_only_boxed"))
        << one.dump();
    ++judged;
  }
  for (const Json& one : cases.at("formats").as_array())
    EXPECT_EQ(grade(*tagged, one.at("response").as_string(), one.at("ground_truth")), expected(one, "r1_zero"))
        << one.dump(),
        ++judged;
  for (const Json& one : cases.at("question_only").as_array())
    EXPECT_EQ(grade(*boxed, one.at("response").as_string(), one.at("ground_truth")), expected(one, "question_only"))
        << one.dump(),
        ++judged;
  const Json& list = cases.at("list_ground_truth");
  EXPECT_EQ(grade(*tagged, list.at("response").as_string(), list.at("ground_truth")), expected(list, "r1_zero"));
  EXPECT_GT(judged, 100);
}

TEST(R1Zero, FormAndAnswerAreSeparateParts) {
  const auto reward = make_reward("{kind = 'r1_zero', format_score = 0.1}");
  const Json truth("18");
  EXPECT_EQ(grade(*reward, "so </think> <answer> 18 </answer>", truth), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(grade(*reward, "so </think> <answer> 17 </answer>", truth), (std::vector<double>{1, 0, 0.1}));
  EXPECT_EQ(grade(*reward, "18", truth), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(grade(*reward, "so </think> <answer> 36/2 </answer>", truth), (std::vector<double>{1, 0, 0.1}));
}

TEST(R1Zero, WhiteSpaceBetweenTheTagsByKey) {
  const auto usual = make_reward("r1_zero"), lenient = make_reward("{kind = 'r1_zero', allow_whitespace = true}");
  const Json truth("18");
  for (const char* gap : {"", "\n", "\n\n", "  ", " \r\n\t"}) {
    const std::string text = std::string("so </think>") + gap + "<answer> 18 </answer>";
    EXPECT_EQ(grade(*usual, text, truth), (std::vector<double>{0, 0, 0})) << text;
    EXPECT_EQ(grade(*lenient, text, truth), (std::vector<double>{1, 1, 1})) << text;
  }
  EXPECT_EQ(grade(*lenient, "so </think> <answer> 18 </answer>", truth), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(grade(*lenient, "so </think> hm <answer> 18 </answer>", truth), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(grade(*lenient, "<answer> 18 </answer> </think>", truth), (std::vector<double>{0, 0, 0}));
}

}  // namespace hone
