#pragma once
// The value of an expression at a point: every free variable gets a fixed pseudo-random value, so that two expressions that agree at a few
// points are the same function (Schwartz 1980). Two arithmetics: exact modulo the prime 2^61 - 1 for whatever is rational in its variables (any
// size of number, no rounding), and complex doubles for the rest. Time is linear in the expression; nothing grows with the numbers' size.
#include <complex>
#include <cstdint>
#include <optional>

#include "rewards/math_expr.h"

namespace hone::math {

struct Point {
  uint64_t index = 0;
  int sign = 1;              // which of the two values of \pm
  bool percent = true;       // x% is x/100; otherwise the sign is ignored
  bool names_matter = true;  // otherwise variables are known by the order in which they first appear
};

std::optional<uint64_t> evaluate_modular(const Tree& tree, int32_t node, const Point& point);
std::optional<std::complex<double>> evaluate(const Tree& tree, int32_t node, const Point& point);

constexpr uint64_t prime = (uint64_t{1} << 61) - 1;
constexpr uint64_t multiply_modular(uint64_t a, uint64_t b) { return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b % prime); }

// The digits of a number node without its separators.
std::string literal_text(const Tree& tree, int32_t node);

}  // namespace hone::math
