#include "posttrain/losses/rejection.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "posttrain/losses/surrogate.h"

namespace hone {
namespace {

using Divergence = double (*)(double difference);
double k1(double d) { return -d; }
double k2(double d) { return 0.5 * d * d; }
double k3(double d) { return std::expm1(d) - d; }

// What a divergence is taken over.
enum class Over : uint8_t { token, sum, mean, max };

struct Criterion {
  Over over;
  Divergence divergence;
};

const Registry<Criterion>& criteria() {
  static const Registry<Criterion> registry = [] {
    Registry<Criterion> r("rollout_rs");
    r.add("token_k1", {Over::token, k1});
    r.add("token_k2", {Over::token, k2});
    r.add("token_k3", {Over::token, k3});
    r.add("seq_sum_k1", {Over::sum, k1});
    r.add("seq_sum_k2", {Over::sum, k2});
    r.add("seq_sum_k3", {Over::sum, k3});
    r.add("seq_mean_k1", {Over::mean, k1});
    r.add("seq_mean_k2", {Over::mean, k2});
    r.add("seq_mean_k3", {Over::mean, k3});
    r.add("seq_max_k2", {Over::max, k2});
    r.add("seq_max_k3", {Over::max, k3});
    return r;
  }();
  return registry;
}

// The bounds of a statistic; of k1 they are the logarithms of the bounds of a ratio.
struct Bounds {
  double low = -std::numeric_limits<double>::infinity(), high = 0;
};

double positive_number(const std::string& text, const std::string& threshold) {
  double out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  HONE_CHECK(error == std::errc() && end == text.data() + text.size() && std::isfinite(out) && out > 0,
             "rollout_rs_threshold '", threshold, "': '", text, "' is not a number above 0");
  return out;
}

// "2" is [1/2, 2] for k1 and an upper bound for the others, "0.5_2" is [0.5, 2] and for k1 only.
Bounds parse_bounds(const std::string& name, const std::string& threshold) {
  const size_t border = threshold.find('_');
  if (criteria().at(name).divergence != k1) {
    HONE_CHECK(border == std::string::npos, "rollout_rs_threshold '", threshold, "': ", name,
               " has an upper bound only; give one number");
    return {.high = positive_number(threshold, threshold)};
  }
  const bool both = border != std::string::npos;
  const double high = positive_number(both ? threshold.substr(border + 1) : threshold, threshold);
  const double low = both ? positive_number(threshold.substr(0, border), threshold) : 1 / high;
  HONE_CHECK(low <= high, "rollout_rs_threshold '", threshold, "': the lower bound ", low, " is above the upper bound ",
             high);
  return {.low = std::log(low), .high = std::log(high)};
}

// "a, b" and ["a", "b"] are the same list.
std::vector<std::string> split_all(const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  for (const std::string& text : texts)
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      const size_t first = text.find_first_not_of(' ', begin);
      if (first < end) out.push_back(text.substr(first, text.find_last_not_of(' ', end - 1) + 1 - first));
      begin = end + 1;
    }
  return out;
}

struct Rule {
  std::string name;
  Criterion criterion;
  Bounds bounds;
  bool accepts(double statistic) const { return statistic >= bounds.low && statistic <= bounds.high; }
};

std::vector<Rule> parse_rules(const RejectionSampling& settings) {
  const std::vector<std::string> names = split_all(settings.rollout_rs),
                                 thresholds = split_all(settings.rollout_rs_threshold);
  HONE_CHECK(names.empty() || !thresholds.empty(), "rollout_rs needs bounds: set rollout_rs_threshold, for example to ",
             "'0.5_2' for seq_mean_k1");
  HONE_CHECK(!names.empty() || thresholds.empty(), "rollout_rs_threshold bounds the criteria of rollout_rs, and there ",
             "are none: set rollout_rs, or remove rollout_rs_threshold");
  HONE_CHECK(thresholds.size() <= 1 || thresholds.size() == names.size(), "rollout_rs_threshold has ",
             thresholds.size(), " bounds for ", names.size(), " criteria; give one, or one each");
  std::vector<Rule> out;
  for (size_t i = 0; i < names.size(); ++i) {
    HONE_CHECK(criteria().contains(names[i]), criteria().unknown(names[i]));
    HONE_CHECK(std::ranges::find(out, names[i], &Rule::name) == out.end(), "rollout_rs names ", names[i], " twice");
    const std::string& threshold = thresholds[thresholds.size() == 1 ? 0 : i];
    out.push_back({names[i], criteria().at(names[i]), parse_bounds(names[i], threshold)});
  }
  return out;
}

// The statistic of each difference: its own divergence, or that of all of them.
std::vector<double> statistics(const Criterion& criterion, std::span<const double> differences) {
  std::vector<double> out;
  for (const double d : differences) out.push_back(criterion.divergence(d));
  if (criterion.over == Over::token) return out;
  double all = criterion.over == Over::max ? out.front() : 0;
  for (const double value : out) all = criterion.over == Over::max ? std::max(all, value) : all + value;
  if (criterion.over == Over::mean) all /= static_cast<double>(out.size());
  return std::vector<double>(out.size(), all);
}

void add_fractions(const std::string& name, std::span<const uint8_t> kept, MetricSums& metrics) {
  const auto rejected = static_cast<double>(std::ranges::count(kept, 0));
  metrics.add(name + "masked_fraction", rejected, static_cast<double>(kept.size()));
  metrics.add(name + "seq_masked_fraction", rejected > 0, 1);
}

// For each difference of a sequence whether every rule accepts it.
std::vector<uint8_t> judge(std::span<const Rule> rules, std::span<const double> differences, MetricSums& metrics) {
  std::vector<uint8_t> kept(differences.size(), 1);
  for (const Rule& rule : rules) {
    const std::string name = concat("rollout_corr/rollout_rs_", rule.name, "_");
    std::vector<uint8_t> own;
    for (const double statistic : statistics(rule.criterion, differences)) {
      own.push_back(rule.accepts(statistic));
      metrics.add(name + "mean", statistic, 1);
      metrics.minimum(name + "min", statistic);
      metrics.maximum(name + "max", statistic);
    }
    add_fractions(name, own, metrics);
    for (size_t i = 0; i < kept.size(); ++i) kept[i] = kept[i] && own[i];
  }
  add_fractions("rollout_corr/rollout_rs_", kept, metrics);
  return kept;
}

void reject_from(Sample& sample, std::span<const Rule> rules, MetricSums& metrics) {
  const std::span<const float> old_logp = std::as_const(sample.columns)[columns::old_logp],
                               behavior_logp = std::as_const(sample.columns)[columns::behavior_logp];
  const std::span<float> mask = sample.columns[columns::mask];
  std::vector<double> differences;
  for (size_t t = 0; t < mask.size(); ++t)
    if (mask[t] != 0) differences.push_back(log_ratio(old_logp[t], behavior_logp[t]).value);
  if (differences.empty()) return;
  const std::vector<uint8_t> kept = judge(rules, differences, metrics);
  size_t next = 0;
  for (float& m : mask)
    if (m != 0 && !kept[next++]) m = 0;
}

}  // namespace

void RejectionSampling::fields(Fields& f) {
  f("rollout_rs", rollout_rs,
    "criteria that take off-policy tokens or sequences out of the loss: token_k1 | token_k2 | token_k3 | seq_sum_k1 | "
    "seq_mean_k1 (the geometric mean of a sequence's importance ratios) | seq_mean_k3 | seq_max_k3 | ...: a token's "
    "divergence, or its sum, mean or maximum over a sequence; empty = none");
  f("rollout_rs_threshold", rollout_rs_threshold,
    "bounds of rollout_rs, one for all criteria or one each: of k1 'low_high' for a ratio ('0.5_2'; '2' is the same); "
    "of k2 and k3 the upper bound");
  std::string problem;
  try {
    parse_rules(*this);
  } catch (const Error& error) {  // adds the place of the key
    problem = error.what();
  }
  f.require(problem.starts_with("rollout_rs_threshold") ? "rollout_rs_threshold" : "rollout_rs", problem.empty(),
            problem);
}

void RejectionSampling::reject(std::span<Group> groups, MetricSums& metrics) const {
  if (!on()) return;
  const std::vector<Rule> rules = parse_rules(*this);
  for (Group& group : groups)
    for (Sample& sample : group.samples)
      if (!sample.tokens.empty()) reject_from(sample, rules, metrics);
}

}  // namespace hone
