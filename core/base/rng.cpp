#include "core/base/rng.h"

#include <cmath>
#include <numbers>

namespace hone {

double Rng::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

}  // namespace hone
