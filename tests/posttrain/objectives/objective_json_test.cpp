// Objectives against formulas written out here in double precision.
#include "train/json/objective_json.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/check.h"

namespace hone {
namespace {

using Rows = std::vector<std::vector<double>>;

const Rows logp = {{-1.5, -0.5, -2.25}, {-0.75, -1.0}, {-3.0, -0.25, -0.5, -1.25}, {-2.0}};
const Rows old_logp = {{-1.25, -0.75, -2.25}, {-1.5, -1.0}, {-2.0, -0.25, -0.75, -1.0}, {-2.5}};
const Rows reference_logp = {{-1.0, -1.0, -2.0}, {-0.5, -1.25}, {-2.5, -0.5, -0.5, -1.5}, {-1.75}};
const Rows mask = {{0, 1, 1}, {1, 1}, {1, 1, 0, 1}, {1}};

Json nested(const Rows& rows) {
  JsonArray out;
  for (const std::vector<double>& row : rows) out.push_back(Json::array(row));
  return out;
}

Json input(JsonObject more = {}) {
  Json out = JsonObject{{"logp", nested(logp)},
                        {"behavior_logp", nested(old_logp)},
                        {"reference_logp", nested(reference_logp)},
                        {"mask", nested(mask)}};
  for (auto& [key, value] : more) out.set(key, std::move(value));
  return out;
}

double grad_at(const Json& out, size_t s, size_t t) {
  return out.at("grad").as_array().at(s).as_array().at(t).as_double();
}

TEST(ObjectiveJson, SftIsTheMeanNegativeLogLikelihood) {
  const Json out = evaluate_objective("sft", input(), "x.json");
  double sum = 0, tokens = 0;
  for (size_t s = 0; s < logp.size(); ++s)
    for (size_t t = 0; t < logp[s].size(); ++t) sum -= mask[s][t] * logp[s][t], tokens += mask[s][t];
  EXPECT_NEAR(out.at("loss").as_double(), sum / tokens, 1e-12);
  EXPECT_NEAR(grad_at(out, 2, 1), -1 / tokens, 1e-7);
  EXPECT_EQ(grad_at(out, 0, 0), 0);
  EXPECT_TRUE(out.at("advantages").is_null());
}

struct GrpoCase {
  const char* loss_type;
  double (*weight)(double sequence_tokens, double all_tokens, double sequences);
};

class ObjectiveJsonGrpo : public testing::TestWithParam<GrpoCase> {};

TEST_P(ObjectiveJsonGrpo, FollowsTheFormula) {
  const std::vector<double> rewards = {1, 0, 0.5, 0.25};
  const double low = 0.1, high = 0.3, beta = 0.05;
  const Json out = evaluate_objective("grpo",
                                      input({{"rewards", Json::array(rewards)},
                                             {"group_size", 2},
                                             {"config", JsonObject{{"epsilon", low},
                                                                   {"epsilon_high", high},
                                                                   {"beta", beta},
                                                                   {"loss_type", GetParam().loss_type},
                                                                   {"max_completion_length", 16}}}}),
                                      "x.json");
  double all_tokens = 0, loss = 0, kl = 0;
  for (const auto& row : mask)
    for (const double m : row) all_tokens += m;
  for (size_t s = 0; s < logp.size(); ++s) {
    const double a = rewards[s / 2 * 2], b = rewards[s / 2 * 2 + 1], mean = (a + b) / 2,
                 deviation = std::abs(a - b) / std::sqrt(2.0);
    const double advantage = (rewards[s] - mean) / (deviation + 1e-4);
    EXPECT_NEAR(out.at("advantages").as_array().at(s).as_double(), advantage, 1e-6);
    double sequence_tokens = 0;
    for (const double m : mask[s]) sequence_tokens += m;
    const double weight = GetParam().weight(sequence_tokens, all_tokens, 4);
    for (size_t t = 0; t < logp[s].size(); ++t) {
      if (mask[s][t] == 0) {
        EXPECT_EQ(grad_at(out, s, t), 0);
        continue;
      }
      const double ratio = std::exp(logp[s][t] - old_logp[s][t]), q = reference_logp[s][t] - logp[s][t];
      const double free = ratio * advantage, kept = std::clamp(ratio, 1 - low, 1 + high) * advantage;
      loss += weight * (-std::min(free, kept) + beta * (std::exp(q) - q - 1));
      kl += (std::exp(q) - q - 1) / all_tokens;
      EXPECT_NEAR(grad_at(out, s, t), weight * ((free <= kept ? -free : 0) + beta * (1 - std::exp(q))), 1e-6)
          << s << "," << t;
    }
  }
  EXPECT_NEAR(out.at("loss").as_double(), loss, 1e-6);
  EXPECT_NEAR(out.at("metrics").at("kl").as_double(), kl, 1e-9);
  EXPECT_NEAR(out.at("metrics").at("sampling/sampling_logp_difference/max").as_double(), 1.0, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(
    LossTypes, ObjectiveJsonGrpo,
    testing::Values(GrpoCase{"dapo", [](double, double all, double) { return 1 / all; }},
                    GrpoCase{"bnpo", [](double, double all, double) { return 1 / all; }},
                    GrpoCase{"grpo", [](double own, double, double sequences) { return 1 / own / sequences; }},
                    GrpoCase{"dr_grpo", [](double, double, double sequences) { return 1 / (16 * sequences); }}),
    [](const auto& param) { return param.param.loss_type; });

// The three forms of several rewards, and both places of their weights.
TEST(ObjectiveJson, SeveralRewardsAreAddedByTheirWeights) {
  const auto advantages = [](const Json& rewards, const Json& weights, bool in_config) {
    Json in = input({{"rewards", rewards}, {"group_size", 2}});
    if (in_config)
      in.set("config", JsonObject{{"reward_weights", weights}});
    else
      in.set("reward_weights", weights);
    return evaluate_objective("grpo", in, "x.json").at("advantages").dump();
  };
  const Json sums = JsonArray{2, 0.5, 1, 3},
             two = JsonArray{JsonArray{1, 2}, JsonArray{0, 1}, JsonArray{1, nullptr}, JsonArray{2, 2}};
  const Json named = JsonObject{{"a", JsonArray{1, 0, 1, 2}}, {"b", JsonArray{2, 1, nullptr, 2}}};
  const std::string expected = advantages(sums, nullptr, false);
  EXPECT_EQ(advantages(two, JsonArray{1, 0.5}, false), expected);
  EXPECT_EQ(advantages(two, JsonArray{1, 0.5}, true), expected);
  EXPECT_EQ(advantages(named, JsonObject{{"b", 0.5}}, true), expected);
}

// Entropies of the file are those before the epochs.
TEST(ObjectiveJson, EntropiesSelectTokensWithAndWithoutRewards) {
  const Rows entropy = {{9, 0.5, 2}, {0.25, 3}, {0.5, 1, 9, 0.125}, {1}};
  for (const char* given : {"rewards", "advantages"}) {
    const Json out = evaluate_objective("grpo",
                                        input({{"entropy", nested(entropy)},
                                               {given, JsonArray{1, -1, 0.5, -0.5}},
                                               {"config", JsonObject{{"top_entropy_quantile", 0.25}}}}),
                                        "x.json");
    EXPECT_NE(grad_at(out, 0, 2), 0) << given;
    EXPECT_EQ(grad_at(out, 0, 1), 0) << given;
    EXPECT_EQ(grad_at(out, 2, 2), 0) << "masked out: " << given;
    EXPECT_NEAR(out.at("metrics").at("top_entropy/selected").as_double(), 2.0 / 8, 1e-12);
    EXPECT_NEAR(out.at("metrics").at("top_entropy/threshold").as_double(), 1.25, 1e-6);
  }
}

TEST(ObjectiveJson, WithoutOldLogProbsThePolicyIsTheSampler) {
  Json on_policy = JsonObject{{"logp", nested(logp)}, {"advantages", Json::array(std::vector<double>{1, -1, 2, 0})}};
  const Json out = evaluate_objective("grpo", on_policy, "x.json");
  EXPECT_NEAR(out.at("loss").as_double(), -(3 * 1.0 - 2 * 1.0 + 4 * 2.0) / 10, 1e-12);
  EXPECT_EQ(out.at("metrics").at("clip_ratio/region_mean").as_double(), 0);
}

TEST(ObjectiveJson, PpoMakesAdvantagesAndReturnsFromRewardsAndValues) {
  const Rows value = {{0, 0.5, 0.25}, {0.1, 0.2}, {0, 0.5, 0, -0.5}, {1}};
  const double kl_coef = 0.1, gamma = 0.9, lam = 0.8;
  const std::vector<double> rewards = {1, 0, -1, 0.5};
  const Json out = evaluate_objective(
      "ppo",
      input(
          {{"value", nested(value)},
           {"rewards", Json::array(rewards)},
           {"config", JsonObject{{"kl_coef", kl_coef}, {"gamma", gamma}, {"lam", lam}, {"whiten_advantages", false}}}}),
      "x.json");
  double loss = 0;
  for (size_t s = 0; s < logp.size(); ++s) {
    std::vector<size_t> steps;
    for (size_t t = 0; t < logp[s].size(); ++t)
      if (mask[s][t] != 0) steps.push_back(t);
    double carried = 0, next_value = 0;
    for (size_t i = steps.size(); i-- > 0;) {
      const size_t t = steps[i];
      const double reward =
          -kl_coef * (old_logp[s][t] - reference_logp[s][t]) + (i + 1 == steps.size() ? rewards[s] : 0);
      carried = reward + gamma * next_value - value[s][t] + gamma * lam * carried;
      next_value = value[s][t];
      const double ratio = std::exp(logp[s][t] - old_logp[s][t]);
      loss += (-std::min(ratio * carried, std::clamp(ratio, 0.8, 1.2) * carried) + 0.1 * 0.5 * carried * carried) / 8;
      EXPECT_NEAR(out.at("grad_value").as_array().at(s).as_array().at(t).as_double(), -0.1 * carried / 8, 1e-6);
    }
  }
  EXPECT_NEAR(out.at("loss").as_double(), loss, 1e-6);
}

TEST(ObjectiveJson, BadInputIsNamed) {
  const auto message = [](const char* name, const Json& value) -> std::string {
    try {
      evaluate_objective(name, value, "x.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto expect = [&](const char* name, const Json& value, const char* words) {
    EXPECT_NE(message(name, value).find(words), std::string::npos) << words << " <- " << message(name, value);
  };
  expect("grop", input(), "did you mean 'grpo'");
  expect("grpo", input(), "x.json: objective: needs advantage");
  expect("grpo", input({{"group_size", 0}}), "x.json: group_size is 0; it must be 1 or more");
  expect("grpo", JsonObject{}, "logp");
  expect("grpo", input({{"reward", 1}}), "unknown field 'reward'");
  expect("grpo", input({{"rewards", JsonArray{1, 2, 3}}}), "rewards has 3 sequences");
  expect("grpo", input({{"rewards", JsonArray{1, 2, 3, 4}}, {"group_size", 3}}), "group_size 3");
  expect("grpo", input({{"rewards", JsonArray{1, JsonArray{2}, 3, 4}}}), "rewards");
  expect("grpo", input({{"rewards", JsonArray{JsonArray{1, 2}, JsonArray{2}, JsonArray{3}, JsonArray{4}}}}),
         "rewards[1] has 1 rewards, rewards[0] has 2");
  expect("grpo", input({{"rewards", JsonObject{{"format", JsonArray{1, 2}}}}}), "rewards.format has 2 sequences");
  expect("grpo", input({{"rewards", JsonArray{1, 2, 3, 4}}, {"reward_weights", JsonArray{1, 2}}}),
         "reward_weights has 2 numbers for 1 rewards");
  expect("grpo", input({{"rewards", JsonArray{1, 2, 3, 4}}, {"reward_weights", JsonObject{{"format", 2}}}}),
         "reward_weights has format");
  expect("grpo", input({{"mask", JsonArray{}}}), "mask has 0 sequences");
  expect("sft", JsonObject{{"logp", JsonArray{JsonArray{-1, -1}}}, {"mask", JsonArray{JsonArray{1, -3}}}},
         "x.json: mask[0][1] is -3; it must be 0 or 1");
  expect("sft", JsonObject{{"logp", JsonArray{JsonArray{-1, "a"}}}}, "x.json: logp[0][1]: expected a number");
  expect("grpo", input({{"config", JsonObject{{"epsilo", 0.1}}}}), "epsilon");
  expect("grpo", input({{"config", JsonObject{{"epsilon", "wide"}}}}), "epsilon");
  expect("grpo", input({{"advantages", JsonArray{1, 2, 3, 4}}, {"config", JsonObject{{"top_entropy_quantile", 0.5}}}}),
         "x.json: column old_entropy");
  expect("dpo", JsonObject{{"logp", nested(logp)}}, "reference_logp");
  expect("dpo", JsonObject{{"logp", nested({{-1}})}, {"reference_logp", nested({{-1}})}}, "pairs");
  expect("sft", JsonObject{{"logp", JsonArray{JsonArray{nullptr, -1}}}}, "logp[0][0]");
  EXPECT_EQ(
      message("sft", JsonObject{{"logp", JsonArray{JsonArray{nullptr, -1}}}, {"mask", JsonArray{JsonArray{0, 1}}}}),
      "");
}

}  // namespace
}  // namespace hone
