#include "posttrain/losses/surrogate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/io/file.h"
#include "core/io/json.h"
#include "posttrain/losses/kl_estimators.h"
#include "tests/support/support.h"

namespace hone {
namespace {

TEST(ClippedSurrogate, IsThePessimisticSideOfTheClip) {
  for (const double difference : {-1.0, -0.3, -0.1, 0.0, 0.1, 0.3, 1.0})
    for (const double advantage : {-1.5, 0.0, 2.0}) {
      const double r = std::exp(difference), clipped = std::clamp(r, 1 - 0.2, 1 + 0.3);
      const PolicyTerm term = clipped_surrogate(log_ratio(difference, 0), -1, advantage, {.low = 0.2, .high = 0.3});
      EXPECT_NEAR(term.loss, -std::min(r * advantage, clipped * advantage), 1e-15);
      const bool cut = r * advantage > clipped * advantage;
      EXPECT_EQ(term.clipped_low || term.clipped_high, cut) << difference << " " << advantage;
      EXPECT_NEAR(term.dratio_term, cut ? 0 : -r * advantage, 1e-15);
      EXPECT_EQ(term.dlogp_term, 0);
    }
}

TEST(ClippedSurrogate, TheDualClipBoundsNegativeAdvantages) {
  const Clip clip{.low = 0.2, .high = 0.3, .delta = 2};
  const PolicyTerm below = clipped_surrogate(log_ratio(std::log(1.9), 0), -1, -1.5, clip);
  EXPECT_NEAR(below.loss, 1.9 * 1.5, 1e-12);
  EXPECT_FALSE(below.cut_delta);
  const PolicyTerm above = clipped_surrogate(log_ratio(3, 0), -1, -1.5, clip);
  EXPECT_EQ(above.loss, 3);
  EXPECT_EQ(above.dratio_term, 0);
  EXPECT_TRUE(above.cut_delta);
  EXPECT_EQ(clipped_surrogate(log_ratio(3, 0), -1, 1.5, clip).loss, -1.3 * 1.5);
}

TEST(Cispo, HoldsItsWeightAndKeepsTheGradient) {
  const LogRatio three = log_ratio(std::log(3.0), 0), half = log_ratio(std::log(0.5), 0);
  const Clip clip{.low = 0.2, .high = 2};
  EXPECT_NEAR(cispo(three, -0.5, 1.5, clip).dlogp_term, -2 * 1.5, 1e-12);
  EXPECT_NEAR(cispo(three, -0.5, 1.5, clip).loss, 2 * 1.5 * 0.5, 1e-12);
  EXPECT_EQ(cispo(three, -0.5, 1.5, clip).dratio_term, 0);
  EXPECT_TRUE(cispo(three, -0.5, 1.5, clip).clipped_high);
  EXPECT_NEAR(cispo(half, -0.5, -1.5, clip).dlogp_term, 0.5 * 1.5, 1e-12);
  EXPECT_NEAR(cispo_relative(three, -0.5, 1.5, clip).dlogp_term, -3 * 1.5, 1e-12);  // 1 + 2
  EXPECT_NEAR(cispo_relative(half, -0.5, -1.5, clip).dlogp_term, 0.8 * 1.5, 1e-12);
  EXPECT_TRUE(cispo_relative(half, -0.5, -1.5, clip).clipped_low);
}

TEST(Kl, EstimatesAsSchulmanDoes) {
  const Term k1 = kl_k1(-1, -1.5), k2 = kl_k2(-1, -1.5);
  EXPECT_EQ(k1.loss, 0.5);
  EXPECT_EQ(k1.dlogp, 1);
  EXPECT_EQ(k2.loss, 0.125);
  EXPECT_EQ(k2.dlogp, 0.5);
  EXPECT_EQ(kl_estimators().names(), (std::vector<std::string>{"k1", "k2", "k3"}));
}

TEST(KlK3, IsZeroAtTheReferenceAndPositiveElsewhere) {
  EXPECT_EQ(kl_k3(-1.25, -1.25).loss, 0);
  EXPECT_EQ(kl_k3(-1.25, -1.25).dlogp, 0);
  EXPECT_NEAR(kl_k3(-1, -1.5).loss, std::exp(-0.5) + 0.5 - 1, 1e-15);
  EXPECT_NEAR(kl_k3(-1, -1.5).dlogp, 1 - std::exp(-0.5), 1e-15);
  EXPECT_GT(kl_k3(-2, -1.5).loss, 0);
}

TEST(LogRatio, StopsAtItsLimit) {
  EXPECT_EQ(log_ratio(0, 1000).value, -20);
  EXPECT_FALSE(log_ratio(0, 1000).live);
  EXPECT_TRUE(std::isfinite(clipped_surrogate(log_ratio(0, -1000), 0, -1, Clip()).loss));
  EXPECT_EQ(clipped_surrogate(log_ratio(0, -1000), 0, -1, Clip()).dratio_term, 0);
}

TEST(SamplingDifference, CountsMaskedTokensOnly) {
  const float logp[] = {-1, -2, -3}, behavior[] = {-9, -2, -3.5f}, mask[] = {0, 1, 1};
  TokenBatch batch;
  batch.columns.set(columns::logp, logp);
  batch.columns.set(columns::behavior_logp, behavior);
  batch.columns.set(columns::mask, mask);
  MetricSums sums;
  add_sampling_difference(batch, sums);
  EXPECT_EQ(sums.means(), (Metrics{{"sampling/sampling_logp_difference/max", 0.5},
                                   {"sampling/sampling_logp_difference/mean", 0.25}}));
}

// The difference to old_logp if the sample has it.
TEST(SamplingDifference, IsOfTheOldLogProbs) {
  const float logp[] = {-1, -2}, old_logp[] = {-1, -4}, behavior[] = {-1, -3}, mask[] = {1, 1};
  TokenBatch batch;
  batch.columns.set(columns::logp, logp);
  batch.columns.set(columns::old_logp, old_logp);
  batch.columns.set(columns::behavior_logp, behavior);
  batch.columns.set(columns::mask, mask);
  MetricSums sums;
  add_sampling_difference(batch, sums);
  EXPECT_EQ(sums.means().at("sampling/sampling_logp_difference/max"), 1);
}

// Numbers from another framework's tests: token losses without a clip, and clipped at 0.1.
TEST(ClippedSurrogate, AgreesWithPublishedTokenLosses) {
  HONE_SHARED_OR_SKIP(path, "vectors/a5/functions_2026.json");
  const Json all = parse_json(read_file(path), path.string());
  const Json& section = all.at("compute_policy_gradient_loss");
  const auto data = [](const Json& tensor) { return tensor.at("data").as_array(); };
  const Json& inputs = section.at("inputs");
  const JsonArray advantages = data(inputs.at("raw_rewards_or_advantages")), logp = data(inputs.at("policy_log_probs")),
                  old_logp = data(inputs.at("old_log_probs"));
  const JsonArray free_loss = data(section.at("cases").at("noclip")),
                  clipped_loss = data(section.at("cases").at("grpo"));
  const double cliprange = inputs.at("cliprange").as_double();
  ASSERT_EQ(logp.size(), 20u);
  for (size_t i = 0; i < logp.size(); ++i) {
    const LogRatio ratio = log_ratio(logp[i].as_double(), old_logp[i].as_double());
    const double advantage = advantages[i / 10].as_double();
    EXPECT_NEAR(clipped_surrogate(ratio, 0, advantage, {.low = 1, .high = 1e9}).loss, free_loss[i].as_double(), 1e-5);
    EXPECT_NEAR(clipped_surrogate(ratio, 0, advantage, {.low = cliprange, .high = cliprange}).loss,
                clipped_loss[i].as_double(), 1e-5);
  }
}

}  // namespace
}  // namespace hone
