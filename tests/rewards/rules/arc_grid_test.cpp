// Grids in the forms that completions have.
#include <gtest/gtest.h>

#include "core/io/jsonl.h"
#include "rewards/reward.h"
#include "tests/support/support.h"

namespace hone {
namespace {

RewardScore judge(const std::string& text, const char* spec = "arc_grid",
                  const char* answer = "[[1, 0, 2], [0, 1, 3]]") {
  Task task;
  task.answer = answer;
  return make_reward(spec)->score(task, {.ids = {}, .text = text, .finish_reason = "stop"});
}

TEST(ArcGrid, FormsOfAGrid) {
  for (const char* right :
       {"[[1, 0, 2], [0, 1, 3]]", "[[1,0,2],[0,1,3]]", "[[1, 0, 2],\n [0, 1, 3]]", "102\n013", "1 0 2\n0 1 3",
        "The output:\n```\n1 0 2\n0 1 3\n```\nDone.", "1,0,2\n0,1,3\n", "| 1 | 0 | 2 |\n| 0 | 1 | 3 |",
        "[\n  [1, 0, 2],\n  [0, 1, 3]\n]", "Input [[5, 5], [5, 5]] gives [[1, 0, 2], [0, 1, 3]]",
        "```\n[1, 0, 2]\n[0, 1, 3]\n```", "[\n [\n  1,\n  0,\n  2\n ],\n [\n  0,\n  1,\n  3\n ]\n]",
        "[[9, 9, 9], [9, 9, 9]]\n\n[[1, 0, 2], [0, 1, 3]]", "999\n999\n\n102\n013"})
    EXPECT_EQ(judge(right).score, 1) << right << ": " << judge(right).note;
  for (const char* wrong : {"", "no grid", "[[1, 0, 2], [0, 1, 4]]", "102013", "1 0\n2 0", "10 2\n01 3",
                            "[[1, 0, 2], [0, 1, 3]]\n[[1, 0], [0, 1]]"})
    EXPECT_EQ(judge(wrong).score, 0) << wrong;
}

TEST(ArcGrid, PartialScoresTheShareOfRightCells) {
  const RewardScore score = judge("102\n010", "{kind = 'arc_grid', partial = true}");
  EXPECT_DOUBLE_EQ(score.score, 5.0 / 6);
  EXPECT_DOUBLE_EQ(judge("102\n010").parts.at("cells"), 5.0 / 6);
  EXPECT_EQ(judge("102\n010").parts.at("shape"), 1);
  EXPECT_EQ(judge("10\n01", "{kind = 'arc_grid', partial = true}").score, 0);
  EXPECT_TRUE(judge("1", "arc_grid", "none").skipped);
}

TEST(ArcGrid, EveryOutputEqualsItselfAndNoOther) {
  HONE_SHARED_OR_SKIP(path, "data/eval/arc_agi.jsonl.gz");
  std::string before = "[[0]]";
  int rows = 0;
  read_jsonl(path, [&](const Json& row, int64_t) {
    const std::string grid = row.at("test").as_array()[0].at("output").dump();
    EXPECT_EQ(judge("Output: " + grid, "arc_grid", grid.c_str()).score, 1) << grid;
    EXPECT_EQ(judge(before, "arc_grid", grid.c_str()).score, before == grid) << grid;
    before = grid;
    ++rows;
  });
  EXPECT_EQ(rows, 800);
}

}  // namespace
}  // namespace hone
