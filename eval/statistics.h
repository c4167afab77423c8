#pragma once
// The statistics of evaluation: proportions, estimators over several completions, standard errors, intervals, paired
// tests. Pure functions of their arguments. Random draws are functions of (seed, index), so that the same samples give
// the same figures on any machine.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hone {

struct Interval {
  double low = 0, high = 0;
};

// The contribution of a row to a figure, which is sum(value) / sum(weight).
struct Observation {
  double value = 0, weight = 1;
};

// A figure's contributions by problem. Problems are the independent units: rows and completions of one problem are not
// independent. Standard errors and resamples therefore treat a problem as one part.
struct ProblemParts {
  std::vector<Observation> parts;
  bool is_mean = true;  // every row has weight 1
  // same_problem: the row is of the same problem as the row before (a data set may contain a row several times).
  void add(const Observation& row, bool same_problem);
};

// A proportion of successes with its 95% Wilson interval (Wilson 1927, from the score test; within [0, 1] for any
// count).
struct Proportion {
  double value = 0, low = 0, high = 0;
  int64_t count = 0;
};
Proportion proportion(double successes, int64_t count);

// Chen et al. 2021, eq. 1: the probability that k of n completions, chosen without replacement, include one of the c
// right ones: 1 - C(n-c, k) / C(n, k). 0 <= c <= n, 1 <= k <= n.
double pass_at_k(int64_t n, int64_t c, int64_t k);

// Numbers the answers of completions: equal answers get the same number, from 0 by first appearance; a completion
// without an answer gets none. An answer is compared with the first answer of each number. Only the first 256 numbers
// are compared with same(), which bounds the time; answers beyond them are equal if their text is equal.
std::vector<std::optional<size_t>> number_answers(
    std::span<const std::optional<std::string>> answers,
    const std::function<bool(const std::string&, const std::string&)>& same);
// maj@k: the number with the most votes among the first k, as the index of its first vote. In a tie the earliest wins.
// None if there are no votes. 1 <= k <= votes.size().
std::optional<size_t> majority(std::span<const std::optional<size_t>> votes, size_t k);

// Standard error of the mean sum(value) / sum(weight) over n problems, clustered by problem (Miller, "Adding Error Bars
// to Evals", 2024): sqrt(n / (n - 1) sum (value - mean weight)^2) / sum(weight). With weights of 1 it is
// lm-evaluation-harness's mean_stderr. None for fewer than two problems, or if all are equal: the spread is then
// unknown.
std::optional<double> mean_stderr(std::span<const Observation> problems);
// sqrt(sum (x - mean)^2 / (n - 1)); 0 for fewer than two values.
double standard_deviation(std::span<const double> values);
// Standard error of a mean over G groups weighted by their sizes: sqrt(sum (n_g - 1) n_g s_g^2 / (N - G) / N), as
// lm-evaluation-harness's pooled_sample_stderr; 0 if N == G.
double pooled_stderr(std::span<const double> stderrs, std::span<const int64_t> sizes);

// The 2.5% and 97.5% quantiles, with linear interpolation.
Interval central_95(std::vector<double> values);
// The central 95% of a figure's resamples; none if all are equal (one problem, all right, all wrong).
std::optional<Interval> bootstrap_interval(std::vector<double> resampled);

// Indices of a bootstrap resample of n items, with replacement; a function of (seed, iteration).
std::vector<int32_t> resample(int64_t n, int64_t seed, int64_t iteration);

// McNemar's exact test of paired binary values: the two-sided probability, with fair coins, of a split at least as
// uneven as (only_first, only_second); 1 if they are equal.
double mcnemar_exact(int64_t only_first, int64_t only_second);

// The difference second - first of the figure sum(value) / sum(weight) over pairs. Interval and p come from resampled
// pairs. p is twice the smaller fraction of resamples with a difference <= 0 or >= 0, each (count + 1) / (iterations +
// 1), at most
// 1. They are none if resampling gives no information (one pair, or all pairs differ by the same nonzero amount).
// stderr_value is mean_stderr of the differences if the figure is a mean, else the resamples' standard deviation.
struct PairedDifference {
  double first = 0, second = 0, difference = 0;
  std::optional<double> stderr_value, p;
  std::optional<Interval> interval;
};
PairedDifference paired_bootstrap(const ProblemParts& first, const ProblemParts& second, int64_t iterations,
                                  int64_t seed);

}  // namespace hone
