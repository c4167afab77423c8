// The folder of an evaluation.
#include "eval/output.h"

#include <gtest/gtest.h>

#include "core/io/file.h"
#include "core/io/jsonl.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

EvalResult result_of(const std::string& task, const std::string& subtask) {
  EvalRun run;
  run.primary = "exact_match,strict-match";
  for (int64_t i = 0; i < 4; ++i) {
    EvalSample& sample = run.samples.emplace_back();
    sample.doc_id = i;
    sample.hash = std::to_string(i);
    sample.subtask = subtask;
    sample.metrics = {{"exact_match,strict-match", {i < 1 ? 1.0 : 0.0}},
                      {"acc", {1}},
                      {"pass@1", {0.25}},
                      {"pass@2", {0.5}},
                      {"maj@1", {0}},
                      {"maj@2", {0}}};
  }
  EvalResult out = summarize(std::move(run), 10, 1);
  out.task = task;
  out.kind = "generate";
  out.num_fewshot = 5;
  return out;
}

TEST(EvaluationFolder, ResultsHaveTheHarnesssNames) {
  const Json json = results_json({result_of("sums", ""), result_of("parts", "one")}, JsonObject{{"limit", 4}});
  const Json& sums = json.at("results").at("sums");
  EXPECT_EQ(sums.at("exact_match,strict-match").as_double(), 0.25);
  EXPECT_EQ(sums.at("exact_match_stderr,strict-match").as_double(), 0.25);
  EXPECT_EQ(sums.at("acc,none").as_double(), 1);
  EXPECT_TRUE(sums.at("acc_stderr,none").is_null());  // all are right: the spread is unknown
  EXPECT_EQ(json.at("results").at("parts_one").at("acc,none").as_double(), 1);
  EXPECT_EQ(json.at("group_subtasks").at("parts").dump(), R"(["parts_one"])");
  EXPECT_EQ(json.at("n-shot").at("sums").as_int(), 5);
  EXPECT_EQ(json.at("n-samples").at("sums").at("effective").as_int(), 4);
  EXPECT_TRUE(json.at("higher_is_better").at("sums").at("acc").as_bool());
  EXPECT_EQ(json.at("config").at("limit").as_int(), 4);
}

TEST(EvaluationFolder, ContainsSamplesReportAndPlots) {
  const TemporaryFolder folder;
  write_evaluation(folder.path(), {result_of("sums", ""), result_of("parts", "one")}, JsonObject{});
  int64_t rows = 0;
  read_jsonl(folder.path() / "samples_sums.jsonl",
             [&](const Json& row, int64_t) { EXPECT_EQ(row.at("doc_id").as_int(), rows++); });
  EXPECT_EQ(rows, 4);
  for (const char* file :
       {"results.json", "report.html", "accuracy.svg", "sums_pass_at_k.svg", "parts_exact_match_strict-match.svg"})
    EXPECT_TRUE(std::filesystem::exists(folder.path() / file)) << file;
  const std::string page = read_file(folder.path() / "report.md");
  for (const char* words : {"| exact_match,strict-match", "0.2500", "(accuracy.svg)", "- one", "(report.html)"})
    EXPECT_NE(page.find(words), std::string::npos) << words << "\n" << page;
}

}  // namespace
}  // namespace hone::test
