#pragma once
// The statistics of evaluation: shares, estimators over several replies, standard errors, intervals, paired tests. Pure functions of their
// arguments; what is drawn is a function of (seed, index), so that the same samples give the same figures on any machine.
#include <cstdint>
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

// A share of successes with its 95% Wilson interval (Wilson 1927: that of the score test, within [0, 1] for any count).
struct Proportion {
  double value = 0, low = 0, high = 0;
  int64_t count = 0;
};
Proportion proportion(double successes, int64_t count);

// Chen et al. 2021, eq. 1: the chance that k of n replies, drawn without repetition, hold one of the c right ones, 1 - C(n-c, k) / C(n, k).
// 0 <= c <= n, 1 <= k <= n.
double pass_at_k(int64_t n, int64_t c, int64_t k);

// maj@k: the answer given most often among the first k, the earliest of those that tie; its index. An empty answer is none and has no vote; 0 when
// nobody answers. 1 <= k <= answers.size().
size_t majority(std::span<const std::string> answers, size_t k);

// Of the mean: sqrt(sum (x - mean)^2 / (n - 1)) / sqrt(n); 0 for fewer than two values. As lm-evaluation-harness's mean_stderr.
double mean_stderr(std::span<const double> values);
// Of a mean over groups weighted by their sizes: sqrt(sum (n_g - 1) n_g s_g^2 / (N - G) / N), as lm-evaluation-harness's pooled_sample_stderr; 0
// where N == G.
double pooled_stderr(std::span<const double> stderrs, std::span<const int64_t> sizes);

// The 2.5% and 97.5% quantiles (linear between neighbours).
Interval central_95(std::vector<double> values);

// Indices of a bootstrap resample of n things: with repetition, decided by (seed, iteration).
std::vector<int32_t> resample(int64_t n, int64_t seed, int64_t iteration);

// McNemar's exact test of two paired sets of yes and no: the two-sided probability under fair coins of a split at least as uneven as
// (only_first, only_second); 1 where they are equal.
double mcnemar_exact(int64_t only_first, int64_t only_second);

// Of the figure sum(value) / sum(weight): second's less first's over pairs. Interval and p are those of resampled pairs: p is twice the smaller share
// of resamples whose difference is at zero or on one side of it, (count + 1) / (iterations + 1), at most 1. stderr_value is mean_stderr of the
// differences where all weights are 1, else the resamples' standard deviation.
struct PairedDifference {
  double first = 0, second = 0, difference = 0, stderr_value = 0, p = 1;
  Interval interval;
};
PairedDifference paired_bootstrap(std::span<const Observation> first, std::span<const Observation> second, int64_t iterations, int64_t seed);

}  // namespace hone
