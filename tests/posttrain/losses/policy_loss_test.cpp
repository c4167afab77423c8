// Policy losses, evaluated as by `hone objective`, against formulas written out here in double precision.
#include "posttrain/losses/policy_loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/io/file.h"
#include "tests/data/entries.h"
#include "tests/posttrain/objectives/rows.h"
#include "tests/support/support.h"
#include "train/json/objective_json.h"

namespace hone {
namespace {

using test::entries;

using test::Rows, test::nested;

// Ratios on both sides of every clip, a masked token, one-token completions.
const Rows logp = {{-1.5, -0.5, -2.25, -0.125}, {-0.75, -1.0}, {-3.0, -0.25, -0.5, -1.25}, {-2.0}, {-0.5, -0.75}};
const Rows old_logp = {{-1.25, -0.75, -2.25, -3.0}, {-1.5, -1.125}, {-2.0, -0.25, -0.75, -1.0}, {-2.5}, {-0.25, -2.5}};
const Rows behavior_logp = {
    {-1.75, -0.5, -2.0, -4.5}, {-1.5, -1.75}, {-2.25, -0.5, -0.25, -1.5}, {-1.5}, {-0.375, -2.0}};
const Rows reference_logp = {{-1.0, -1.0, -2.0, -0.5}, {-0.5, -1.25}, {-2.5, -0.5, -0.5, -1.5}, {-1.75}, {-0.5, -1.5}};
const Rows entropy = {{0.5, 1, 1.5, 2}, {0.25, 0.75}, {1, 1, 1.25, 0.5}, {2}, {0.125, 1}};
const Rows mask = {{0, 1, 1, 1}, {1, 1}, {1, 1, 0, 1}, {1}, {1, 1}};
const std::vector<double> advantages = {1.5, -0.75, 0.5, -1.25, -2.0};

struct Settings {
  std::string loss_type = "dapo", level = "token", correction = "none", kl = "k3";
  double epsilon = 0.2, epsilon_high = 0.3, delta = 0, beta = 0, entropy_coef = 0, clip_min = 0, clip_max = 3;
  int64_t length = 16;
  bool kl_by_ratio = false;
};

Json run(const Settings& s) {
  const Json config = JsonObject{{"loss_type", s.loss_type},
                                 {"importance_sampling_level", s.level},
                                 {"importance_sampling_mode", s.correction},
                                 {"importance_sampling_clip_min", s.clip_min},
                                 {"importance_sampling_clip_max", s.clip_max},
                                 {"kl_loss_type", s.kl},
                                 {"use_bias_correction_kl", s.kl_by_ratio},
                                 {"epsilon", s.epsilon},
                                 {"epsilon_high", s.epsilon_high},
                                 {"delta", s.delta},
                                 {"beta", s.beta},
                                 {"entropy_coef", s.entropy_coef},
                                 {"max_completion_length", s.length}};
  return evaluate_objective("grpo",
                            JsonObject{{"logp", nested(logp)},
                                       {"old_logp", nested(old_logp)},
                                       {"behavior_logp", nested(behavior_logp)},
                                       {"reference_logp", nested(reference_logp)},
                                       {"entropy", nested(entropy)},
                                       {"mask", nested(mask)},
                                       {"advantages", Json::array(advantages)},
                                       {"config", config}},
                            "x.json");
}

double masked_sum(const Rows& a, const Rows& b, size_t s) {
  double sum = 0;
  for (size_t t = 0; t < mask[s].size(); ++t) sum += mask[s][t] * (a[s][t] - b[s][t]);
  return sum;
}
double num_tokens(size_t s) { return masked_sum(mask, Rows(mask.size(), std::vector<double>(4)), s); }

// The loss as the papers and TRL's trainer write it.
double expected_loss(const Settings& s) {
  double all = 0, loss = 0;
  for (size_t i = 0; i < mask.size(); ++i) all += num_tokens(i);
  const auto bound = [&](double w) {
    if (s.correction.ends_with("mask")) return w < s.clip_min || w > s.clip_max ? 0.0 : w;
    return std::min(std::max(w, s.clip_min), s.clip_max);
  };
  for (size_t i = 0; i < mask.size(); ++i) {
    const double own = num_tokens(i), sequences = static_cast<double>(mask.size());
    const double weight = s.loss_type == "grpo"                 ? 1 / own / sequences
                          : s.loss_type == "dr_grpo"            ? 1 / (sequences * static_cast<double>(s.length))
                          : s.loss_type == "seq-mean-token-sum" ? 1 / sequences
                                                                : 1 / all;
    for (size_t t = 0; t < mask[i].size(); ++t) {
      if (mask[i][t] == 0) continue;
      const double a = advantages[i];
      double r = std::exp(logp[i][t] - old_logp[i][t]);
      if (s.level == "sequence") r = std::exp(masked_sum(logp, old_logp, i) / own);
      if (s.level == "trajectory") r = std::exp(masked_sum(logp, old_logp, i));
      double term = 0;
      if (s.loss_type == "cispo") {
        term = -std::min(r, s.epsilon_high) * a * logp[i][t];
      } else if (s.loss_type == "cispo_relative") {
        term = -std::min(std::max(r, 1 - s.epsilon), 1 + s.epsilon_high) * a * logp[i][t];
      } else {
        const double kept = std::min(std::max(r, 1 - s.epsilon), 1 + s.epsilon_high);
        term = std::max(-r * a, -kept * a);
        if (s.delta > 0 && a < 0) term = std::min(term, -s.delta * a);  // verl's dual clip
      }
      if (s.correction.starts_with("token")) term *= bound(std::exp(old_logp[i][t] - behavior_logp[i][t]));
      if (s.correction.starts_with("sequence")) term *= bound(std::exp(masked_sum(old_logp, behavior_logp, i)));
      const double d = logp[i][t] - reference_logp[i][t];
      term += s.beta * (s.kl_by_ratio ? r : 1) * (s.kl == "k1" ? d : s.kl == "k2" ? d * d / 2 : std::exp(-d) + d - 1);
      loss += weight * (term - s.entropy_coef * entropy[i][t]);
    }
  }
  return loss;
}

std::string name_of(const Settings& s) {
  return concat(s.loss_type, " ", s.level, " ", s.correction, " ", s.kl, " delta ", s.delta, " beta ", s.beta,
                " entropy ", s.entropy_coef, " KL by ratio ", s.kl_by_ratio);
}

TEST(PolicyLoss, FollowsTheFormulasUnderEverySetting) {
  for (const char* loss_type : {"dapo", "bnpo", "grpo", "dr_grpo", "seq-mean-token-sum", "cispo", "cispo_relative"})
    for (const char* level : {"token", "sequence", "trajectory"})
      for (const char* correction : {"none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"})
        for (const double delta : {0.0, 1.75}) {
          Settings s{.loss_type = loss_type,
                     .level = level,
                     .correction = correction,
                     .delta = delta,
                     .beta = 0.05,
                     .clip_min = 0.5};
          if (s.loss_type.starts_with("cispo")) s.delta = 0;
          if (s.loss_type == "cispo") s.epsilon_high = 1.5;
          s.clip_max = 1.5;
          EXPECT_NEAR(run(s).at("loss").as_double(), expected_loss(s), 1e-6) << name_of(s);
        }
  for (const char* kl : {"k1", "k2", "k3"})
    for (const char* level : {"token", "sequence", "trajectory"})
      for (const bool by_ratio : {false, true}) {
        const Settings s{
            .level = level, .kl = kl, .beta = 0.4, .entropy_coef = by_ratio ? 0.02 : 0, .kl_by_ratio = by_ratio};
        EXPECT_NEAR(run(s).at("loss").as_double(), expected_loss(s), 1e-6) << name_of(s);
      }
}

// Each token's gradient of -w A logp is -w A, since the ratio is held constant.
TEST(PolicyLoss, CispoKeepsAGradientForEveryToken) {
  const Json out = run({.loss_type = "cispo", .epsilon_high = 1.5});
  double clipped = 0;
  for (size_t i = 0; i < mask.size(); ++i)
    for (size_t t = 0; t < mask[i].size(); ++t) {
      const double ratio = std::exp(logp[i][t] - old_logp[i][t]);
      EXPECT_NEAR(out.at("grad").as_array()[i].as_array()[t].as_double(),
                  -mask[i][t] * std::min(ratio, 1.5) * advantages[i] / 11, 1e-6);
      clipped += mask[i][t] * (ratio > 1.5 && advantages[i] > 0) / 11;
    }
  EXPECT_NEAR(out.at("metrics").at("cispo_clip_ratio").as_double(), clipped, 1e-12);
  EXPECT_GT(clipped, 0);
}

TEST(PolicyLoss, MetricsAreTrls) {
  const Settings s{.correction = "token_truncate", .delta = 1.5, .beta = 0.1};
  const Json out = run(s);
  const auto metric = [&](const char* name) { return out.at("metrics").at(name).as_double(); };
  double low = 0, high = 0, dual = 0, kl = 0, bits = 0, weights = 0, difference = 0, largest_difference = 0,
         low_min = 1, high_max = 0, heaviest = 0, lightest = 9;
  for (size_t i = 0; i < mask.size(); ++i) {
    double own_low = 0, own_high = 0;
    for (size_t t = 0; t < mask[i].size(); ++t) {
      if (mask[i][t] == 0) continue;
      const double r = std::exp(logp[i][t] - old_logp[i][t]),
                   w = std::min(std::exp(old_logp[i][t] - behavior_logp[i][t]), 3.0);
      own_low += r < 0.8 && advantages[i] < 0;
      own_high += r > 1.3 && advantages[i] > 0;
      dual += (r > 1.5 && advantages[i] < 0) / 11.0;
      const double d = logp[i][t] - reference_logp[i][t], gap = std::abs(old_logp[i][t] - behavior_logp[i][t]);
      kl += (std::exp(-d) + d - 1) / 11, bits += entropy[i][t] / 11, weights += w / 11, difference += gap / 11;
      heaviest = std::max(heaviest, w), lightest = std::min(lightest, w),
      largest_difference = std::max(largest_difference, gap);
    }
    low += own_low / 11, high += own_high / 11;
    low_min = std::min(low_min, own_low / num_tokens(i)), high_max = std::max(high_max, own_high / num_tokens(i));
  }
  EXPECT_GT(low * high * dual, 0);
  EXPECT_NEAR(metric("clip_ratio/low_mean"), low, 1e-12);
  EXPECT_NEAR(metric("clip_ratio/high_mean"), high, 1e-12);
  EXPECT_NEAR(metric("clip_ratio/region_mean"), low + high, 1e-12);
  EXPECT_NEAR(metric("clip_ratio/low_min"), low_min, 1e-12);
  EXPECT_NEAR(metric("clip_ratio/high_max"), high_max, 1e-12);
  EXPECT_NEAR(metric("clip_ratio/delta_mean"), dual, 1e-12);
  EXPECT_NEAR(metric("kl"), kl, 1e-9);
  EXPECT_NEAR(metric("entropy"), bits, 1e-9);
  EXPECT_NEAR(metric("sampling/importance_sampling_ratio/mean"), weights, 1e-9);
  EXPECT_NEAR(metric("sampling/importance_sampling_ratio/max"), heaviest, 1e-9);
  EXPECT_NEAR(metric("sampling/importance_sampling_ratio/min"), lightest, 1e-9);
  EXPECT_NEAR(metric("sampling/sampling_logp_difference/mean"), difference, 1e-9);
  EXPECT_NEAR(metric("sampling/sampling_logp_difference/max"), largest_difference, 1e-9);
}

// The ratio of a sequence is clipped as one, so clip fractions count sequences.
TEST(PolicyLoss, SequenceRatiosAreCountedBySequence) {
  const Json out = run({.level = "sequence"});
  double low = 0, high = 0;
  for (size_t i = 0; i < mask.size(); ++i) {
    const double r = std::exp(masked_sum(logp, old_logp, i) / num_tokens(i));
    low += (r < 0.8 && advantages[i] < 0) / 5.0, high += (r > 1.3 && advantages[i] > 0) / 5.0;
  }
  EXPECT_NEAR(out.at("metrics").at("clip_ratio/low_mean").as_double(), low, 1e-12);
  EXPECT_NEAR(out.at("metrics").at("clip_ratio/high_mean").as_double(), high, 1e-12);
}

TEST(PolicyLoss, ACorrectionNeedsBothLogProbs) {
  const auto message = [](const char* missing) -> std::string {
    Json in = JsonObject{{"logp", nested(logp)},
                         {"old_logp", nested(old_logp)},
                         {"behavior_logp", nested(behavior_logp)},
                         {"advantages", Json::array(advantages)},
                         {"config", JsonObject{{"importance_sampling_mode", "token_truncate"}}}};
    in.set(missing, nullptr);
    try {
      evaluate_objective("grpo", in, "x.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message("old_logp").find("needs old_logp"), std::string::npos);
  EXPECT_NE(message("behavior_logp").find("needs behavior_logp"), std::string::npos);
}

TEST(PolicyLoss, SettingsThatMeanNothingAreRefused) {
  const auto message = [](JsonObject config) -> std::string {
    try {
      evaluate_objective(
          "grpo", JsonObject{{"logp", nested(logp)}, {"advantages", Json::array(advantages)}, {"config", config}},
          "x.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message({{"loss_type", "cispo"}}).find("epsilon_high"), std::string::npos);
  EXPECT_NE(message({{"delta", 1.1}}).find("above 1 + the upper clip"), std::string::npos);
  EXPECT_NE(message({{"loss_type", "cispo_relative"}, {"delta", 3}}).find("bounds its ratio already"),
            std::string::npos);
  EXPECT_NE(message({{"loss_type", "dr_grpo"}}).find("dr_grpo needs a length"), std::string::npos);
  EXPECT_NE(message({{"importance_sampling_level", "sequences"}}).find("did you mean 'sequence'"), std::string::npos);
  EXPECT_NE(message({{"importance_sampling_clip_max", 0.5}}).find("importance_sampling_clip_max"), std::string::npos);
  EXPECT_NE(message({{"loss_type", "sapo"}, {"delta", 3}}).find("bounds its ratio already"), std::string::npos);
  EXPECT_NE(message({{"loss_type", "sapo"}, {"sapo_temperature_neg", 0}}).find("sapo_temperature_neg"),
            std::string::npos);
  EXPECT_NE(message({{"loss_type", "dppo_kl"}, {"importance_sampling_level", "sequence"}}).find("must be token"),
            std::string::npos);
  EXPECT_NE(message({{"loss_type", "dppo_kl"}, {"delta", 0.5}}).find("x.json: config:2:"), std::string::npos);
  EXPECT_NE(message({{"loss_agg_mode", "token-men"}}).find("did you mean 'token-mean'"), std::string::npos);
  EXPECT_NE(message({{"loss_agg_mode", "seq-mean-token-sum-norm"}}).find("norm needs a length"), std::string::npos);
  EXPECT_NE(message({{"off_policy_mask_threshold", -1}}).find("off_policy_mask_threshold"), std::string::npos);
  EXPECT_NE(message({{"top_entropy_quantile", 1.5}}).find("top_entropy_quantile must be in [0, 1]"), std::string::npos);
  EXPECT_NE(message({{"length_penalty", -1}}).find("length_penalty must not be negative"), std::string::npos);
  EXPECT_NE(message({{"multi_objective_aggregation", "sum"}}).find("normalize_then_sum"), std::string::npos);
  EXPECT_NE(message({{"multi_objective_aggregation", "normalize_then_sum"}, {"scale_rewards", "batch"}})
                .find("remove scale_rewards"),
            std::string::npos);
  EXPECT_EQ(message({}), "");
}

TEST(PolicyLoss, AggregationModesOverrideThoseOfTheLossType) {
  const auto loss = [](const std::string& loss_type, const std::string& mode) {
    return evaluate_objective("grpo",
                              JsonObject{{"logp", nested(logp)},
                                         {"old_logp", nested(old_logp)},
                                         {"mask", nested(mask)},
                                         {"advantages", Json::array(advantages)},
                                         {"config", JsonObject{{"loss_type", loss_type},
                                                               {"loss_agg_mode", mode},
                                                               {"max_completion_length", 16}}}},
                              "x.json")
        .at("loss")
        .as_double();
  };
  EXPECT_EQ(loss("dapo", "seq-mean-token-mean"), loss("grpo", "auto"));
  EXPECT_EQ(loss("grpo", "token-mean"), loss("dapo", "auto"));
  EXPECT_EQ(loss("dapo", "seq-mean-token-sum-norm"), loss("dr_grpo", "auto"));
  EXPECT_EQ(loss("grpo", "seq-mean-token-sum"), loss("seq-mean-token-sum", "auto"));
  EXPECT_NE(loss("sapo", "token-mean"), loss("sapo", "auto"));
}

TEST(PolicyLoss, IdleIsWhatHasNoAdvantageAndNoOtherTerm) {
  Sample sample;
  sample.tokens = {1, 2, 3}, sample.columns.set(columns::mask, {0, 1, 1}),
  sample.columns.set(columns::advantage, {7, 0, 0});
  EXPECT_TRUE(PolicyLoss().has_no_gradient(sample));
  EXPECT_FALSE(PolicyLoss{.beta = 0.1}.has_no_gradient(sample));
  EXPECT_FALSE(PolicyLoss{.entropy_coef = 0.1}.has_no_gradient(sample));
  sample.columns[columns::advantage][2] = 1e-6f;
  EXPECT_FALSE(PolicyLoss().has_no_gradient(sample));
  const PolicyLoss top{.top_entropy = {.quantile = 0.5}};
  sample.columns.set(columns::top_entropy, {0, 1, 0});
  EXPECT_TRUE(top.has_no_gradient(sample));
  sample.columns.set(columns::top_entropy, {0, 0, 1});
  EXPECT_FALSE(top.has_no_gradient(sample));
  sample.columns.erase(columns::advantage);
  EXPECT_FALSE(PolicyLoss().has_no_gradient(sample));
  sample.columns.set(columns::mask, {0, 0, 0});
  EXPECT_TRUE(PolicyLoss{.beta = 0.1}.has_no_gradient(sample));
}

// Truncated completions are scored and count in baselines.
TEST(PolicyLoss, TruncatedCompletionsAreNotTrainedOn) {
  std::vector<Group> groups(1);
  for (const char* reason : {"stop", "length"}) {
    Sample& sample = groups[0].samples.emplace_back();
    sample.columns.set(columns::mask, {0, 1, 1}), sample.completion.finish_reason = reason;
  }
  PolicyLoss().mask_truncated(groups);
  EXPECT_EQ(entries(groups[0].samples[1], columns::mask), (std::vector<float>{0, 1, 1}));
  PolicyLoss{.mask_truncated_completions = true}.mask_truncated(groups);
  EXPECT_EQ(entries(groups[0].samples[0], columns::mask), (std::vector<float>{0, 1, 1}));
  EXPECT_EQ(entries(groups[0].samples[1], columns::mask), (std::vector<float>{0, 0, 0}));
}

// Numbers from another framework's tests: GSPO's token losses, and two averages of token losses.
TEST(PolicyLoss, AgreesWithPublishedNumbers) {
  HONE_SHARED_OR_SKIP(path, "vectors/a5/functions_2026.json");
  const Json all = parse_json(read_file(path), path.string());
  const auto rows = [](const Json& tensor) {
    JsonArray out(2, JsonArray{});
    for (size_t i = 0; i < 20; ++i) out[i / 10].array_ref().push_back(tensor.at("data").as_array()[i]);
    return Json(out);
  };
  const Json& section = all.at("compute_policy_gradient_loss");
  const Json& inputs = section.at("inputs");
  const auto evaluate = [&](const Json& logp_rows, const Json& old_rows, const Json& mask_rows, const Json& a,
                            JsonObject config) {
    return evaluate_objective("grpo",
                              JsonObject{{"logp", logp_rows},
                                         {"old_logp", old_rows},
                                         {"mask", mask_rows},
                                         {"advantages", a},
                                         {"config", config}},
                              path.string())
        .at("loss")
        .as_double();
  };
  const Json policy = rows(inputs.at("policy_log_probs")), old = rows(inputs.at("old_log_probs")),
             response = rows(inputs.at("response_mask"));
  const Json& a = inputs.at("raw_rewards_or_advantages").at("data");
  const double cliprange = inputs.at("cliprange").as_double();
  for (const auto& [name, level] : {std::pair{"gspo", "sequence"}, std::pair{"grpo", "token"}}) {
    double expected = 0, tokens = 0;
    for (size_t i = 0; i < 20; ++i) {
      const double m = inputs.at("response_mask").at("data").as_array()[i].as_double();
      expected += m * section.at("cases").at(name).at("data").as_array()[i].as_double(), tokens += m;
    }
    EXPECT_NEAR(evaluate(policy, old, response, a, {{"epsilon", cliprange}, {"importance_sampling_level", level}}),
                expected / tokens, 1e-5)
        << name;
  }
  // With logp = old_logp a token's loss is -A, so the advantages set the losses.
  const Json& sums = all.at("aggregate_loss_across_microbatch");
  JsonArray negated(2, JsonArray{});
  for (size_t i = 0; i < 20; ++i)
    negated[i / 10].array_ref().push_back(
        -sums.at("inputs").at("per_token_policy_gradient_loss").at("data").as_array()[i].as_double());
  const Json losses(negated), sum_mask = rows(sums.at("inputs").at("mask"));
  EXPECT_NEAR(evaluate(policy, policy, sum_mask, losses, {{"loss_type", "grpo"}}),
              sums.at("cases").at("sequence").as_double(), 1e-5);
  // The other framework divides the batch's sum by the constant; hone also divides by the two sequences.
  EXPECT_NEAR(2 * evaluate(policy, policy, sum_mask, losses, {{"loss_type", "dr_grpo"}, {"max_completion_length", 42}}),
              sums.at("cases").at("constant(42)").as_double(), 1e-5);
}

}  // namespace
}  // namespace hone
