// The README's promises of the quickstart, for three seeds.
#include <gtest/gtest.h>

#include <map>

#include "core/io/file.h"
#include "core/io/jsonl.h"
#include "tests/support/process.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

class Quickstart : public ::testing::TestWithParam<int> {};

TEST_P(Quickstart, ARewardTeachesWhatImitationDidNot) {
  const TemporaryFolder folder;
  const Finished done = run_hone({"run", (source_folder() / "configs" / "quickstart.toml").string(),
                                  "runs=" + folder.path().string(), "seed=" + std::to_string(GetParam())});
  ASSERT_EQ(done.code, 0) << done.err;
  const std::filesystem::path run = folder.path() / "quickstart";
  std::map<std::string, double> accuracy;
  const Json report = parse_json(read_file(run / "report.json"), "report.json");
  for (const Json& stage : report.at("stages").as_array()) {
    accuracy[stage.at("name").as_string()] = stage.at("accuracy").as_double();
    EXPECT_EQ(stage.at("ci95").as_array().size(), 2u);
  }
  EXPECT_TRUE(accuracy.contains("pretrain"));
  EXPECT_GE(accuracy.at("sft"), 0.20);
  EXPECT_LE(accuracy.at("sft"), 0.60);
  EXPECT_GE(accuracy.at("grpo"), 0.80);
  EXPECT_GE(accuracy.at("grpo"), accuracy.at("sft") + 0.25);
  int64_t on_policy_steps = 0;
  read_jsonl(run / "metrics.jsonl", [&](const Json& row, int64_t) {
    const Json* difference = row.find("sampling/sampling_logp_difference/max");
    if (!difference) return;
    EXPECT_EQ(difference->as_double(), 0.0);
    ++on_policy_steps;
  });
  EXPECT_EQ(on_policy_steps, 100);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Quickstart, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace hone::test
