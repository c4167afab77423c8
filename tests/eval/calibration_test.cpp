// Calibration by hand.
#include "eval/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace hone {
namespace {

TEST(Calibration, ProbabilitiesBrierAndMass) {
  const std::vector<double> logp{std::log(0.2), std::log(0.1), std::log(0.1)};
  const std::vector<double> p = choice_probabilities(logp);
  EXPECT_DOUBLE_EQ(p[0], 0.5);
  EXPECT_DOUBLE_EQ(p[1], 0.25);
  EXPECT_DOUBLE_EQ(brier_score(p, std::vector<size_t>{0}), 0.25 + 0.0625 + 0.0625);
  EXPECT_DOUBLE_EQ(brier_score(p, std::vector<size_t>{0, 2}), 2 * 0.0625);
  EXPECT_DOUBLE_EQ(right_mass(p, std::vector<size_t>{0, 2}), 0.75);
  EXPECT_DOUBLE_EQ(choice_probabilities(std::vector<double>{-1e4, -1e4})[1], 0.5);
}

TEST(Calibration, ExpectedErrorOverBins) {
  EXPECT_EQ(expected_calibration_error({}), 0);
  EXPECT_DOUBLE_EQ(expected_calibration_error({{1, true}, {1, true}}), 0);
  EXPECT_DOUBLE_EQ(expected_calibration_error({{1, false}, {0.5, true}}), (1 + 0.5) / 2);
  // One bin: (0.61 + 0.65) / 2 against a share of 1/2.
  EXPECT_NEAR(expected_calibration_error({{0.61, true}, {0.65, false}}), 0.13, 1e-12);
  std::vector<ConfidenceOutcome> many;
  for (int i = 0; i < 100; ++i) many.push_back({std::fmod(i * 0.37, 1.0), i % 3 == 0});
  const double forwards = expected_calibration_error(many);
  std::reverse(many.begin(), many.end());
  EXPECT_EQ(expected_calibration_error(many), forwards);
}

}  // namespace
}  // namespace hone
