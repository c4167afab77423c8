#include "rewards/math/exact.h"

#include <algorithm>
#include <utility>

namespace hone::math {

namespace {

constexpr int64_t max_bits = int64_t{1} << 15;

int64_t bits(const Integer& x) { return x.is_zero() ? 0 : static_cast<int64_t>(msb(x.sign() < 0 ? Integer(-x) : x)); }
int64_t bits(const Fraction& x) { return bits(x.top) + bits(x.bottom); }
int64_t bits(const Exact& x) { return x.imaginary.is_zero() ? bits(x.real) : bits(x.real) + bits(x.imaginary) + 1; }

Fraction lowest(Integer top, Integer bottom) {
  if (bottom == 1) return {std::move(top), std::move(bottom)};
  const Integer common = gcd(top, bottom);
  return {top / common, bottom / common};
}

Fraction negative(const Fraction& a) { return {-a.top, a.bottom}; }

}  // namespace

Fraction operator+(const Fraction& a, const Fraction& b) {
  if (a.bottom == b.bottom) return lowest(a.top + b.top, a.bottom);
  return lowest(a.top * b.bottom + b.top * a.bottom, a.bottom * b.bottom);
}

Fraction operator-(const Fraction& a, const Fraction& b) { return a + negative(b); }

Fraction operator*(const Fraction& a, const Fraction& b) { return lowest(a.top * b.top, a.bottom * b.bottom); }

Fraction inverse(Fraction a) {
  std::swap(a.top, a.bottom);
  if (a.bottom.sign() >= 0) return a;
  return {-a.top, -a.bottom};
}

Fraction absolute(const Fraction& a) { return a.sign() < 0 ? negative(a) : a; }

Integer floor_of(const Fraction& a) {
  Integer quotient, rest;
  divide_qr(a.top, a.bottom, quotient, rest);
  return rest.sign() < 0 ? Integer(quotient - 1) : quotient;
}

std::optional<Exact> ExactArithmetic::fail(Outcome why) {
  outcome = why;
  return std::nullopt;
}

bool ExactArithmetic::affordable(const Exact& a, const Exact& b) {
  const int64_t m = bits(a), n = bits(b);
  return m + n <= max_bits && budget_.spend((1 + m / 64) * (1 + n / 64));
}

std::optional<Exact> ExactArithmetic::integer(std::string_view digits) {
  const auto words = static_cast<int64_t>(digits.size() / 19 + 1);
  if (words * 64 > max_bits || !budget_.spend(words * words)) return fail(Outcome::too_large);
  const size_t first = std::min(digits.find_first_not_of('0'), digits.size());  // a leading zero would mean octal
  return Exact{.real = {first == digits.size() ? Integer(0) : Integer(std::string(digits.substr(first)))}};
}

std::optional<Exact> ExactArithmetic::symbol(uint64_t draw, bool positive) {
  const auto value = static_cast<int64_t>(draw >> 20) + 2;
  return Exact{.real = {!positive && (draw & 1) != 0 ? -value : value}, .random = true};
}

std::optional<Exact> ExactArithmetic::plus(const Exact& a, const Exact& b) {
  if (!affordable(a, b)) return fail(Outcome::too_large);
  return Exact{.real = a.real + b.real, .imaginary = a.imaginary + b.imaginary, .random = a.random || b.random};
}

std::optional<Exact> ExactArithmetic::times(const Exact& a, const Exact& b) {
  if (!affordable(a, b)) return fail(Outcome::too_large);
  Exact out{.real = a.real * b.real, .random = a.random || b.random};
  if (a.imaginary.is_zero() && b.imaginary.is_zero()) return out;
  out.real = out.real - a.imaginary * b.imaginary;
  out.imaginary = a.real * b.imaginary + a.imaginary * b.real;
  return out;
}

std::optional<Exact> ExactArithmetic::inverse(const Exact& a) {
  if (!affordable(a, a)) return fail(Outcome::too_large);
  if (a.real.is_zero() && a.imaginary.is_zero()) return fail(Outcome::undefined);
  if (a.imaginary.is_zero()) return Exact{.real = math::inverse(a.real), .random = a.random};
  const Fraction scale = math::inverse(a.real * a.real + a.imaginary * a.imaginary);
  return Exact{.real = a.real * scale, .imaginary = negative(a.imaginary) * scale, .random = a.random};
}

std::optional<Exact> ExactArithmetic::power(Exact base, int64_t exponent) {
  if (exponent < 0) {
    const std::optional<Exact> reciprocal = inverse(base);
    return reciprocal ? power(*reciprocal, -exponent) : std::nullopt;
  }
  if (absolute(base.real) + absolute(base.imaginary) == Fraction{1}) exponent %= 4;  // 1, -1, i, -i
  const int64_t size = bits(base);
  if (size > 0 && exponent > max_bits / size) return fail(Outcome::too_large);
  std::optional<Exact> out = small(1);
  for (; out; base = *times(base, base)) {
    if ((exponent & 1) != 0) out = times(*out, base);
    exponent >>= 1;
    if (exponent == 0 || !affordable(base, base)) break;
  }
  return exponent == 0 ? out : fail(Outcome::too_large);
}

std::optional<Exact> ExactArithmetic::function(std::string_view name, const Exact& x, int64_t order) {
  if (x.random) return fail(Outcome::irrational);
  const bool real = x.imaginary.is_zero();
  if (name.empty() || name == "abs")
    return real ? Exact{.real = absolute(x.real)} : root({.real = x.real * x.real + x.imaginary * x.imaginary}, 2);
  if (name == "sqrt") return root(x, order);
  if (real && name == "lfloor") return Exact{.real = {floor_of(x.real)}};
  if (real && name == "lceil") return Exact{.real = {-floor_of(negative(x.real))}};
  return fail(Outcome::irrational);
}

// For a negative number returns the negative root if the order is odd, and i times a root if it is 2.
std::optional<Exact> ExactArithmetic::root(const Exact& x, int64_t order) {
  const bool negative = x.real.sign() < 0;
  if (!x.imaginary.is_zero() || order < 2 || order > 64 || (negative && order % 2 == 0 && order != 2))
    return fail(Outcome::irrational);
  const std::optional<Integer> top = root(absolute(x.real).top, order);
  const std::optional<Integer> bottom = top ? root(x.real.bottom, order) : std::nullopt;
  if (!bottom) return std::nullopt;
  const Fraction size{*top, *bottom};
  if (!negative) return Exact{.real = size};
  return order == 2 ? Exact{.real = {}, .imaginary = size} : Exact{.real = math::negative(size)};
}

// Returns the integer whose power x is, by bisection; nothing if there is none.
std::optional<Integer> ExactArithmetic::root(const Integer& x, int64_t order) {
  const int64_t size = bits(x), words = 1 + size / 64;
  if (!budget_.spend(words * words * (1 + size / order))) {
    outcome = Outcome::too_large;
    return std::nullopt;
  }
  Integer low = 0, high = Integer(1) << static_cast<unsigned>(size / order + 1);
  while (low < high) {
    const Integer middle = (low + high) >> 1;
    if (pow(middle, static_cast<unsigned>(order)) < x)
      low = middle + 1;
    else
      high = middle;
  }
  if (pow(low, static_cast<unsigned>(order)) == x) return low;
  outcome = Outcome::irrational;
  return std::nullopt;
}

}  // namespace hone::math
