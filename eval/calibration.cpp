#include "eval/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/check.h"

namespace hone {

std::vector<double> choice_probabilities(std::span<const double> logp) {
  std::vector<double> out(logp.begin(), logp.end());
  if (out.empty()) return out;
  const double largest = *std::max_element(out.begin(), out.end());
  double sum = 0;
  for (double& value : out) sum += value = std::exp(value - largest);
  for (double& value : out) value /= sum;
  return out;
}

double brier_score(std::span<const double> probabilities, std::span<const size_t> right) {
  HONE_CHECK(!right.empty(), "brier score: no choice is right");
  if (right.size() > 1) {
    const double missing = 1 - right_mass(probabilities, right);
    return 2 * missing * missing;
  }
  double out = 0;
  for (size_t c = 0; c < probabilities.size(); ++c) {
    const double difference = probabilities[c] - (c == right.front() ? 1 : 0);
    out += difference * difference;
  }
  return out;
}

double right_mass(std::span<const double> probabilities, std::span<const size_t> right) {
  double out = 0;
  for (const size_t choice : right) out += probabilities[choice];
  return out;
}

double expected_calibration_error(std::vector<ConfidenceOutcome> outcomes) {
  constexpr size_t num_bins = 15;
  struct Bin {
    double confidence = 0, right = 0;
  };
  std::array<Bin, num_bins> bins{};
  // Sorted, so that the bits of the sums do not depend on the order.
  std::sort(outcomes.begin(), outcomes.end(), [](const auto& a, const auto& b) { return a.confidence < b.confidence; });
  for (const ConfidenceOutcome& one : outcomes) {
    const double place = std::ceil(one.confidence * num_bins) - 1;
    Bin& bin = bins[static_cast<size_t>(std::clamp(place, 0.0, static_cast<double>(num_bins - 1)))];
    bin.confidence += one.confidence;
    bin.right += one.right ? 1 : 0;
  }
  double out = 0;
  for (const Bin& bin : bins) out += std::abs(bin.right - bin.confidence);
  return outcomes.empty() ? 0 : out / static_cast<double>(outcomes.size());
}

}  // namespace hone
