#include "train/objective.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(MetricSums, MeansAreWeightedAndMaximaKept) {
  MetricSums sums;
  sums.add("loss", 6, 3);
  sums.add("loss", 4, 1);
  sums.add("never", 0, 0);
  sums.maximum("max", -3);
  sums.maximum("max", -5);
  sums.minimum("min", 2);
  sums.minimum("min", 7);
  EXPECT_EQ(sums.means(), (Metrics{{"loss", 2.5}, {"max", -3}, {"min", 2}}));
}

TEST(FoldMetrics, KeepsExtremesAndMeansOfWhatIsThere) {
  const Metrics updates[] = {{{"kl", 1}, {"clip_ratio/low_min", 0.5}, {"ratio/max", 2}},
                             {{"kl", 3}, {"clip_ratio/low_min", 0.25}, {"late", 7}}};
  EXPECT_EQ(fold_metrics(updates), (Metrics{{"kl", 2}, {"clip_ratio/low_min", 0.25}, {"ratio/max", 2}, {"late", 7}}));
  EXPECT_TRUE(fold_metrics({}).empty());
}

TEST(Objective, CountsTokensSequencesAndPairs) {
  const float mask[] = {0, 1, 1, 0};
  EXPECT_EQ(count_of(LossUnit::token, mask), 2);
  EXPECT_EQ(count_of(LossUnit::sequence, mask), 1);
  EXPECT_EQ(count_of(LossUnit::pair, mask), 0.5);
  EXPECT_EQ(scale_of(0), 1);
  EXPECT_EQ(scale_of(8), 0.125);
}

TEST(Objective, AMissingOrShortColumnIsNamed) {
  const int32_t offsets[] = {0, 3};
  const float three[3] = {}, two[2] = {};
  const auto message = [&](const Needs& needs, TokenBatch batch) -> std::string {
    batch.offsets = offsets;
    batch.columns.set(columns::logp, three);
    batch.columns.set(columns::mask, three);
    try {
      check_batch(needs, batch);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({}, {}), "");
  EXPECT_NE(message({.columns = {columns::reference_logp}}, {}).find("reference_logp"), std::string::npos);
  EXPECT_NE(message({.columns = {columns::behavior_logp}}, {}).find("behavior_logp"), std::string::npos);
  EXPECT_NE(message({.critic = true}, {}).find("value"), std::string::npos);
  EXPECT_NE(message({.unit = LossUnit::pair}, {}).find("pairs"), std::string::npos);
  TokenBatch with_old;
  with_old.columns.set(columns::old_logp, three);
  EXPECT_EQ(message({.columns = {columns::behavior_logp}}, with_old), "");
  EXPECT_NE(message({.columns = {columns::behavior_logp, columns::old_logp}}, with_old).find("behavior_logp"),
            std::string::npos);
  TokenBatch with_behavior;
  with_behavior.columns.set(columns::behavior_logp, three);
  EXPECT_NE(message({.columns = {columns::old_logp}}, with_behavior).find("old_logp"), std::string::npos);
  TokenBatch short_column;
  short_column.columns.set(columns::advantage, two);
  EXPECT_NE(message({}, short_column).find("advantage has 2"), std::string::npos);
}

TEST(MetricSums, MergeInOrderAndReadBackWhatWasSent) {
  MetricSums first, second;
  first.add("loss", 1.25, 2);
  first.minimum("logp/min", -3);
  second.add("loss", 0.1, 1);
  second.add("entropy", 1e-300, 0.5);
  second.minimum("logp/min", -4);
  second.maximum("ratio/max", 2);
  MetricSums sum;
  sum.merge(MetricSums::from_bytes(first.to_bytes()));
  sum.merge(MetricSums::from_bytes(second.to_bytes()));
  EXPECT_EQ(sum.means(),
            (Metrics{{"loss", (1.25 + 0.1) / 3}, {"entropy", 2e-300}, {"logp/min", -4}, {"ratio/max", 2}}));
  EXPECT_EQ(MetricSums::from_bytes(sum.to_bytes()).means(), sum.means());
  const std::string bytes = sum.to_bytes();
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(MetricSums::from_bytes(std::string_view(bytes).substr(0, length)), Error) << length;
  EXPECT_THROW(MetricSums::from_bytes(bytes + "x"), Error);
}

}  // namespace
}  // namespace hone
