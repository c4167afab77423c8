#pragma once
// The statistics of evaluation: shares, estimators over several replies, standard errors, intervals, paired tests. Pure
// functions of their arguments; what is drawn is a function of (seed, index), so that the same samples give the same
// figures on any machine.
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

// One problem's part in a figure: sum(value) / sum(weight) over the problems.
struct Observation {
  double value = 0, weight = 1;
};

// A figure's parts by problem. The problem is what is sampled from the world: rows and draws of one problem are not
// independent. Standard errors and resamples therefore treat a problem as one part.
struct ProblemParts {
  std::vector<Observation> parts;
  bool is_mean = true;  // every row has weight 1
  // same_problem: the row belongs to the problem of the row before (a data set may hold the same row several times).
  void add(const Observation& row, bool same_problem);
};

// A share of successes with its 95% Wilson interval (Wilson 1927: that of the score test, within [0, 1] for any count).
struct Proportion {
  double value = 0, low = 0, high = 0;
  int64_t count = 0;
};
Proportion proportion(double successes, int64_t count);

// Chen et al. 2021, eq. 1: the chance that k of n replies, drawn without repetition, hold one of the c right ones, 1 -
// C(n-c, k) / C(n, k). 0 <= c <= n, 1 <= k <= n.
double pass_at_k(int64_t n, int64_t c, int64_t k);

// Sorts completions by their answers: equal answers get the same number, counted from 0 by first appearance; a
// completion without an answer gets none. An answer is compared with the first answer of each number. Only the first
// 256 numbers are compared with same(), which bounds the time; the answers after them count as equal if their text is
// equal.
std::vector<std::optional<size_t>> number_answers(
    std::span<const std::optional<std::string>> answers,
    const std::function<bool(const std::string&, const std::string&)>& same);
// maj@k: the number with the most votes among the first k, as the index of its first vote. The earliest of those that
// tie wins. None if nobody votes. 1 <= k <= votes.size().
std::optional<size_t> majority(std::span<const std::optional<size_t>> votes, size_t k);

// Of the mean sum(value) / sum(weight) over n problems, clustered by problem (Miller, "Adding Error Bars to Evals",
// 2024): sqrt(n / (n - 1) sum (value - mean weight)^2) / sum(weight). With weights of 1 it is lm-evaluation-harness's
// mean_stderr. None for fewer than two problems, and none if all are alike: the sample then says nothing about the
// spread.
std::optional<double> mean_stderr(std::span<const Observation> problems);
// sqrt(sum (x - mean)^2 / (n - 1)); 0 for fewer than two values.
double standard_deviation(std::span<const double> values);
// Of a mean over groups weighted by their sizes: sqrt(sum (n_g - 1) n_g s_g^2 / (N - G) / N), as
// lm-evaluation-harness's pooled_sample_stderr; 0 where N == G.
double pooled_stderr(std::span<const double> stderrs, std::span<const int64_t> sizes);

// The 2.5% and 97.5% quantiles (linear between neighbours).
Interval central_95(std::vector<double> values);
// The central 95% of a figure's resamples; none if they are all alike (one problem, all right, all wrong): they then
// say nothing.
std::optional<Interval> bootstrap_interval(std::vector<double> resampled);

// Indices of a bootstrap resample of n things: with repetition, decided by (seed, iteration).
std::vector<int32_t> resample(int64_t n, int64_t seed, int64_t iteration);

// McNemar's exact test of two paired sets of yes and no: the two-sided probability under fair coins of a split at least
// as uneven as (only_first, only_second); 1 where they are equal.
double mcnemar_exact(int64_t only_first, int64_t only_second);

// Of the figure sum(value) / sum(weight): second's less first's over pairs. Interval and p are those of resampled
// pairs: p is twice the smaller share of resamples whose difference is at zero or on one side of it, (count + 1) /
// (iterations + 1), at most 1; none where resampling says nothing (one pair, or all differ by the same amount above 0).
// stderr_value is mean_stderr of the differences of means, else the resamples' standard deviation.
struct PairedDifference {
  double first = 0, second = 0, difference = 0;
  std::optional<double> stderr_value, p;
  std::optional<Interval> interval;
};
PairedDifference paired_bootstrap(const ProblemParts& first, const ProblemParts& second, int64_t iterations,
                                  int64_t seed);

}  // namespace hone
