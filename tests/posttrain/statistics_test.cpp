// Every estimator against an independent computation.
#include "posttrain/eval/statistics.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "core/check.h"
#include "core/parallel_for.h"

namespace hone::test {
namespace {

TEST(Wilson, GivesTheIntervalOfTheScoreTest) {
  const Proportion p = proportion(8, 10);
  EXPECT_DOUBLE_EQ(p.value, 0.8);
  // The ends solve |p - 0.8| = z sqrt(p (1 - p) / 10).
  for (const double end : {p.low, p.high}) EXPECT_NEAR(std::abs(end - 0.8), 1.959963984540054 * std::sqrt(end * (1 - end) / 10), 1e-12);
  EXPECT_NEAR(p.low, 0.4901625, 1e-6);
  EXPECT_NEAR(p.high, 0.9433178, 1e-6);
  for (int64_t n = 1; n <= 50; ++n) {
    EXPECT_EQ(proportion(0, n).low, 0);
    EXPECT_EQ(proportion(static_cast<double>(n), n).high, 1);
  }
  EXPECT_EQ(proportion(0, 0).count, 0);
}

// All subsets of k of n replies, the first c of which are right.
double pass_by_enumeration(int n, int c, int k) {
  int with = 0, all = 0;
  for (unsigned subset = 0; subset < 1u << n; ++subset)
    if (std::popcount(subset) == k) {
      ++all;
      with += (subset & ((1u << c) - 1)) != 0;
    }
  return static_cast<double>(with) / all;
}

TEST(PassAtK, IsTheShareOfSubsetsWithARightReply) {
  for (int n = 1; n <= 9; ++n)
    for (int c = 0; c <= n; ++c)
      for (int k = 1; k <= n; ++k) EXPECT_NEAR(pass_at_k(n, c, k), pass_by_enumeration(n, c, k), 1e-12) << n << " " << c << " " << k;
  EXPECT_THROW(pass_at_k(4, 5, 1), Error);
  EXPECT_THROW(pass_at_k(4, 1, 5), Error);
  EXPECT_THROW(pass_at_k(4, 1, 0), Error);
  EXPECT_NEAR(pass_at_k(65536, 1, 32768), 0.5, 1e-9);
}

TEST(Majority, TakesTheMostFrequentAnswerAndTheEarliestOfATie) {
  const std::vector<std::string> answers{"3", "7", "", "7", "", "", "3"};
  EXPECT_EQ(answers[majority(answers, 4)], "7");
  EXPECT_EQ(majority(answers, 7), 0u);  // 3 and 7 twice, 3 first; nothing at all has three but no vote
  EXPECT_EQ(majority(answers, 1), 0u);
  EXPECT_EQ(majority(std::vector<std::string>{"", "", "5"}, 2), 0u);
  EXPECT_EQ(majority(std::vector<std::string>{"", "", "5"}, 3), 2u);
  EXPECT_THROW(majority(answers, 8), Error);
}

TEST(StandardErrors, OfAMeanAndOfGroups) {
  const std::vector<double> values{1, 0, 0, 1, 1};  // mean 0.6, sum of squares 1.2
  EXPECT_NEAR(mean_stderr(values), std::sqrt(1.2 / 4 / 5), 1e-15);
  EXPECT_EQ(mean_stderr(std::vector<double>{3}), 0);
  // Groups of 5 and 3 with the standard errors 0.2 and 0.3: pooled variance (4 * 5 * 0.04 + 2 * 3 * 0.09) / (8 - 2).
  const std::vector<double> errors{0.2, 0.3};
  const std::vector<int64_t> sizes{5, 3};
  EXPECT_NEAR(pooled_stderr(errors, sizes), std::sqrt(1.34 / 6 / 8), 1e-15);
  EXPECT_EQ(pooled_stderr(std::vector<double>{0}, std::vector<int64_t>{1}), 0);
}

TEST(Quantiles, AreLinearBetweenNeighbours) {
  std::vector<double> values;
  for (int i = 100; i >= 0; --i) values.push_back(i);
  EXPECT_DOUBLE_EQ(central_95(values).low, 2.5);
  EXPECT_DOUBLE_EQ(central_95(values).high, 97.5);
  EXPECT_DOUBLE_EQ(central_95({4}).high, 4);
}

TEST(Bootstrap, IsAFunctionOfSeedAndIterationAndCoversEvenly) {
  EXPECT_EQ(resample(50, 7, 3), resample(50, 7, 3));
  EXPECT_NE(resample(50, 7, 3), resample(50, 7, 4));
  EXPECT_NE(resample(50, 7, 3), resample(50, 8, 3));
  std::vector<int> counts(10);
  for (int64_t b = 0; b < 2000; ++b)
    for (const int32_t i : resample(10, 1, b)) ++counts.at(static_cast<size_t>(i));
  for (const int count : counts) EXPECT_NEAR(count, 2000, 250);  // more than five standard deviations
}

TEST(McNemar, IsTheBinomialTestOfTheDiscordantPairs) {
  EXPECT_DOUBLE_EQ(mcnemar_exact(0, 0), 1);
  EXPECT_NEAR(mcnemar_exact(1, 5), 2 * (1 + 6) / 64.0, 1e-12);
  EXPECT_NEAR(mcnemar_exact(5, 1), 2 * (1 + 6) / 64.0, 1e-12);
  EXPECT_NEAR(mcnemar_exact(0, 10), 2 / 1024.0, 1e-12);
  EXPECT_NEAR(mcnemar_exact(2, 8), 2 * (1 + 10 + 45) / 1024.0, 1e-12);
  EXPECT_DOUBLE_EQ(mcnemar_exact(4, 4), 1);
  EXPECT_GT(mcnemar_exact(5000, 5100), 0.3);
  EXPECT_LT(mcnemar_exact(3000, 5000), 1e-9);
}

std::vector<Observation> yes_or_no(const std::string& digits) {
  std::vector<Observation> out;
  for (const char c : digits) out.push_back({c == '1' ? 1.0 : 0.0});
  return out;
}

TEST(PairedBootstrap, GivesTheDifferenceItsErrorAndAnIntervalAroundIt) {
  const auto first = yes_or_no("1100110000"), second = yes_or_no("1110111100");
  const PairedDifference d = paired_bootstrap(first, second, 4000, 1);
  EXPECT_DOUBLE_EQ(d.first, 0.4);
  EXPECT_DOUBLE_EQ(d.second, 0.7);
  EXPECT_DOUBLE_EQ(d.difference, d.second - d.first);
  EXPECT_NEAR(d.stderr_value, std::sqrt((3 * 0.49 + 7 * 0.09) / 9 / 10), 1e-12);  // the differences: three ones, seven zeros
  EXPECT_GE(d.interval.low, 0);
  EXPECT_LE(d.interval.high, 0.7);
  // A resample without any of the three has no difference: (7/10)^10 of them, doubled.
  EXPECT_NEAR(d.p, 2 * std::pow(0.7, 10), 0.02);
  EXPECT_DOUBLE_EQ(paired_bootstrap(first, first, 100, 1).p, 1);
  EXPECT_THROW(paired_bootstrap(first, yes_or_no("1"), 100, 1), Error);
}

TEST(PairedBootstrap, OfARatioWeighsTheProblemsAndDoesNotDependOnThreads) {
  const std::vector<Observation> first{{10, 5}, {2, 1}, {9, 3}}, second{{5, 5}, {2, 1}, {6, 3}};
  const int threads = num_threads();
  const PairedDifference many = paired_bootstrap(first, second, 500, 3);
  set_num_threads(1);
  const PairedDifference one = paired_bootstrap(first, second, 500, 3);
  set_num_threads(threads);
  EXPECT_DOUBLE_EQ(many.first, 21.0 / 9);
  EXPECT_DOUBLE_EQ(many.second, 13.0 / 9);
  EXPECT_EQ(many.interval.low, one.interval.low);
  EXPECT_EQ(many.p, one.p);
  EXPECT_EQ(many.stderr_value, one.stderr_value);
  EXPECT_GT(many.stderr_value, 0);
}

}  // namespace
}  // namespace hone::test
