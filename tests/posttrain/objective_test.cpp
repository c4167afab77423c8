// The contract of every registered objective: its gradient is its loss's, masked-out tokens do not count, and splitting a step changes nothing.
#include "core/model/objective.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/rng.h"

namespace hone {
namespace {

// Random sequences with every column an objective may ask for. Values are multiples of 2^-12, so that a finite difference perturbs them exactly.
struct Columns {
  std::vector<int32_t> offsets{0};
  std::vector<float> logp, old_logp, behavior_logp, reference_logp, advantage, mask, entropy, value, old_value, returns;

  explicit Columns(std::span<const int> lengths, uint64_t seed = 1) {
    Rng rng(seed);
    const auto draw = [&](double low, double high) { return static_cast<float>(std::round((low + (high - low) * rng.uniform()) * 4096) / 4096); };
    for (const int length : lengths) {
      const float sequence_advantage = draw(-2, 2);
      for (int t = 0; t < length; ++t) {
        logp.push_back(draw(-4, -0.25));
        old_logp.push_back(logp.back() + draw(-0.4, 0.4));
        behavior_logp.push_back(old_logp.back());
        reference_logp.push_back(logp.back() + draw(-0.5, 0.5));
        advantage.push_back(sequence_advantage);
        mask.push_back(t > 0 && rng.uniform() < 0.8);
        entropy.push_back(draw(0.1, 3));
        value.push_back(draw(-1, 1));
        old_value.push_back(value.back() + draw(-0.4, 0.4));
        returns.push_back(draw(-1, 1));
      }
      if (length > 1) mask.back() = 1;
      offsets.push_back(offsets.back() + length);
    }
  }
  double count(Per per) const {
    double sum = 0;
    for (size_t s = 0; s + 1 < offsets.size(); ++s)
      sum += count_of(per, std::span(mask).subspan(static_cast<size_t>(offsets[s]), static_cast<size_t>(offsets[s + 1] - offsets[s])));
    return sum;
  }
  // Sequences [begin, end), with their offsets from 0.
  TokenBatch batch(size_t begin, size_t end, std::vector<int32_t>& part_offsets, double scale) const {
    part_offsets.clear();
    for (size_t s = begin; s <= end; ++s) part_offsets.push_back(offsets[s] - offsets[begin]);
    const auto part = [&](const std::vector<float>& c) {
      return std::span<const float>(c).subspan(static_cast<size_t>(offsets[begin]), static_cast<size_t>(part_offsets.back()));
    };
    return {.offsets = part_offsets,
            .logp = part(logp),
            .old_logp = part(old_logp),
            .behavior_logp = part(behavior_logp),
            .reference_logp = part(reference_logp),
            .advantage = part(advantage),
            .mask = part(mask),
            .entropy = part(entropy),
            .value = part(value),
            .old_value = part(old_value),
            .returns = part(returns),
            .scale = scale};
  }
};

struct Evaluated {
  double loss = 0;
  std::vector<float> logp, entropy, value;
  MetricSums metrics;
};

Evaluated evaluate(const Objective& objective, const Columns& columns, size_t begin, size_t end, double scale) {
  std::vector<int32_t> offsets;
  const TokenBatch batch = columns.batch(begin, end, offsets, scale);
  check_batch(objective.needs(), batch);
  Evaluated out;
  const size_t n = batch.num_tokens();
  out.logp.resize(n), out.entropy.resize(n), out.value.resize(n);
  out.loss = objective.loss(batch, {.logp = out.logp, .entropy = out.entropy, .value = out.value}, out.metrics);
  return out;
}

Evaluated evaluate(const Objective& objective, const Columns& columns) {
  return evaluate(objective, columns, 0, columns.offsets.size() - 1, scale_of(columns.count(objective.needs().per)));
}

constexpr int lengths[] = {5, 7, 2, 9, 6, 3};

class ObjectiveContract : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Objective> objective_ = objectives().at(GetParam())();
};

TEST_P(ObjectiveContract, GradientIsTheLosssFiniteDifference) {
  Columns columns(lengths);
  const Evaluated at = evaluate(*objective_, columns);
  const auto check = [&](std::vector<float>& column, const std::vector<float>& grad, const char* name) {
    constexpr float h = 0x1p-12f;
    for (size_t t = 0; t < column.size(); ++t) {
      const float centre = column[t];
      column[t] = centre + h;
      const double above = evaluate(*objective_, columns).loss;
      column[t] = centre - h;
      const double below = evaluate(*objective_, columns).loss;
      column[t] = centre;
      EXPECT_NEAR(grad[t], (above - below) / (2 * h), 1e-6 + 1e-5 * std::abs(grad[t])) << name << "[" << t << "]";
    }
  };
  check(columns.logp, at.logp, "logp");
  check(columns.entropy, at.entropy, "entropy");
  check(columns.value, at.value, "value");
}

TEST_P(ObjectiveContract, SaysTrulyWhetherItsGradientIsConstant) {
  Columns columns(lengths);
  const Evaluated before = evaluate(*objective_, columns);
  std::fill(columns.logp.begin(), columns.logp.end(), 0.f);
  EXPECT_EQ(before.logp == evaluate(*objective_, columns).logp, objective_->needs().linear);
}

TEST_P(ObjectiveContract, MaskedOutTokensDoNotCount) {
  Columns columns(lengths);
  const Evaluated before = evaluate(*objective_, columns);
  for (size_t t = 0; t < columns.mask.size(); ++t) {
    if (columns.mask[t] != 0) continue;
    EXPECT_EQ(before.logp[t], 0) << t;
    EXPECT_EQ(before.entropy[t], 0) << t;
    EXPECT_EQ(before.value[t], 0) << t;
    columns.logp[t] = -50, columns.old_logp[t] = 3, columns.reference_logp[t] = -7, columns.value[t] = 99, columns.entropy[t] = 12;
  }
  const Evaluated after = evaluate(*objective_, columns);
  EXPECT_EQ(before.loss, after.loss);
  EXPECT_EQ(before.logp, after.logp);
  EXPECT_EQ(before.metrics.means(), after.metrics.means());
}

TEST_P(ObjectiveContract, SplittingAStepChangesNothing) {
  const Columns columns(lengths);
  const double scale = scale_of(columns.count(objective_->needs().per));
  const Evaluated whole = evaluate(*objective_, columns);
  double loss = 0;
  std::vector<float> grad;
  for (size_t s = 0; s < std::size(lengths); s += 2) {
    const Evaluated part = evaluate(*objective_, columns, s, s + 2, scale);
    loss += part.loss;
    grad.insert(grad.end(), part.logp.begin(), part.logp.end());
  }
  EXPECT_NEAR(loss, whole.loss, 1e-12 * (1 + std::abs(whole.loss)));
  EXPECT_EQ(grad, whole.logp);
}

TEST_P(ObjectiveContract, AnEmptyMaskIsALossOfZeroOverTokens) {
  Columns columns(lengths);
  std::fill(columns.mask.begin(), columns.mask.end(), 0.f);
  const Evaluated at = evaluate(*objective_, columns);
  EXPECT_TRUE(std::isfinite(at.loss));
  if (objective_->needs().per != Per::pair) {
    EXPECT_EQ(at.loss, 0);
  }
  for (const float g : at.logp) EXPECT_EQ(g, 0);
  for (const auto& [name, value] : at.metrics.means()) EXPECT_TRUE(std::isfinite(value)) << name;
}

TEST_P(ObjectiveContract, NoSequencesIsALossOfZero) {
  const Columns columns(std::span<const int>{});
  EXPECT_EQ(evaluate(*objective_, columns).loss, 0);
}

TEST_P(ObjectiveContract, StaysFiniteAtExtremeRatios) {
  for (const float far : {-1e4f, -100.f, 100.f}) {
    Columns columns(lengths);
    for (float& logp : columns.logp) logp += far;
    const Evaluated at = evaluate(*objective_, columns);
    EXPECT_TRUE(std::isfinite(at.loss)) << far;
    for (const float g : at.logp) EXPECT_TRUE(std::isfinite(g)) << far;
    for (const auto& [name, value] : at.metrics.means()) EXPECT_TRUE(std::isfinite(value)) << name << " at " << far;
  }
}

// Two groups of samples with every column; a prompt of two tokens.
std::vector<Group> make_groups(std::span<const int> completion_lengths, double reward_step) {
  std::vector<Group> groups(2);
  Rng rng(7);
  for (Group& group : groups)
    for (size_t i = 0; i < completion_lengths.size(); ++i) {
      Sample& sample = group.samples.emplace_back();
      const auto n = static_cast<size_t>(2 + completion_lengths[i]);
      const auto column = [&] {
        std::vector<float> out(n);
        for (float& v : out) v = static_cast<float>(-3 * rng.uniform());
        return out;
      };
      sample.tokens.resize(n), sample.mask.assign(n, 1), sample.mask[0] = sample.mask[1] = 0;
      sample.behavior_logp = column(), sample.reference_logp = column(), sample.value = column();
      sample.reward = 0.5 + reward_step * static_cast<double>(i);
    }
  return groups;
}

TEST_P(ObjectiveContract, CreditIsFiniteForEqualRewardsAndOneTokenCompletions) {
  for (const double reward_step : {0.0, 0.25})
    for (const std::vector<int>& completions : {std::vector<int>{1, 1, 1}, std::vector<int>{4, 1, 0}, std::vector<int>{3}}) {
      std::vector<Group> groups = make_groups(completions, reward_step);
      MetricSums metrics;
      objective_->credit(groups, metrics);
      for (const Group& group : groups)
        for (const Sample& sample : group.samples) {
          EXPECT_TRUE(sample.advantage.empty() || sample.advantage.size() == sample.tokens.size());
          for (const float a : sample.advantage) EXPECT_TRUE(std::isfinite(a));
          for (const float r : sample.returns) EXPECT_TRUE(std::isfinite(r));
        }
      for (const auto& [name, value] : metrics.means()) EXPECT_TRUE(std::isfinite(value)) << name;
    }
}

INSTANTIATE_TEST_SUITE_P(Registry, ObjectiveContract, testing::ValuesIn(objectives().names()), [](const auto& param) { return param.param; });

}  // namespace
}  // namespace hone
