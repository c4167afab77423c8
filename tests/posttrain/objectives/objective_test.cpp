// The contract of every registered objective, with default and other settings: the gradient is that of the loss, masked
// tokens do not count, and splitting a step changes nothing.
#include "train/objective.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/base/rng.h"
#include "core/config/config.h"

namespace hone {
namespace {

// Other settings than the defaults, as in a recipe. holds: the gradient treats factors of the loss as constants.
struct Setting {
  std::string name, toml;
  bool holds = false;
};

// An objective that is not listed here is tested with its defaults only.
const std::map<std::string, std::vector<Setting>> settings = {
    {"sft", {{"dft", "loss_type = 'dft'", true}}},
    {"dpo",
     {{"hinge", "loss_type = 'hinge'"},
      {"ipo", "loss_type = 'ipo'"},
      {"smoothed", "label_smoothing = 0.2"},
      {"robust", "loss_type = 'robust'\nlabel_smoothing = 0.2"},
      {"length_normalised", "loss_type = 'sigmoid_norm'\nbeta = 2.0"},
      {"exo", "loss_type = 'exo_pair'\nlabel_smoothing = 0.01"},
      {"nca", "loss_type = 'nca_pair'"},
      {"bco", "loss_type = 'bco_pair'"},
      {"sppo", "loss_type = 'sppo_hard'"},
      {"apo_zero", "loss_type = 'apo_zero'"},
      {"apo_down", "loss_type = 'apo_down'"},
      {"discopop", "loss_type = 'discopop'"},
      {"aot", "loss_type = 'aot'\nlabel_smoothing = 0.1"},
      {"mixture", "loss_type = ['sigmoid', 'ipo', 'bco_pair', 'sft']\nloss_weights = [0.8, 0.05, 0.2, 1.0]"},
      {"length_desensitised", "ld_alpha = 0.5"}}},
    {"simpo", {{"smoothed", "beta = 2.0\nsimpo_gamma = 1.0\nlabel_smoothing = 0.2"}}},
    {"orpo", {{"strong", "beta = 5.0"}}},
    {"kto", {{"weighted", "beta = 0.5\ndesirable_weight = 1.5\nundesirable_weight = 0.75"}}},
    {"bradley_terry", {{"centred", "center_rewards_coefficient = 0.01"}}},
    {"grpo",
     {{"sequence_means", "loss_type = 'grpo'\nscale_rewards = 'batch'\nbeta = 0.1"},
      {"constant", "loss_type = 'dr_grpo'\nmax_completion_length = 8\nscale_rewards = 'none'"},
      {"sums", "loss_type = 'seq-mean-token-sum'\nadvantage_eps = 1e-6"},
      {"clip_higher_dual_clip", "epsilon_high = 0.28\ndelta = 1.35"},
      {"gspo", "importance_sampling_level = 'sequence'\nloss_type = 'grpo'\nepsilon = 3e-2\nepsilon_high = 4e-2"},
      {"gspo_dual_clip_kl",
       "importance_sampling_level = 'sequence'\nepsilon = 0.05\ndelta = 1.1\nbeta = 0.1\nkl_loss_type = 'k2'"},
      {"kl_by_ratio", "beta = 0.2\nuse_bias_correction_kl = true"},
      {"gspo_kl_by_ratio",
       "importance_sampling_level = 'sequence'\nepsilon = 0.05\nbeta = 0.2\nuse_bias_correction_kl = true"},
      {"cispo", "loss_type = 'cispo'\nepsilon_high = 1.2", true},
      {"cispo_relative", "loss_type = 'cispo_relative'", true},
      {"token_truncate", "importance_sampling_mode = 'token_truncate'\nimportance_sampling_clip_max = 1.25"},
      {"token_mask",
       "importance_sampling_mode = 'token_mask'\nimportance_sampling_clip_max = 1.25\nimportance_sampling_clip_min = "
       "0.75"},
      {"sequence_truncate", "importance_sampling_mode = 'sequence_truncate'\nloss_type = 'grpo'\nbeta = 0.1"},
      {"sequence_mask", "importance_sampling_mode = 'sequence_mask'\nimportance_sampling_clip_max = 1.5"},
      {"sapo", "loss_type = 'sapo'"},
      {"sapo_sequence_kl",
       "loss_type = 'sapo'\nimportance_sampling_level = 'sequence'\nsapo_temperature_neg = 3.0\nbeta = 0.1\n"
       "loss_agg_mode = 'seq-mean-token-sum'"},
      {"dppo_tv", "loss_type = 'dppo_tv'\nepsilon = 0.05\ndelta = 1.2", true},
      {"dppo_kl", "loss_type = 'dppo_kl'\nepsilon = 0.02\nloss_agg_mode = 'seq-mean-token-mean'", true},
      {"aggregated", "loss_agg_mode = 'seq-mean-token-sum-norm'\nmax_completion_length = 8"},
      {"off_policy_mask", "off_policy_mask_threshold = 0.05\nbeta = 0.1"},
      {"top_entropy", "top_entropy_quantile = 0.3\nentropy_coef = 0.1\nbeta = 0.1"},
      {"top_entropy_off_policy",
       "top_entropy_quantile = 0.5\noff_policy_mask_threshold = 0.05\nimportance_sampling_mode = 'token_truncate'\n"
       "loss_type = 'sapo'"},
      {"rejection", "rollout_rs = ['seq_mean_k1', 'token_k3']\nrollout_rs_threshold = ['0.5_2', '1.5']"},
      {"several_rewards", "multi_objective_aggregation = 'normalize_then_sum'\nlength_penalty = 0.3"},
      {"k1_entropy_truncation",
       "beta = 0.1\nkl_loss_type = 'k1'\nentropy_coef = 0.01\nmask_truncated_completions = true"}}},
    {"rloo",
     {{"tokens", "importance_sampling_level = 'token'\nloss_type = 'dapo'\nnormalize_advantages = true\nbeta = 0"},
      {"length_penalty", "length_penalty = 0.5\nlength_penalty_threshold = 0.6"}}},
    {"reinforce_plus_plus",
     {{"baseline", "baseline = true\nkl_coef = 0.1\nkl_estimator = 'k2'"},
      {"discounted", "gamma = 0.9\nkl_loss_coef = 0.1"}}},
    {"maxrl", {{"sequence_means", "loss_type = 'grpo'"}}},
    {"distill",
     {{"reverse_kl", "beta = 1.0\ntemperature = 2.0"},
      {"sampled", "loss = 'sampled'\nlmbda = 1.0\nreward_weight = 0.5"},
      {"rewards", "lmbda = 1.0\nreward_weight = 1.0\nkl_loss_coef = 0.1"},
      {"rewards_of_the_uncertain",
       "lmbda = 1.0\nreward_weight = 1.0\ntop_entropy_quantile = 0.4\n"
       "rollout_rs = 'seq_mean_k1'\nrollout_rs_threshold = '2'"}}},
    {"rft", {{"reward", "weight = 'reward'"}}},
    {"ppo",
     {{"all_of_it",
       "kl_coef = 0.1\nkl_estimator = 'k3'\nkl_ctrl = 'adaptive'\nkl_loss_coef = 0.1\nkl_loss_type = "
       "'k2'\nentropy_coef = 0.01\ndelta = 1.3\n"
       "whiten_rewards = true\nloss_type = 'grpo'\ncliprange_value = 0.1\nvf_coef = 0.5"},
      {"selected",
       "top_entropy_quantile = 0.3\nloss_type = 'sapo'\nrollout_rs = 'token_k1'\n"
       "rollout_rs_threshold = '0.5_2'\nlength_penalty = 0.1"},
      {"no_reference", "kl_coef = 0\nwhiten_advantages = false\nimportance_sampling_mode = 'token_truncate'"}}},
};

struct Variant {
  std::string objective;
  Setting setting;
};
void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.objective << " with " << variant.setting.toml;
}

std::vector<Variant> variants() {
  std::vector<Variant> out;
  for (const std::string& name : objectives().names()) {
    out.push_back({name, {"default", "", false}});
    if (const auto found = settings.find(name); found != settings.end())
      for (const Setting& setting : found->second) out.push_back({name, setting});
  }
  return out;
}

std::unique_ptr<Objective> make(const Variant& variant) {
  const std::unique_ptr<ObjectiveSettings> settings_of = objectives().at(variant.objective)();
  Config::from_text(variant.setting.toml, variant.setting.name).read([&](Fields& f) { settings_of->fields(f); });
  return settings_of->make({});
}

TEST(Objectives, SettingsAreOfRegisteredOnes) {
  for (const auto& [name, unused] : settings) EXPECT_TRUE(objectives().contains(name)) << name;
}

// Random sequences with every registered column. Values are multiples of 2^-12, so that a finite difference perturbs
// them exactly.
struct RandomBatch {
  std::vector<int32_t> offsets{0};
  Columns columns;

  explicit RandomBatch(std::span<const int> lengths, uint64_t seed = 1) {
    Rng rng(seed);
    const auto draw = [&](double low, double high) {
      return static_cast<float>(std::round((low + (high - low) * rng.uniform()) * 4096) / 4096);
    };
    const auto add = [&](Column column, float value) {
      columns.append(column, {&value, 1});
      return value;
    };
    for (const int length : lengths) {
      const float sequence_advantage = draw(-2, 2);
      for (int t = 0; t < length; ++t) {
        const float logp = add(columns::logp, draw(-4, -0.25)),
                    old_logp = add(columns::old_logp, logp + draw(-0.4, 0.4));
        add(columns::behavior_logp, old_logp + draw(-0.4, 0.4));
        add(columns::reference_logp, logp + draw(-0.5, 0.5));
        add(columns::advantage, sequence_advantage);
        add(columns::mask, t > 0 && rng.uniform() < 0.8);
        add(columns::entropy, draw(0.1, 3));
        const float value = add(columns::value, draw(-1, 1));
        add(columns::old_value, value + draw(-0.4, 0.4));
        add(columns::returns, draw(-1, 1));
      }
      if (length > 1) columns[columns::mask].back() = 1;
      offsets.push_back(offsets.back() + length);
    }
    for (const Column column : all_columns()) {  // columns of objectives: labels, margins
      if (columns.has(column)) continue;
      if (column.name() == "top_entropy") {
        for (int t = 0; t < offsets.back(); ++t) add(column, rng.uniform() < 0.6);
        continue;
      }
      for (size_t i = column.size(lengths.size(), static_cast<size_t>(offsets.back())); i > 0; --i)
        add(column, column.info().per_sequence ? (rng.uniform() < 0.5 ? -1.f : 1.f) : draw(-4, -0.25));
    }
  }
  double count(LossUnit unit) const {
    double sum = 0;
    for (size_t s = 0; s + 1 < offsets.size(); ++s)
      sum += count_of(unit,
                      columns.find(columns::mask)
                          .subspan(static_cast<size_t>(offsets[s]), static_cast<size_t>(offsets[s + 1] - offsets[s])));
    return sum;
  }
  // Sequences [begin, end), with their offsets from 0.
  TokenBatch batch(size_t begin, size_t end, std::vector<int32_t>& part_offsets, double scale) const {
    part_offsets.clear();
    for (size_t s = begin; s <= end; ++s) part_offsets.push_back(offsets[s] - offsets[begin]);
    TokenBatch out{.offsets = part_offsets, .scale = scale};
    columns.for_each([&](Column column, std::span<const float> values) {
      out.columns.set(column, values.subspan(column.size(begin, static_cast<size_t>(offsets[begin])),
                                             column.size(end - begin, static_cast<size_t>(part_offsets.back()))));
    });
    return out;
  }
};

struct Evaluated {
  double loss = 0;
  std::vector<float> logp, entropy, value;
  MetricSums metrics;
};

// The loss of sequences [begin, end). Adds to the metrics.
Evaluated evaluate(const Objective& objective, const RandomBatch& random, size_t begin, size_t end, double scale,
                   MetricSums metrics = {}) {
  std::vector<int32_t> offsets;
  const TokenBatch batch = random.batch(begin, end, offsets, scale);
  check_batch(objective.needs(), batch);
  Evaluated out;
  out.metrics = std::move(metrics);
  const size_t n = batch.num_tokens();
  out.logp.resize(n), out.entropy.resize(n), out.value.resize(n);
  out.loss = objective.loss(batch, {.logp = out.logp, .entropy = out.entropy, .value = out.value}, out.metrics);
  return out;
}

Evaluated evaluate(const Objective& objective, const RandomBatch& random) {
  return evaluate(objective, random, 0, random.offsets.size() - 1, scale_of(random.count(objective.needs().unit)));
}

constexpr int lengths[] = {5, 7, 2, 9, 6, 3};

class ObjectiveContract : public testing::TestWithParam<Variant> {
 protected:
  std::unique_ptr<Objective> objective_ = make(GetParam());
};

TEST_P(ObjectiveContract, GradientIsTheLosssFiniteDifference) {
  RandomBatch random(lengths);
  const Evaluated at = evaluate(*objective_, random);
  // With constant factors the loss is linear in logp: it equals the gradient times logp.
  if (GetParam().setting.holds) {
    double sum = 0;
    const std::span<const float> logp = random.columns[columns::logp];
    for (size_t t = 0; t < logp.size(); ++t) sum += double{at.logp[t]} * logp[t];
    EXPECT_NEAR(sum, at.loss, 1e-6 * (1 + std::abs(at.loss)));
    return;
  }
  const auto check = [&](Column of, const std::vector<float>& grad) {
    const std::span<float> column = random.columns[of];
    constexpr float h = 0x1p-12f;
    for (size_t t = 0; t < column.size(); ++t) {
      const float centre = column[t];
      column[t] = centre + h;
      const double above = evaluate(*objective_, random).loss;
      column[t] = centre - h;
      const double below = evaluate(*objective_, random).loss;
      column[t] = centre;
      EXPECT_NEAR(grad[t], (above - below) / (2 * h), 1e-6 + 1e-5 * std::abs(grad[t])) << of.name() << "[" << t << "]";
    }
  };
  check(columns::logp, at.logp);
  check(columns::entropy, at.entropy);
  check(columns::value, at.value);
}

TEST_P(ObjectiveContract, SaysTrulyWhetherItsGradientIsConstant) {
  RandomBatch random(lengths);
  const Evaluated before = evaluate(*objective_, random);
  std::ranges::fill(random.columns[columns::logp], 0.f);
  const bool constant = before.logp == evaluate(*objective_, random).logp;
  const bool reads_values_alone = std::ranges::all_of(before.logp, [](float g) { return g == 0; });
  // A piecewise linear loss (a hinge) may have the same slope at both points.
  EXPECT_TRUE(constant == objective_->needs().loss_linear_in_logp || reads_values_alone ||
              GetParam().setting.name == "hinge");
}

TEST_P(ObjectiveContract, MaskedOutTokensDoNotCount) {
  RandomBatch random(lengths);
  const Evaluated before = evaluate(*objective_, random);
  const std::span<const float> mask = random.columns[columns::mask];
  for (size_t t = 0; t < mask.size(); ++t) {
    if (mask[t] != 0) continue;
    EXPECT_EQ(before.logp[t], 0) << t;
    EXPECT_EQ(before.entropy[t], 0) << t;
    EXPECT_EQ(before.value[t], 0) << t;
    float other = -50;
    for (const Column column : all_columns())
      if (column != columns::mask && !column.info().per_sequence) random.columns[column][t] = other += 13;
  }
  const Evaluated after = evaluate(*objective_, random);
  EXPECT_EQ(before.loss, after.loss);
  EXPECT_EQ(before.logp, after.logp);
  EXPECT_EQ(before.metrics.means(), after.metrics.means());
}

TEST_P(ObjectiveContract, SplittingAStepChangesNothing) {
  const RandomBatch random(lengths);
  const double scale = scale_of(random.count(objective_->needs().unit));
  const Evaluated whole = evaluate(*objective_, random);
  double loss = 0;
  std::vector<float> grad;
  MetricSums metrics;
  for (size_t s = 0; s < std::size(lengths); s += 2) {
    const Evaluated part = evaluate(*objective_, random, s, s + 2, scale, metrics);
    loss += part.loss;
    grad.insert(grad.end(), part.logp.begin(), part.logp.end());
    metrics = part.metrics;
  }
  EXPECT_NEAR(loss, whole.loss, 1e-12 * (1 + std::abs(whole.loss)));
  EXPECT_EQ(grad, whole.logp);
  const Metrics split = metrics.means(), together = whole.metrics.means();
  ASSERT_EQ(split.size(), together.size());
  for (const auto& [name, value] : together) EXPECT_NEAR(split.at(name), value, 1e-9 * (1 + std::abs(value))) << name;
}

TEST_P(ObjectiveContract, AnEmptyMaskIsALossOfZeroOverTokens) {
  RandomBatch random(lengths);
  std::ranges::fill(random.columns[columns::mask], 0.f);
  const Evaluated at = evaluate(*objective_, random);
  EXPECT_TRUE(std::isfinite(at.loss));
  if (objective_->needs().unit != LossUnit::pair) {
    EXPECT_EQ(at.loss, 0);
  }
  for (const float g : at.logp) EXPECT_EQ(g, 0);
  for (const auto& [name, value] : at.metrics.means()) EXPECT_TRUE(std::isfinite(value)) << name;
}

TEST_P(ObjectiveContract, NoSequencesIsALossOfZero) {
  const RandomBatch random(std::span<const int>{});
  EXPECT_EQ(evaluate(*objective_, random).loss, 0);
}

TEST_P(ObjectiveContract, StaysFiniteAtExtremeRatios) {
  for (const Column column : {columns::logp, columns::behavior_logp, columns::reference_logp})
    for (const float far : {-1e4f, -100.f, 100.f}) {
      RandomBatch random(lengths);
      for (float& logp : random.columns[column]) logp += far;
      const Evaluated at = evaluate(*objective_, random);
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
      sample.tokens.resize(n);
      set_mask(sample, 2);
      for (const char* name : {"behavior_logp", "old_logp", "old_entropy", "reference_logp", "old_value"})
        sample.columns.set(*find_column(name), column());
      sample.reward = 0.5 + reward_step * static_cast<double>(i);
      sample.completion.finish_reason = i == 1 ? "length" : "stop";
      sample.scored = i != 2;
    }
  return groups;
}

TEST_P(ObjectiveContract, CreditIsFiniteForEqualRewardsAndOneTokenCompletions) {
  for (const double reward_step : {0.0, 0.25})
    for (const std::vector<int>& completions :
         {std::vector<int>{1, 1, 1}, std::vector<int>{4, 1, 0}, std::vector<int>{3}}) {
      std::vector<Group> groups = make_groups(completions, reward_step);
      MetricSums metrics;
      objective_->compute_advantages(groups, metrics);
      for (const Group& group : groups)
        for (const Sample& sample : group.samples) {
          sample.columns.for_each([&](Column column, std::span<const float> values) {
            EXPECT_EQ(values.size(), column.size(1, sample.tokens.size())) << column.name();
            for (const float v : values) EXPECT_TRUE(std::isfinite(v)) << column.name();
          });
        }
      for (const auto& [name, value] : metrics.means()) EXPECT_TRUE(std::isfinite(value)) << name;
    }
}

// A sample with has_no_gradient() has a loss and a gradient of 0 under any policy.
TEST_P(ObjectiveContract, IdleSamplesAddNothing) {
  for (const double reward_step : {0.0, 0.25}) {
    std::vector<Group> groups = make_groups(std::vector<int>{4, 1, 3, 0}, reward_step);
    MetricSums unused;
    objective_->compute_advantages(groups, unused);
    for (const Group& group : groups)
      for (const Sample& sample : group.samples) {
        if (!objective_->has_no_gradient(sample)) continue;
        const auto n = sample.tokens.size();
        const int32_t offsets[] = {0, static_cast<int32_t>(n)};
        const std::vector<float> logp(n, -1.5f), entropy(n, 0.5f);
        std::vector<float> grad(n), grad_entropy(n), grad_value(n);
        TokenBatch batch{.offsets = offsets};
        sample.columns.for_each([&](Column column, std::span<const float> v) { batch.columns.set(column, v); });
        batch.columns.set(columns::logp, logp);
        batch.columns.set(columns::old_logp, sample.columns.find(columns::behavior_logp));
        batch.columns.set(columns::entropy, entropy);
        batch.columns.set(columns::value, sample.columns.find(columns::old_value));
        EXPECT_EQ(objective_->loss(batch, {.logp = grad, .entropy = grad_entropy, .value = grad_value}, unused), 0);
        for (const std::vector<float>& column : {grad, grad_entropy, grad_value})
          EXPECT_EQ(column, std::vector<float>(n));
      }
  }
}

TEST(ObjectiveSettings, ThatCompareAGroupNeedOneOfTwoAndSamplingThatDiffers) {
  for (const std::string& name : objectives().names()) {
    const std::unique_ptr<ObjectiveSettings> of = objectives().at(name)();
    EXPECT_NO_THROW(of->validate({})) << name;
    EXPECT_NO_THROW(of->validate({.group_size = 2})) << name;
    if (!of->compares_group()) {
      EXPECT_NO_THROW(of->validate({.temperature = 0, .group_size = 1})) << name;
      continue;
    }
    EXPECT_THROW(of->validate({.group_size = 1}), Error) << name;
    EXPECT_THROW(of->validate({.temperature = 0, .group_size = 2}), Error) << name;
  }
}

// A resumed run computes the advantages of the uninterrupted run.
TEST_P(ObjectiveContract, StateIsSavedWhole) {
  const std::vector<int> completions = {4, 1, 3};
  const auto credit = [&](Objective& objective) {
    std::vector<Group> groups = make_groups(completions, 0.25);
    MetricSums metrics;
    objective.compute_advantages(groups, metrics);
    return metrics.means();
  };
  credit(*objective_);
  StateSection section;
  objective_->save_state(section);
  const std::unique_ptr<Objective> resumed = make(GetParam());
  resumed->load_state(section);
  EXPECT_EQ(credit(*resumed), credit(*objective_));
}

INSTANTIATE_TEST_SUITE_P(Registry, ObjectiveContract, testing::ValuesIn(variants()),
                         [](const auto& param) { return param.param.objective + "_" + param.param.setting.name; });

}  // namespace
}  // namespace hone
