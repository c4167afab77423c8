#pragma once
// Exact fractions of 64-bit integers. An operation that overflows or divides by zero returns nothing.
#include <cstdint>
#include <optional>

namespace hone {

struct Rational {
  int64_t top = 0, bottom = 1;  // lowest terms, bottom > 0

  bool operator==(const Rational&) const = default;
};

// top / bottom in lowest terms.
constexpr std::optional<Rational> make_rational(__int128 top, __int128 bottom) {
  if (bottom == 0) return std::nullopt;
  __int128 a = top < 0 ? -top : top, b = bottom < 0 ? -bottom : bottom;
  while (b != 0) {
    const __int128 rest = a % b;
    a = b;
    b = rest;
  }
  if (bottom < 0) a = -a;
  top /= a;
  bottom /= a;
  if (top > INT64_MAX || top < -INT64_MAX || bottom > INT64_MAX) return std::nullopt;
  return Rational{static_cast<int64_t>(top), static_cast<int64_t>(bottom)};
}

// op: + - * /
constexpr std::optional<Rational> apply(char op, const Rational& a, const Rational& b) {
  const __int128 x = a.top, y = b.top, m = a.bottom, n = b.bottom;
  if (op == '*') return make_rational(x * y, m * n);
  if (op == '/') return make_rational(x * n, m * y);
  // A sum of two products of 63-bit numbers fits 128 bits.
  return op == '+' ? make_rational(x * n + y * m, m * n) : make_rational(x * n - y * m, m * n);
}

}  // namespace hone
