#include "eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/base/check.h"
#include "core/base/parallel_for.h"
#include "core/base/rng.h"

namespace hone {

Proportion proportion(double successes, int64_t count) {
  if (count == 0) return {};
  constexpr double z = 1.959963984540054;
  const double n = static_cast<double>(count), p = successes / n, shrink = 1 + z * z / n;
  const double centre = (p + z * z / (2 * n)) / shrink,
               half = z / shrink * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  return {p, successes > 0 ? centre - half : 0, successes < n ? centre + half : 1,
          count};  // clamps rounding errors at the ends
}

// Uses the product form of Chen et al.'s listing, in which no binomial coefficient overflows.
double pass_at_k(int64_t n, int64_t c, int64_t k) {
  HONE_CHECK(0 <= c && c <= n && 1 <= k && k <= n, "pass@", k, ": ", c, " of ", n, " completions are right");
  if (n - c < k) return 1;
  double none = 1;
  for (int64_t i = n - c + 1; i <= n; ++i) none *= 1 - static_cast<double>(k) / static_cast<double>(i);
  return 1 - none;
}

void ProblemParts::add(const Observation& row, bool same_problem) {
  is_mean = is_mean && row.weight == 1;
  if (!same_problem || parts.empty()) return parts.push_back(row);
  parts.back().value += row.value;
  parts.back().weight += row.weight;
}

std::vector<std::optional<size_t>> number_answers(
    std::span<const std::optional<std::string>> answers,
    const std::function<bool(const std::string&, const std::string&)>& same) {
  constexpr size_t max_compared = 256;
  std::vector<std::optional<size_t>> out;
  std::vector<const std::string*> first_answers;
  std::map<std::string_view, size_t> known;
  for (const std::optional<std::string>& answer : answers) {
    if (!answer) {
      out.push_back(std::nullopt);
      continue;
    }
    const auto [place, is_new] = known.emplace(*answer, first_answers.size());
    if (is_new) {
      const size_t compared = std::min(first_answers.size(), max_compared);
      for (size_t n = 0; n < compared && place->second == first_answers.size(); ++n)
        if (same(*first_answers[n], *answer)) place->second = n;
      if (place->second == first_answers.size()) first_answers.push_back(&*answer);
    }
    out.emplace_back(place->second);
  }
  return out;
}

std::optional<size_t> majority(std::span<const std::optional<size_t>> votes, size_t k) {
  HONE_CHECK(k >= 1 && k <= votes.size(), "maj@", k, " of ", votes.size(), " completions");
  std::map<size_t, int64_t> counts;
  for (const std::optional<size_t>& vote : votes.first(k))
    if (vote) ++counts[*vote];
  std::optional<size_t> best;
  for (size_t i = 0; i < k; ++i)
    if (votes[i] && (!best || counts[*votes[i]] > counts[*votes[*best]])) best = i;
  return best;
}

static double mean_of(std::span<const double> values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double standard_deviation(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double mean = mean_of(values);
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return std::sqrt(squares / (static_cast<double>(values.size()) - 1));
}

std::optional<double> mean_stderr(std::span<const Observation> problems) {
  double value = 0, weight = 0;
  for (const Observation& one : problems) {
    value += one.value;
    weight += one.weight;
  }
  if (problems.size() < 2 || weight <= 0) return std::nullopt;
  const double n = static_cast<double>(problems.size()), mean = value / weight;
  double squares = 0;
  for (const Observation& one : problems) squares += (one.value - mean * one.weight) * (one.value - mean * one.weight);
  if (squares == 0) return std::nullopt;
  return std::sqrt(n / (n - 1) * squares) / weight;
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

std::optional<Interval> bootstrap_interval(std::vector<double> resampled) {
  const Interval found = central_95(std::move(resampled));
  return found.low < found.high ? std::optional(found) : std::nullopt;
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
  double tail = 0;  // tail of the binomial distribution, in logarithms: C(n, i) may overflow and 2^-n underflow
  for (int64_t i = 0; i <= smaller; ++i)
    tail += std::exp(std::lgamma(static_cast<double>(n + 1)) - std::lgamma(static_cast<double>(i + 1)) -
                     std::lgamma(static_cast<double>(n - i + 1)) - static_cast<double>(n) * std::log(2.0));
  return std::min(1.0, 2 * tail);
}

// The figure over the observations at `index`.
static double ratio(std::span<const Observation> of, std::span<const int32_t> index) {
  double value = 0, weight = 0;
  for (const int32_t i : index) value += of[static_cast<size_t>(i)].value, weight += of[static_cast<size_t>(i)].weight;
  return weight > 0 ? value / weight : 0;
}

PairedDifference paired_bootstrap(const ProblemParts& first, const ProblemParts& second, int64_t iterations,
                                  int64_t seed) {
  const std::vector<Observation>&a = first.parts, &b = second.parts;
  HONE_CHECK(a.size() == b.size() && !a.empty(), "paired test: ", a.size(), " and ", b.size(), " samples");
  HONE_CHECK(iterations > 0, "paired test: ", iterations, " resamples");
  std::vector<int32_t> all(a.size());
  std::iota(all.begin(), all.end(), 0);
  PairedDifference out{.first = ratio(a, all), .second = ratio(b, all), .stderr_value = {}, .p = {}, .interval = {}};
  out.difference = out.second - out.first;
  std::vector<double> resampled(static_cast<size_t>(iterations));
  parallel_for(iterations, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const std::vector<int32_t> index = resample(static_cast<int64_t>(a.size()), seed, i);
      resampled[static_cast<size_t>(i)] = ratio(b, index) - ratio(a, index);
    }
  });
  std::vector<Observation> differences;
  for (size_t i = 0; i < a.size(); ++i) differences.push_back({b[i].value - a[i].value, b[i].weight});
  if (first.is_mean && second.is_mean)
    out.stderr_value = mean_stderr(differences);
  else if (const double deviation = standard_deviation(resampled); a.size() > 1 && deviation > 0)
    out.stderr_value = deviation;
  const auto at_most = std::count_if(resampled.begin(), resampled.end(), [](double d) { return d <= 0; });
  const auto at_least = std::count_if(resampled.begin(), resampled.end(), [](double d) { return d >= 0; });
  out.interval = bootstrap_interval(std::move(resampled));
  if (out.interval || (a.size() > 1 && at_most == iterations && at_least == iterations))
    out.p = std::min(
        1.0, 2 * (static_cast<double>(std::min(at_most, at_least)) + 1) / (static_cast<double>(iterations) + 1));
  return out;
}

}  // namespace hone
