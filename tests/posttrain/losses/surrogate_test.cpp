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
      const PolicyTerm term = clipped_surrogate({.ratio = log_ratio(difference, 0), .logp = -1, .advantage = advantage},
                                                {.low = 0.2, .high = 0.3});
      EXPECT_NEAR(term.loss, -std::min(r * advantage, clipped * advantage), 1e-15);
      const bool cut = r * advantage > clipped * advantage;
      EXPECT_EQ(term.clipped_low || term.clipped_high, cut) << difference << " " << advantage;
      EXPECT_NEAR(term.dratio_term, cut ? 0 : -r * advantage, 1e-15);
      EXPECT_EQ(term.dlogp_term, 0);
    }
}

TEST(ClippedSurrogate, TheDualClipBoundsNegativeAdvantages) {
  const Clip clip{.low = 0.2, .high = 0.3, .delta = 2};
  const PolicyTerm below =
      clipped_surrogate({.ratio = log_ratio(std::log(1.9), 0), .logp = -1, .advantage = -1.5}, clip);
  EXPECT_NEAR(below.loss, 1.9 * 1.5, 1e-12);
  EXPECT_FALSE(below.cut_delta);
  const PolicyTerm above = clipped_surrogate({.ratio = log_ratio(3, 0), .logp = -1, .advantage = -1.5}, clip);
  EXPECT_EQ(above.loss, 3);
  EXPECT_EQ(above.dratio_term, 0);
  EXPECT_TRUE(above.cut_delta);
  EXPECT_EQ(clipped_surrogate({.ratio = log_ratio(3, 0), .logp = -1, .advantage = 1.5}, clip).loss, -1.3 * 1.5);
}

TEST(Cispo, HoldsItsWeightAndKeepsTheGradient) {
  const LogRatio three = log_ratio(std::log(3.0), 0), half = log_ratio(std::log(0.5), 0);
  const Clip clip{.low = 0.2, .high = 2};
  EXPECT_NEAR(cispo({.ratio = three, .logp = -0.5, .advantage = 1.5}, clip).dlogp_term, -2 * 1.5, 1e-12);
  EXPECT_NEAR(cispo({.ratio = three, .logp = -0.5, .advantage = 1.5}, clip).loss, 2 * 1.5 * 0.5, 1e-12);
  EXPECT_EQ(cispo({.ratio = three, .logp = -0.5, .advantage = 1.5}, clip).dratio_term, 0);
  EXPECT_TRUE(cispo({.ratio = three, .logp = -0.5, .advantage = 1.5}, clip).clipped_high);
  EXPECT_NEAR(cispo({.ratio = half, .logp = -0.5, .advantage = -1.5}, clip).dlogp_term, 0.5 * 1.5, 1e-12);
  EXPECT_NEAR(cispo_relative({.ratio = three, .logp = -0.5, .advantage = 1.5}, clip).dlogp_term, -3 * 1.5,
              1e-12);  // 1 + 2
  EXPECT_NEAR(cispo_relative({.ratio = half, .logp = -0.5, .advantage = -1.5}, clip).dlogp_term, 0.8 * 1.5, 1e-12);
  EXPECT_TRUE(cispo_relative({.ratio = half, .logp = -0.5, .advantage = -1.5}, clip).clipped_low);
}

// The slope of the gate is that of its formula, 1 at r = 1 whatever the temperature, and never of another sign.
TEST(Sapo, IsASoftGateOfTheRatio) {
  const Clip clip{.tau_positive = 2, .tau_negative = 4};
  for (const double advantage : {1.5, -1.5, 0.0})
    for (const double difference : {-2.0, -0.1, 0.0, 0.1, 2.0}) {
      const double tau = advantage > 0 ? 2 : 4, h = 1e-6;
      const auto at = [&](double d) { return sapo({.ratio = log_ratio(d, 0), .advantage = advantage}, clip); };
      const PolicyTerm term = at(difference);
      const double r = std::exp(difference);
      EXPECT_NEAR(term.loss, -advantage * 4 / tau / (1 + std::exp(-tau * (r - 1))), 1e-12);
      EXPECT_NEAR(term.dratio_term, (at(difference + h).loss - at(difference - h).loss) / (2 * h), 1e-8);
      EXPECT_EQ(term.dlogp_term, 0);
      EXPECT_LE(term.dratio_term * advantage, 0);
    }
  EXPECT_NEAR(sapo({.advantage = 1.5}, clip).dratio_term, -1.5, 1e-15);
  EXPECT_NEAR(sapo({.advantage = -1.5}, clip).dratio_term, 1.5, 1e-15);
}

// A token outside its trust region keeps its gradient if the advantage pulls it back.
TEST(Dppo, DropsTokensThatHaveLeftTheRegionInTheAdvantagesDirection) {
  const auto at = [](Surrogate surrogate, double p, double old_p, double advantage) {
    const double logp = std::log(p), old_logp = std::log(old_p);
    return surrogate({.ratio = log_ratio(logp, old_logp), .logp = logp, .old_logp = old_logp, .advantage = advantage},
                     {.low = 0.1, .high = 0.2, .delta = 1.5});
  };
  for (const Surrogate surrogate : {dppo_tv, dppo_kl}) {
    EXPECT_TRUE(at(surrogate, 0.95, 0.3, 1).clipped_high);
    EXPECT_EQ(at(surrogate, 0.95, 0.3, 1).dlogp_term, 0);
    EXPECT_EQ(at(surrogate, 0.95, 0.3, -1).dlogp_term, 1.5);  // the ratio is above delta
    EXPECT_TRUE(at(surrogate, 0.95, 0.3, -1).cut_delta);
    EXPECT_TRUE(at(surrogate, 0.3, 0.95, -1).clipped_low);
    EXPECT_NEAR(at(surrogate, 0.3, 0.95, 1).dlogp_term, -0.3 / 0.95, 1e-12);
    EXPECT_NEAR(at(surrogate, 0.5, 0.45, 1).dlogp_term, -0.5 / 0.45, 1e-12);
    // A rare token may become ten times as probable.
    EXPECT_FALSE(at(surrogate, 1e-3, 1e-4, 1).clipped_high);
  }
  EXPECT_TRUE(at(dppo_tv, 0.55, 0.3, 1).clipped_high);
  const double kl = 0.3 * std::log(0.3 / 0.55) + 0.7 * std::log(0.7 / 0.45);
  EXPECT_LT(kl, 0.2);
  EXPECT_FALSE(at(dppo_kl, 0.55, 0.3, 1).clipped_high);
  EXPECT_TRUE(at(dppo_kl, 0.3, 0.6, -1).clipped_low);
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
  EXPECT_TRUE(
      std::isfinite(clipped_surrogate({.ratio = log_ratio(0, -1000), .logp = 0, .advantage = -1}, Clip()).loss));
  EXPECT_EQ(clipped_surrogate({.ratio = log_ratio(0, -1000), .logp = 0, .advantage = -1}, Clip()).dratio_term, 0);
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
    EXPECT_NEAR(clipped_surrogate({.ratio = ratio, .logp = 0, .advantage = advantage}, {.low = 1, .high = 1e9}).loss,
                free_loss[i].as_double(), 1e-5);
    EXPECT_NEAR(
        clipped_surrogate({.ratio = ratio, .logp = 0, .advantage = advantage}, {.low = cliprange, .high = cliprange})
            .loss,
        clipped_loss[i].as_double(), 1e-5);
  }
}

}  // namespace
}  // namespace hone
