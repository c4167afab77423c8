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
  correction.off_policy = true;
  EXPECT_EQ(correction.chosen_mode(), "token_truncate");
  for (const char* mode : {"none", "sequence_mask"}) {
    correction.mode = mode;
    EXPECT_EQ(correction.chosen_mode(), mode);
  }
  EXPECT_THROW(Config::from_text("importance_sampling_mode = 'automatic'", "test").as<ImportanceCorrection>(), Error);
}

TEST(ImportanceMode, OffPolicyRepliesAreScoredByWhatLearnsFromThem) {
  for (const char* objective : {"grpo", "ppo", "rloo", "reinforce_plus_plus", "maxrl"}) {
    const ObjectiveSpec spec = Config::from_text(concat("objective = '", objective, "'"), "test").as<ObjectiveSpec>();
    EXPECT_FALSE(spec.made->needs().has(columns::old_logp)) << objective;
    spec.made->off_policy();
    EXPECT_TRUE(spec.made->needs().has(columns::old_logp)) << objective;
    EXPECT_TRUE(spec.made->needs().has(columns::behavior_logp)) << objective;
  }
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
  correction.off_policy = true;
  MetricSums metrics;
  const std::vector<double> weights = correction.weights(batch, 0, metrics);
  EXPECT_EQ(weights[1], 1);
  EXPECT_EQ(weights[2], 1);
  EXPECT_NEAR(weights[3], std::exp(0.5), 1e-12);
}

}  // namespace
}  // namespace hone
