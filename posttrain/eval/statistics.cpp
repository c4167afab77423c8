#include "posttrain/eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/check.h"
#include "core/parallel_for.h"
#include "core/rng.h"

namespace hone {

Proportion proportion(double successes, int64_t count) {
  if (count == 0) return {};
  constexpr double z = 1.959963984540054;
  const double n = static_cast<double>(count), p = successes / n, shrink = 1 + z * z / n;
  const double centre = (p + z * z / (2 * n)) / shrink, half = z / shrink * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  return {p, successes > 0 ? centre - half : 0, successes < n ? centre + half : 1, count};  // exact at the ends, which rounding may miss
}

// The product form of Chen et al.'s listing: no binomial coefficient overflows.
double pass_at_k(int64_t n, int64_t c, int64_t k) {
  HONE_CHECK(0 <= c && c <= n && 1 <= k && k <= n, "pass@", k, ": ", c, " of ", n, " replies are right");
  if (n - c < k) return 1;
  double none = 1;
  for (int64_t i = n - c + 1; i <= n; ++i) none *= 1 - static_cast<double>(k) / static_cast<double>(i);
  return 1 - none;
}

size_t majority(std::span<const std::string> answers, size_t k) {
  HONE_CHECK(k >= 1 && k <= answers.size(), "maj@", k, " of ", answers.size(), " replies");
  std::map<std::string_view, int64_t> votes;
  for (const std::string& answer : answers.first(k))
    if (!answer.empty()) ++votes[answer];
  size_t best = 0;
  int64_t most = 0;
  for (size_t i = 0; i < k; ++i)
    if (const auto found = votes.find(answers[i]); found != votes.end() && found->second > most) best = i, most = found->second;
  return best;
}

static double mean_of(std::span<const double> values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double mean_stderr(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double mean = mean_of(values), n = static_cast<double>(values.size());
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return std::sqrt(squares / (n - 1)) / std::sqrt(n);
}

double pooled_stderr(std::span<const double> stderrs, std::span<const int64_t> sizes) {
  double sum = 0, total = 0;
  for (size_t g = 0; g < sizes.size(); ++g) {
    const double n = static_cast<double>(sizes[g]);
    sum += (n - 1) * n * stderrs[g] * stderrs[g];
    total += n;
  }
  const double freedom = total - static_cast<double>(sizes.size());
  return freedom > 0 ? std::sqrt(sum / freedom / total) : 0;
}

Interval central_95(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto quantile = [&](double q) {
    const double at = q * static_cast<double>(values.size() - 1), below = std::floor(at);
    const auto i = static_cast<size_t>(below);
    return i + 1 < values.size() ? values[i] + (at - below) * (values[i + 1] - values[i]) : values[i];
  };
  return {quantile(0.025), quantile(0.975)};
}

std::vector<int32_t> resample(int64_t n, int64_t seed, int64_t iteration) {
  HONE_CHECK(n > 0 && n <= INT32_MAX, "bootstrap: ", n, " samples");
  Rng rng(static_cast<uint64_t>(seed), static_cast<uint64_t>(iteration));
  std::vector<int32_t> out(static_cast<size_t>(n));
  for (int32_t& index : out) index = static_cast<int32_t>(rng.below(static_cast<uint64_t>(n)));
  return out;
}

double mcnemar_exact(int64_t only_first, int64_t only_second) {
  const int64_t n = only_first + only_second, smaller = std::min(only_first, only_second);
  double tail = 0;  // of the binomial distribution, by logarithms: C(n, i) / 2^n may be too large and too small on the way
  for (int64_t i = 0; i <= smaller; ++i)
    tail += std::exp(std::lgamma(static_cast<double>(n + 1)) - std::lgamma(static_cast<double>(i + 1)) - std::lgamma(static_cast<double>(n - i + 1)) -
                     static_cast<double>(n) * std::log(2.0));
  return std::min(1.0, 2 * tail);
}

// The figure of the observations at `index`.
static double ratio(std::span<const Observation> of, std::span<const int32_t> index) {
  double value = 0, weight = 0;
  for (const int32_t i : index) value += of[static_cast<size_t>(i)].value, weight += of[static_cast<size_t>(i)].weight;
  return weight > 0 ? value / weight : 0;
}

PairedDifference paired_bootstrap(std::span<const Observation> first, std::span<const Observation> second, int64_t iterations, int64_t seed) {
  HONE_CHECK(first.size() == second.size() && !first.empty(), "paired test: ", first.size(), " and ", second.size(), " samples");
  HONE_CHECK(iterations > 0, "paired test: ", iterations, " resamples");
  const auto n = static_cast<int64_t>(first.size());
  std::vector<int32_t> all(first.size());
  std::iota(all.begin(), all.end(), 0);
  PairedDifference out{.first = ratio(first, all), .second = ratio(second, all), .interval = {}};
  out.difference = out.second - out.first;
  std::vector<double> resampled(static_cast<size_t>(iterations));
  parallel_for(iterations, 16, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const std::vector<int32_t> index = resample(n, seed, b);
      resampled[static_cast<size_t>(b)] = ratio(second, index) - ratio(first, index);
    }
  });
  std::vector<double> differences;
  bool plain = true;
  for (size_t i = 0; i < first.size(); ++i) {
    plain = plain && first[i].weight == 1 && second[i].weight == 1;
    differences.push_back(second[i].value - first[i].value);
  }
  out.stderr_value = plain ? mean_stderr(differences) : mean_stderr(resampled) * std::sqrt(static_cast<double>(iterations));
  const auto at_most = std::count_if(resampled.begin(), resampled.end(), [](double d) { return d <= 0; });
  const auto at_least = std::count_if(resampled.begin(), resampled.end(), [](double d) { return d >= 0; });
  out.p = std::min(1.0, 2 * (static_cast<double>(std::min(at_most, at_least)) + 1) / (static_cast<double>(iterations) + 1));
  out.interval = central_95(std::move(resampled));
  return out;
}

}  // namespace hone
