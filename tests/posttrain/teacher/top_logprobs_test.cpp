// Rows with the log-probs of a teacher's most likely tokens: writing, reading, and what is wrong with a row.
#include "posttrain/teacher/top_logprobs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/lm_head/distill_row.h"
#include "model/token_logprobs.h"
#include "tests/model/tiny_model.h"
#include "tests/support/errors.h"
#include "tests/train/rig.h"
#include "train/teacher.h"

namespace hone::test {
namespace {

Sample sample_of(std::vector<int32_t> tokens) {
  Sample out;
  out.tokens = std::move(tokens);
  set_mask(out, 2);
  return out;
}

Json row_of(const std::string& ids, const std::string& top_ids, const std::string& top_logp) {
  return parse_json(concat(R"({"ids": )", ids, R"(, "top_ids": )", top_ids, R"(, "top_logp": )", top_logp, "}"), "row");
}

const Json good =
    row_of("[3, 4, 5, 6]", "[null, [4], [5, 1], [6, 2, 0]]", "[null, [-0.1], [-0.5, -1.5], [-1, -2, -3]]");

std::string problem_of(const Json& row) {
  Sample sample = sample_of({3, 4, 5, 6});
  return error_of([&] { read_top_logprobs(row, "rows.jsonl:2", 10, sample); });
}

TEST(TopLogprobsRows, BecomeColumns) {
  Sample sample = sample_of({3, 4, 5, 6});
  read_top_logprobs(good, "rows.jsonl:1", 10, sample);
  const std::span<const float> ids = std::as_const(sample.columns)[columns::teacher_top_ids],
                               logp = std::as_const(sample.columns)[columns::teacher_top_logp];
  ASSERT_EQ(ids.size(), 4u * max_teacher_top);
  const auto entry = [&](size_t t, size_t k) {
    return std::pair(ids[t * max_teacher_top + k], logp[t * max_teacher_top + k]);
  };
  EXPECT_EQ(entry(1, 0).first, -1);  // the prompt
  EXPECT_EQ(entry(2, 0), std::pair(5.0f, -0.5f));
  EXPECT_EQ(entry(2, 1), std::pair(1.0f, -1.5f));
  EXPECT_EQ(entry(2, 2).first, -1);
  EXPECT_EQ(entry(3, 2), std::pair(0.0f, -3.0f));
  Sample shorter = sample_of({3, 4, 5});  // overlong_rows = "truncate"
  read_top_logprobs(good, "rows.jsonl:1", 10, shorter);
  EXPECT_EQ(std::as_const(shorter.columns)[columns::teacher_top_ids].size(), 3u * max_teacher_top);
}

TEST(TopLogprobsRows, ProblemsNameRowAndField) {
  const auto expect = [](const std::string& problem, const std::string& words) {
    EXPECT_NE(problem.find("rows.jsonl:2"), std::string::npos) << problem;
    EXPECT_NE(problem.find(words), std::string::npos) << problem;
  };
  const std::string ids = "[3, 4, 5, 6]", top = "[null, [4], [5, 1], [6, 2, 0]]",
                    logp = "[null, [-0.1], [-0.5, -1.5], [-1, -2, -3]]";
  expect(problem_of(row_of("[3, 4, 7, 6]", top, logp)), "ids[2] is 7, and the stage makes 5");
  expect(problem_of(row_of("[3, 4, 5]", "[null, [4], [5]]", "[null, [-1], [-1]]")),
         "ids has 3 tokens, the stage makes 4");
  expect(problem_of(row_of(ids, "[null, [4], [5, 1]]", logp)), "top_ids has 3 entries for 4 ids");
  expect(problem_of(row_of(ids, "[null, [4], [], [6, 2, 0]]", logp)), "token 2 is trained on and has no top_ids");
  expect(problem_of(row_of(ids, "[null, [4], [5], [6, 2, 0]]", logp)), "token 2: 1 ids in top_ids and 2 log-probs");
  expect(problem_of(row_of(ids, "[null, [4], [5, 10], [6, 2, 0]]", logp)), "the student's vocabulary has 10 tokens");
  expect(problem_of(row_of(ids, "[null, [4], [5, 5], [6, 2, 0]]", logp)), "top_ids has 5 twice");
  expect(problem_of(row_of(ids, top, "[null, [-0.1], [0.5, -1.5], [-1, -2, -3]]")), "sum to 1.8");
  expect(problem_of(parse_json(R"({"ids": [3, 4, 5, 6], "top_ids": [null]})", "row")), "top_logp");
  std::string many_ids = "[", many_logp = "[";
  for (int i = 0; i < 65; ++i) {
    many_ids += concat(i > 0 ? "," : "", i);
    many_logp += concat(i > 0 ? "," : "", -9);
  }
  Sample sample = sample_of({3, 4, 5});
  expect(error_of([&] {
           read_top_logprobs(
               row_of("[3, 4, 5]", concat("[null, [4], ", many_ids, "]]"), concat("[null, [-1], ", many_logp, "]]")),
               "rows.jsonl:2", 100, sample);
         }),
         "top_ids has 65 ids; at most 64 are read");
}

TEST(TopLogprobsRows, WhatAModelWritesIsRead) {
  const std::unique_ptr<Device> device = cpu_device();
  Context context(*device);
  const std::unique_ptr<Model> model = make_tiny(context, tiny_config("llama"), false);
  std::vector<std::vector<int32_t>> sequences;
  for (uint32_t i = 0; i < 5; ++i) sequences.push_back(random_tokens(2 + 3 * i, 19, i + 1));
  const std::vector<TopLogprobs> top = compute_top_logprobs(context, *model, sequences, 4);
  const std::vector<TokenLogprobs> own = compute_logprobs(context, *model, sequences, {.hit = true});
  ASSERT_EQ(top.size(), sequences.size());
  for (size_t s = 0; s < top.size(); ++s) {
    ASSERT_EQ(top[s].size(), sequences[s].size());
    EXPECT_TRUE(top[s][0].empty());
    for (size_t t = 1; t < top[s].size(); ++t) {
      ASSERT_EQ(top[s][t].size(), 4u);
      for (size_t k = 0; k < 4; ++k) {
        const auto& [id, logp] = top[s][t][k];
        EXPECT_GE(top[s][t][k > 0 ? k - 1 : 0].second, logp);
        EXPECT_TRUE(id != sequences[s][t] || logp == own[s].logp[t]);
      }
      EXPECT_EQ(top[s][t][0].first == sequences[s][t], own[s].hit[t] == 1);
    }
    Json row = JsonObject{{"ids", Json::array(sequences[s])}};
    write_top_logprobs(row, top[s]);
    Sample sample = sample_of(sequences[s]);
    read_top_logprobs(parse_json(row.dump(), "row"), "row", 19, sample);
    if (sequences[s].size() <= 2) continue;
    EXPECT_EQ(std::as_const(sample.columns)[columns::teacher_top_logp][2 * max_teacher_top], top[s][2][0].second);
  }
}

}  // namespace
}  // namespace hone::test
