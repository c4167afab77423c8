#pragma once
// Calibration of multiple choice: how well the probabilities of choices agree with how often they are right. The
// probability of a choice is its likelihood over the sum of the likelihoods of all choices.
#include <cstddef>
#include <span>
#include <vector>

namespace hone {

// softmax of the choices' log-likelihoods.
std::vector<double> choice_probabilities(std::span<const double> logp);

// Brier score of one problem: the sum over choices of (probability - [it is right])^2, in [0, 2] (Brier 1950). Several
// right choices count as one, and the others as one.
double brier_score(std::span<const double> probabilities, std::span<const size_t> right);

// The sum of the probabilities of the right choices.
double right_mass(std::span<const double> probabilities, std::span<const size_t> right);

// The most likely choice's probability, and whether it is right.
struct ConfidenceOutcome {
  double confidence = 0;
  bool right = false;
};

// Expected calibration error over 15 bins of equal width (Guo et al. 2017): the mean over problems of |share of right
// ones - mean confidence| of the bin. The order of the problems does not matter.
double expected_calibration_error(std::vector<ConfidenceOutcome> outcomes);

}  // namespace hone
