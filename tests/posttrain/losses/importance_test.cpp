#include "posttrain/losses/importance.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/config/config.h"
#include "train/objective.h"

namespace hone {
namespace {

TEST(ImportanceMode, IsChosenByThePolicyUnlessTheRecipeDoes) {
  ImportanceCorrection correction;
  EXPECT_EQ(correction.mode, "auto");
  EXPECT_FALSE(correction.on());
  correction.resolve(false);
  EXPECT_EQ(correction.mode, "auto") << "the resolved recipe of another run may be off policy";
  correction.resolve(true);
  EXPECT_EQ(correction.mode, "token_truncate");
  for (const char* mode : {"none", "sequence_mask"}) {
    correction.mode = mode;
    correction.resolve(true);
    EXPECT_EQ(correction.mode, mode);
  }
  EXPECT_THROW(Config::from_text("importance_sampling_mode = 'automatic'", "test").as<ImportanceCorrection>(), Error);
}

TEST(ImportanceMode, OffPolicyCompletionsNeedBothLogProbs) {
  for (const char* objective : {"grpo", "ppo", "rloo", "reinforce_plus_plus", "maxrl"}) {
    EXPECT_FALSE(make_objective(objective)->needs().has(columns::old_logp)) << objective;
    const Needs needs = make_objective(objective, {.off_policy = true})->needs();
    EXPECT_TRUE(needs.has(columns::old_logp)) << objective;
    EXPECT_TRUE(needs.has(columns::behavior_logp)) << objective;
  }
}

TEST(ImportanceMode, ResolvedSettingsNameItAndTheOriginalStaysAsItIs) {
  const auto mode_of = [](const ObjectiveSettings& settings) {
    const Json json = to_json([&](Fields& f) { const_cast<ObjectiveSettings&>(settings).fields(f); });
    return json.at("importance_sampling_mode").as_string();
  };
  for (const char* objective : {"grpo", "ppo", "rloo", "reinforce_plus_plus", "maxrl"}) {
    const auto settings = objectives().at(objective)();
    EXPECT_EQ(mode_of(*settings->resolved({.off_policy = true})), "token_truncate") << objective;
    EXPECT_EQ(mode_of(*settings->resolved({.off_policy = false})), "auto") << objective;
    EXPECT_EQ(mode_of(*settings), "auto") << objective;
  }
  EXPECT_EQ(objectives().at("dpo")()->resolved({.off_policy = true}), nullptr);
}

TEST(ImportanceMode, WeightsOfTheTokensThatTheSameWeightsDrewAreOne) {
  const std::vector<int32_t> offsets = {0, 4};
  const std::vector<float> old_logp = {0, -0.7f, -1.25f, -2.5f}, behavior_logp = {0, -0.7f, -1.25f, -3},
                           mask = {0, 1, 1, 1};
  TokenBatch batch;
  batch.offsets = offsets;
  batch.columns.set(columns::old_logp, old_logp);
  batch.columns.set(columns::behavior_logp, behavior_logp);
  batch.columns.set(columns::mask, mask);
  ImportanceCorrection correction;
  correction.resolve(true);
  MetricSums metrics;
  const std::vector<double> weights = correction.weights(batch, 0, metrics);
  EXPECT_EQ(weights[1], 1);
  EXPECT_EQ(weights[2], 1);
  EXPECT_NEAR(weights[3], std::exp(0.5), 1e-12);
}

}  // namespace
}  // namespace hone
