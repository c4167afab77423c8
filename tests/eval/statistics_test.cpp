// Every estimator against an independent computation.
#include "eval/statistics.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "core/base/check.h"
#include "core/base/parallel_for.h"
#include "rewards/reward.h"

namespace hone::test {
namespace {

TEST(Wilson, GivesTheIntervalOfTheScoreTest) {
  const Proportion p = proportion(8, 10);
  EXPECT_DOUBLE_EQ(p.value, 0.8);
  // The ends solve |p - 0.8| = z sqrt(p (1 - p) / 10).
  for (const double end : {p.low, p.high})
    EXPECT_NEAR(std::abs(end - 0.8), 1.959963984540054 * std::sqrt(end * (1 - end) / 10), 1e-12);
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
      for (int k = 1; k <= n; ++k)
        EXPECT_NEAR(pass_at_k(n, c, k), pass_by_enumeration(n, c, k), 1e-12) << n << " " << c << " " << k;
  EXPECT_THROW(pass_at_k(4, 5, 1), Error);
  EXPECT_THROW(pass_at_k(4, 1, 5), Error);
  EXPECT_THROW(pass_at_k(4, 1, 0), Error);
  EXPECT_NEAR(pass_at_k(65536, 1, 32768), 0.5, 1e-9);
}

using Votes = std::vector<std::optional<size_t>>;

TEST(Votes, EqualAnswersGetOneNumberAndNoAnswerNone) {
  const std::vector<std::optional<std::string>> answers{"7", "07", std::nullopt, "x", "7.0", "x"};
  const auto by_value = [](const std::string& a, const std::string& b) {
    return std::isdigit(a[0]) && std::isdigit(b[0]) && std::stod(a) == std::stod(b);
  };
  EXPECT_EQ(number_answers(answers, by_value), (Votes{0, 0, std::nullopt, 1, 0, 1}));
  const auto never = [](const std::string&, const std::string&) { return false; };
  EXPECT_EQ(number_answers(answers, never), (Votes{0, 1, std::nullopt, 2, 3, 2}));
}

TEST(Votes, WaysToWriteAnAnswerVoteTogether) {
  const std::shared_ptr<const Reward> math = make_reward("math");
  Task task;
  task.answer = "1/2";
  std::vector<std::optional<std::string>> answers;
  for (const char* text : {"It is \\boxed{3}", "Well, \\boxed{0.5}", "\\boxed{3}", "so the answer is $\\frac{1}{2}$",
                           "No idea", "#### 1/2"}) {
    Completion completion;
    completion.text = text;
    answers.push_back(math->read_answer(task, completion));
  }
  const Votes votes = number_answers(
      answers, [&](const std::string& a, const std::string& b) { return math->same_answers(task, a, b); });
  EXPECT_EQ(votes[3], votes[1]);
  EXPECT_EQ(votes[5], votes[1]);
  EXPECT_EQ(votes[2], votes[0]);
  EXPECT_EQ(majority(votes, 6), 1u);
}

TEST(Votes, ManyDifferentAnswersTakeBoundedTime) {
  std::vector<std::optional<std::string>> answers;
  for (int i = 0; i < 5000; ++i) answers.emplace_back(std::to_string(i));
  int64_t compared = 0;
  const auto same = [&](const std::string&, const std::string&) { return ++compared, false; };
  EXPECT_EQ(number_answers(answers, same).back(), 4999u);
  EXPECT_LE(compared, 256 * 5000);
}

TEST(Majority, TakesTheMostFrequentAnswerAndTheEarliestOfATie) {
  const Votes votes{0, 1, std::nullopt, 1, std::nullopt, std::nullopt, 0};
  EXPECT_EQ(majority(votes, 4), 1u);
  EXPECT_EQ(majority(votes, 7), 0u);  // 0 and 1 twice, 0 first; those without an answer have three but no vote
  EXPECT_EQ(majority(votes, 1), 0u);
  EXPECT_EQ(majority(Votes{std::nullopt, std::nullopt, 0}, 2), std::nullopt);
  EXPECT_EQ(majority(Votes{std::nullopt, std::nullopt, 0}, 3), 2u);
  EXPECT_THROW(majority(votes, 8), Error);
}

std::vector<Observation> observations(const std::vector<double>& values) {
  std::vector<Observation> out;
  for (const double value : values) out.push_back({value});
  return out;
}

TEST(StandardErrors, OfAMeanAndOfGroups) {
  const std::vector<Observation> values = observations({1, 0, 0, 1, 1});  // mean 0.6, sum of squares 1.2
  EXPECT_NEAR(*mean_stderr(values), std::sqrt(1.2 / 4 / 5), 1e-15);
  // Groups of 5 and 3 with the standard errors 0.2 and 0.3: pooled variance (4 * 5 * 0.04 + 2 * 3 * 0.09) / (8 - 2).
  const std::vector<double> errors{0.2, 0.3};
  const std::vector<int64_t> sizes{5, 3};
  EXPECT_NEAR(pooled_stderr(errors, sizes), std::sqrt(1.34 / 6 / 8), 1e-15);
  EXPECT_EQ(pooled_stderr(std::vector<double>{0}, std::vector<int64_t>{1}), 0);
}

TEST(StandardErrors, AreNoneWhereTheSampleSaysNothing) {
  EXPECT_FALSE(mean_stderr(observations({3})));
  EXPECT_FALSE(mean_stderr(observations({1, 1, 1})));
  EXPECT_FALSE(mean_stderr({}));
  EXPECT_FALSE(bootstrap_interval({0.25, 0.25, 0.25}));
  EXPECT_FALSE(bootstrap_interval({}));
}

TEST(StandardErrors, RowsOfOneProblemAreOnePart) {
  // Three problems, the rows of each all alike: four rows of a problem say no more than one.
  ProblemParts once, often;
  for (const double value : {1.0, 0.0, 1.0}) {
    once.add({value}, false);
    for (int i = 0; i < 4; ++i) often.add({value}, i > 0);
  }
  EXPECT_EQ(often.parts.size(), 3u);
  EXPECT_TRUE(often.is_mean);
  EXPECT_NEAR(*mean_stderr(often.parts), *mean_stderr(once.parts), 1e-15);
  EXPECT_FALSE(mean_stderr(std::vector<Observation>{{3, 4}, {3, 4}}));
  once.add({2, 5}, false);
  EXPECT_FALSE(once.is_mean);
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

ProblemParts yes_or_no(const std::string& digits) {
  ProblemParts out;
  for (const char c : digits) out.add({c == '1' ? 1.0 : 0.0}, false);
  return out;
}

TEST(PairedBootstrap, GivesTheDifferenceItsErrorAndAnIntervalAroundIt) {
  const auto first = yes_or_no("1100110000"), second = yes_or_no("1110111100");
  const PairedDifference d = paired_bootstrap(first, second, 4000, 1);
  EXPECT_DOUBLE_EQ(d.first, 0.4);
  EXPECT_DOUBLE_EQ(d.second, 0.7);
  EXPECT_DOUBLE_EQ(d.difference, d.second - d.first);
  EXPECT_NEAR(*d.stderr_value, std::sqrt((3 * 0.49 + 7 * 0.09) / 9 / 10),
              1e-12);  // the differences: three ones, seven zeros
  EXPECT_GE(d.interval->low, 0);
  EXPECT_LE(d.interval->high, 0.7);
  // A resample without any of the three has no difference: (7/10)^10 of them, doubled.
  EXPECT_NEAR(*d.p, 2 * std::pow(0.7, 10), 0.02);
  EXPECT_DOUBLE_EQ(*paired_bootstrap(first, first, 100, 1).p, 1);
  EXPECT_THROW(paired_bootstrap(first, yes_or_no("1"), 100, 1), Error);
}

TEST(PairedBootstrap, OfOnePairOrOfEqualDifferencesSaysNothing) {
  for (const auto& [first, second] :
       {std::pair(yes_or_no("0"), yes_or_no("1")), std::pair(yes_or_no("000"), yes_or_no("111"))}) {
    const PairedDifference d = paired_bootstrap(first, second, 500, 1);
    EXPECT_DOUBLE_EQ(d.difference, 1);
    EXPECT_FALSE(d.interval);
    EXPECT_FALSE(d.stderr_value);
    EXPECT_FALSE(d.p);
  }
}

TEST(PairedBootstrap, OfARatioWeighsTheProblemsAndDoesNotDependOnThreads) {
  ProblemParts first, second;
  for (const Observation& one : {Observation{10, 5}, {2, 1}, {9, 3}}) first.add(one, false);
  for (const Observation& one : {Observation{5, 5}, {2, 1}, {6, 3}}) second.add(one, false);
  const int threads = num_threads();
  const PairedDifference many = paired_bootstrap(first, second, 500, 3);
  set_num_threads(1);
  const PairedDifference one = paired_bootstrap(first, second, 500, 3);
  set_num_threads(threads);
  EXPECT_DOUBLE_EQ(many.first, 21.0 / 9);
  EXPECT_DOUBLE_EQ(many.second, 13.0 / 9);
  EXPECT_EQ(many.interval->low, one.interval->low);
  EXPECT_EQ(*many.p, *one.p);
  EXPECT_EQ(*many.stderr_value, *one.stderr_value);
  EXPECT_GT(*many.stderr_value, 0);
}

}  // namespace
}  // namespace hone::test
