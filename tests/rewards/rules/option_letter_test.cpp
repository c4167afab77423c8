// MMLU-Pro's extraction: stored replies give the letters of the original patterns.
#include <gtest/gtest.h>

#include "core/io/jsonl.h"
#include "rewards/reward.h"
#include "tests/support/support.h"

namespace hone {
namespace {

Json read(const Reward& reward, const std::string& text) {
  const auto letter = reward.read_answer({}, {.ids = {}, .text = text, .finish_reason = "stop"});
  return letter ? Json(*letter) : Json();
}

TEST(OptionLetter, StoredRepliesGiveTheOriginalLetters) {
  HONE_SHARED_OR_SKIP(path, "data/eval/mmlu_pro_responses.jsonl.gz");
  const auto whole = make_reward("option_letter"),
             first = make_reward("{kind = 'option_letter', first_pattern_only = true}");
  int rows = 0, right = 0;
  read_jsonl(path, [&](const Json& row, int64_t) {
    const std::string text = row.at("output").as_string();
    EXPECT_EQ(read(*first, text).dump(), row.at("extract_l1").dump()) << row.at("question_id").dump();
    EXPECT_EQ(read(*whole, text).dump(), row.at("extract_l2").dump()) << row.at("question_id").dump();
    Task task;
    task.answer = row.at("answer").as_string();
    right += whole->score(task, {.ids = {}, .text = text, .finish_reason = "stop"}).score == 1;
    EXPECT_EQ(whole->score(task, {.ids = {}, .text = text, .finish_reason = "stop"}).score == 1,
              row.at("extract_l2") == row.at("answer"));
    ++rows;
  });
  EXPECT_EQ(rows, 1000);
  EXPECT_GT(right, 300);
}

TEST(OptionLetter, PatternsInOrder) {
  const auto reward = make_reward("option_letter");
  EXPECT_EQ(read(*reward, "Answer: A. So the answer is (C). The answer is (D).").dump(), "\"C\"");
  EXPECT_EQ(read(*reward, "Answer: A or answer: B").dump(), "\"B\"");
  EXPECT_EQ(read(*reward, "It may be A, or J").dump(), "\"J\"");
  EXPECT_TRUE(read(*reward, "It is K").is_null());
  EXPECT_TRUE(read(*reward, "").is_null());
  EXPECT_THROW(make_reward("{kind = 'option_letter', letters = 'a-z'}"), Error);
}

}  // namespace
}  // namespace hone
