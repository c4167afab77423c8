// Figures of samples.
#include "posttrain/eval/result.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace hone::test {
namespace {

EvalSample sample(int64_t doc, std::string hash, std::map<std::string, Observation> metrics, std::string subtask = "") {
  EvalSample out;
  out.doc_id = doc;
  out.hash = std::move(hash);
  out.subtask = std::move(subtask);
  out.metrics = std::move(metrics);
  return out;
}

EvalRun run_of(std::vector<EvalSample> samples) {
  EvalRun out;
  out.samples = std::move(samples);
  out.primary = "acc";
  return out;
}

TEST(Summary, MeansRatiosAndExponents) {
  EvalRun run = run_of({sample(0, "a", {{"acc", {1}}, {"bits", {8, 4}}, {"perplexity", {2, 1}}}),
                        sample(1, "b", {{"acc", {0}}, {"bits", {4, 8}}, {"perplexity", {4, 1}}}),
                        sample(2, "c", {{"acc", {1}}, {"bits", {6, 6}}, {"perplexity", {3, 1}}})});
  run.exponents = {"perplexity"}, run.lower = {"perplexity", "bits"};
  run.facts["mean_length"] = 7;
  run.successes = 3, run.draws = 6;
  const EvalResult result = summarise(run, 200, 1);
  EXPECT_DOUBLE_EQ(result.figures.at("acc").value, 2.0 / 3);
  EXPECT_NEAR(result.figures.at("acc").stderr_value, std::sqrt((2 * (1.0 / 9) + 4.0 / 9) / 2 / 3), 1e-12);
  EXPECT_DOUBLE_EQ(result.figures.at("bits").value, 1);
  EXPECT_DOUBLE_EQ(result.figures.at("perplexity").value, std::exp(3.0));
  EXPECT_GT(result.figures.at("perplexity").stderr_value, 0);
  EXPECT_GT(result.figures.at("bits").stderr_value, 0);
  EXPECT_FALSE(result.figures.at("bits").higher_is_better);
  for (const auto& [name, figure] : result.figures) {
    EXPECT_LE(figure.interval.low, figure.value) << name;
    EXPECT_GE(figure.interval.high, figure.value) << name;
  }
  EXPECT_EQ(result.metrics.at("mean_length"), 7);
  EXPECT_DOUBLE_EQ(result.accuracy->value, 2.0 / 3);
  EXPECT_DOUBLE_EQ(result.sampled_accuracy->value, 0.5);
  EXPECT_EQ(result.num_problems, 3);
}

TEST(Summary, SubtasksAreWeightedBySizeAndTheirErrorsPooled) {
  const EvalResult result =
      summarise(run_of({sample(0, "a", {{"acc", {1}}}, "x"), sample(1, "b", {{"acc", {0}}}, "x"), sample(2, "c", {{"acc", {1}}}, "y"),
                        sample(3, "d", {{"acc", {1}}}, "y"), sample(4, "e", {{"acc", {0}}}, "y")}),
                0, 1);
  EXPECT_DOUBLE_EQ(result.figures.at("acc").value, (2 * 0.5 + 3 * (2.0 / 3)) / 5);
  const double x = std::sqrt(0.5 / 2), y = std::sqrt((2 * (1.0 / 9) + 4.0 / 9) / 2 / 3);
  EXPECT_NEAR(result.figures.at("acc").stderr_value, std::sqrt((1 * 2 * x * x + 2 * 3 * y * y) / 3 / 5), 1e-12);
  EXPECT_EQ(result.subtasks.at("y").at("acc").value, 2.0 / 3);
  EXPECT_EQ(result.figures.at("acc").interval.low, result.figures.at("acc").value);
  EXPECT_EQ(result.to_json().at("subtasks").at("x").at("num_problems").as_int(), 2);
}

TEST(Summary, IsTheSameToTheLastBitInAnyOrder) {
  std::vector<EvalSample> samples;
  for (int64_t i = 0; i < 40; ++i)
    samples.push_back(sample(i, std::to_string(i * 7919 % 40),
                             {{"acc", {i % 3 == 0 ? 1.0 : 0.0}}, {"bits", {std::sin(static_cast<double>(i)), 1 + 0.1 * static_cast<double>(i)}}}));
  const EvalResult forward = summarise(run_of(samples), 100, 3);
  std::reverse(samples.begin(), samples.end());
  const EvalResult backward = summarise(run_of(samples), 100, 3);
  EXPECT_EQ(forward.to_json().dump(), backward.to_json().dump());
  EXPECT_EQ(backward.samples.front().doc_id, 0);
  EXPECT_NE(summarise(run_of(samples), 100, 4).to_json().dump(), forward.to_json().dump());
}

TEST(Summary, ASamplesRowHoldsItsMetricsAndWhatWeighsThem) {
  EvalSample one = sample(3, "abc", {{"acc", {1}}, {"bits_per_byte", {6, 4}}}, "part");
  one.details = {{"completion", "x"}};
  const Json row = one.to_json();
  EXPECT_EQ(row.at("doc_id").as_int(), 3);
  EXPECT_EQ(row.at("subtask").as_string(), "part");
  EXPECT_EQ(row.at("completion").as_string(), "x");
  EXPECT_EQ(row.at("metrics").at("bits_per_byte").as_double(), 6);
  EXPECT_EQ(row.at("weights").dump(), R"({"bits_per_byte": 4.0})");
}

TEST(Summary, OfNothingIsEmpty) {
  const EvalResult result = summarise(run_of({}), 100, 1);
  EXPECT_TRUE(result.figures.empty());
  EXPECT_FALSE(result.accuracy.has_value());
}

}  // namespace
}  // namespace hone::test
