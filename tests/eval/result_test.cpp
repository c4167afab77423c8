// Figures of samples.
#include "eval/result.h"

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
  run.sampled = "acc";
  const EvalResult result = summarize(run, 200, 1);
  EXPECT_DOUBLE_EQ(result.figures.at("acc").value, 2.0 / 3);
  EXPECT_NEAR(*result.figures.at("acc").stderr_value, std::sqrt((2 * (1.0 / 9) + 4.0 / 9) / 2 / 3), 1e-12);
  EXPECT_DOUBLE_EQ(result.figures.at("bits").value, 1);
  EXPECT_DOUBLE_EQ(result.figures.at("perplexity").value, std::exp(3.0));
  EXPECT_GT(*result.figures.at("perplexity").stderr_value, 0);
  EXPECT_GT(*result.figures.at("bits").stderr_value, 0);
  EXPECT_FALSE(result.figures.at("bits").higher_is_better);
  for (const auto& [name, figure] : result.figures) {
    EXPECT_LE(figure.interval->low, figure.value) << name;
    EXPECT_GE(figure.interval->high, figure.value) << name;
  }
  EXPECT_EQ(result.metrics.at("mean_length"), 7);
  EXPECT_DOUBLE_EQ(result.accuracy->value, 2.0 / 3);
  EXPECT_DOUBLE_EQ(result.sampled_accuracy->value, 2.0 / 3);
  EXPECT_EQ(result.num_problems, 3);
}

TEST(Summary, SubtasksAreWeightedBySizeAndTheirErrorsPooled) {
  const EvalResult result = summarize(run_of({sample(0, "a", {{"acc", {1}}}, "x"), sample(1, "b", {{"acc", {0}}}, "x"),
                                              sample(2, "c", {{"acc", {1}}}, "y"), sample(3, "d", {{"acc", {1}}}, "y"),
                                              sample(4, "e", {{"acc", {0}}}, "y")}),
                                      0, 1);
  EXPECT_DOUBLE_EQ(result.figures.at("acc").value, (2 * 0.5 + 3 * (2.0 / 3)) / 5);
  const double x = std::sqrt(0.5 / 2), y = std::sqrt((2 * (1.0 / 9) + 4.0 / 9) / 2 / 3);
  EXPECT_NEAR(*result.figures.at("acc").stderr_value, std::sqrt((1 * 2 * x * x + 2 * 3 * y * y) / 3 / 5), 1e-12);
  EXPECT_EQ(result.subtasks.at("y").at("acc").value, 2.0 / 3);
  EXPECT_FALSE(result.figures.at("acc").interval);
  EXPECT_EQ(result.to_json().at("subtasks").at("x").at("num_problems").as_int(), 2);
}

// 30 problems of very different difficulty with 32 completions each: more completions of a problem add little
// information.
TEST(Summary, TheIntervalOfSampledAccuracyIsThatOfResampledProblems) {
  EvalRun run;
  run.sampled = "mean@32";
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < 30; ++i) {
    const double share = i % 3 == 0 ? 0 : i % 3 == 1 ? 1 : static_cast<double>(i) / 32;
    sum += share, squares += share * share;
    run.samples.push_back(sample(i, std::to_string(100 + i), {{"mean@32", {share}}}));
  }
  const double mean = sum / 30, stderr_of_problems = std::sqrt((squares - 30 * mean * mean) / 29 / 30);
  const EvalResult result = summarize(run, 2000, 1);
  const double width = result.sampled_accuracy->interval->high - result.sampled_accuracy->interval->low;
  EXPECT_NEAR(width, 2 * 1.96 * stderr_of_problems, 0.03);
  EXPECT_GT(width, 0.25);  // Wilson's over 960 completions is 0.06 wide
  EXPECT_EQ(result.to_json().at("sampled_ci95").dump(), result.to_json().at("bootstrap95").at("mean@32").dump());
}

TEST(Summary, WithoutABootstrapThereIsNoInterval) {
  EvalRun run = run_of({sample(0, "a", {{"acc", {1}}, {"mean@2", {0.5}}, {"perplexity", {2, 3}}}),
                        sample(1, "b", {{"acc", {0}}, {"mean@2", {1}}, {"perplexity", {4, 1}}})});
  run.exponents = {"perplexity"};
  run.sampled = "mean@2";
  const Json json = summarize(run, 0, 1).to_json();
  EXPECT_EQ(json.at("sampled_accuracy").as_double(), 0.75);
  EXPECT_TRUE(json.at("sampled_ci95").is_null());
  for (const char* name : {"acc", "mean@2", "perplexity"})
    EXPECT_TRUE(json.at("bootstrap95").at(name).is_null()) << name;
  EXPECT_NEAR(json.at("stderr").at("acc").as_double(), 0.5, 1e-12);
  EXPECT_TRUE(json.at("stderr").at("perplexity").is_null());
}

TEST(Summary, OneProblemHasNoStandardErrorAndNoResampledInterval) {
  EvalRun run = run_of({sample(0, "a", {{"acc", {1}}, {"mean@4", {0.5}}, {"perplexity", {2, 3}}})});
  run.exponents = {"perplexity"};
  run.sampled = "mean@4";
  const Json json = summarize(run, 100, 1).to_json();
  EXPECT_TRUE(json.at("sampled_ci95").is_null());
  for (const char* name : {"acc", "mean@4", "perplexity"}) {
    EXPECT_TRUE(json.at("bootstrap95").at(name).is_null()) << name;
    EXPECT_TRUE(json.at("stderr").at(name).is_null()) << name;
  }
  EXPECT_GT(json.at("ci95").as_array()[1].as_double() - json.at("ci95").as_array()[0].as_double(), 0.5);  // Wilson's
}

TEST(Summary, AllRightOrAllWrongHasWilsonsIntervalOverTheProblems) {
  for (const double share : {0.0, 1.0}) {
    EvalRun run;
    for (int64_t i = 0; i < 20; ++i) run.samples.push_back(sample(i, std::to_string(100 + i), {{"mean@8", {share}}}));
    run.sampled = "mean@8";
    const EvalResult result = summarize(run, 100, 1);
    EXPECT_DOUBLE_EQ(result.sampled_accuracy->interval->low, proportion(share * 20, 20).low);
    EXPECT_DOUBLE_EQ(result.sampled_accuracy->interval->high, proportion(share * 20, 20).high);
    EXPECT_FALSE(result.figures.at("mean@8").interval);
    EXPECT_FALSE(result.figures.at("mean@8").stderr_value);
  }
}

TEST(Summary, ARepeatedRowIsOneProblem) {
  std::vector<EvalSample> once, often;
  for (int64_t i = 0; i < 12; ++i) {
    const auto row = sample(i, std::to_string(100 + i), {{"acc", {i % 3 == 0 ? 1.0 : 0.0}}});
    once.push_back(row);
    for (int64_t copy = 0; copy < 16; ++copy) {
      often.push_back(row);
      often.back().doc_id = i * 16 + copy;
    }
  }
  const EvalResult a = summarize(run_of(once), 500, 1), b = summarize(run_of(often), 500, 1);
  EXPECT_DOUBLE_EQ(a.accuracy->low, b.accuracy->low);
  EXPECT_NEAR(*a.figures.at("acc").stderr_value, *b.figures.at("acc").stderr_value, 1e-12);
  EXPECT_NEAR(a.figures.at("acc").interval->low, b.figures.at("acc").interval->low, 1e-12);
  EXPECT_EQ(b.num_problems, 192);
}

TEST(Summary, IsTheSameToTheLastBitInAnyOrder) {
  std::vector<EvalSample> samples;
  for (int64_t i = 0; i < 40; ++i)
    samples.push_back(sample(i, std::to_string(i * 7919 % 40),
                             {{"acc", {i % 3 == 0 ? 1.0 : 0.0}},
                              {"bits", {std::sin(static_cast<double>(i)), 1 + 0.1 * static_cast<double>(i)}}}));
  const EvalResult forward = summarize(run_of(samples), 100, 3);
  std::reverse(samples.begin(), samples.end());
  const EvalResult backward = summarize(run_of(samples), 100, 3);
  EXPECT_EQ(forward.to_json().dump(), backward.to_json().dump());
  EXPECT_EQ(backward.samples.front().doc_id, 0);
  EXPECT_NE(summarize(run_of(samples), 100, 4).to_json().dump(), forward.to_json().dump());
}

TEST(Summary, ASamplesRowHasItsMetricsAndWeights) {
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
  const EvalResult result = summarize(run_of({}), 100, 1);
  EXPECT_TRUE(result.figures.empty());
  EXPECT_FALSE(result.accuracy.has_value());
}

}  // namespace
}  // namespace hone::test
