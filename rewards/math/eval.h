#pragma once
// Evaluates any expression at a point in floating point, with a bound on the rounding error. Multi-valued functions
// have their principal values, except that odd roots (\sqrt[3]{x}, x^{1/3}) of negative numbers are real. Time is
// linear in the expression.
#include <complex>
#include <optional>

#include "rewards/math/point.h"

namespace hone::math {

struct Approximate {
  std::complex<long double> value;
  long double error = 0;  // an estimate of |value - true value|
  bool real = true;       // the value and all values that it was computed from are real
};

std::optional<Approximate> evaluate(const Tree& tree, int32_t node, const Point& point);

}  // namespace hone::math
