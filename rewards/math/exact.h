#pragma once
// Exact values of expressions: complex numbers with rational parts of a bounded size.
#include <boost/multiprecision/cpp_int.hpp>
#include <cstdint>
#include <optional>
#include <string_view>

#include "rewards/math/rational_value.h"

namespace hone::math {

// Without expression templates: each operation returns an Integer.
using Integer = boost::multiprecision::number<boost::multiprecision::cpp_int_backend<>, boost::multiprecision::et_off>;

// In lowest terms, bottom > 0.
struct Fraction {
  Integer top = 0, bottom = 1;

  bool operator==(const Fraction& other) const { return top == other.top && bottom == other.bottom; }
  bool is_zero() const { return top.is_zero(); }
  int sign() const { return top.sign(); }
};
Fraction operator+(const Fraction& a, const Fraction& b);
Fraction operator-(const Fraction& a, const Fraction& b);
Fraction operator*(const Fraction& a, const Fraction& b);
// x must not be 0.
Fraction inverse(Fraction a);
Fraction absolute(const Fraction& a);
// Returns the largest integer that is not above it.
Integer floor_of(const Fraction& a);

struct Exact {
  Fraction real, imaginary = {};
  bool random = false;  // depends on a symbol's random value: its sign and size have no meaning

  bool operator==(const Exact& other) const { return real == other.real && imaginary == other.imaginary; }
};

class ExactArithmetic {
 public:
  using Value = Exact;

  explicit ExactArithmetic(Budget& budget) : budget_(budget) {}

  std::optional<Exact> integer(std::string_view digits);
  std::optional<Exact> small(int64_t value) { return Exact{.real = {value}}; }
  std::optional<Exact> symbol(uint64_t draw, bool positive);
  std::optional<Exact> imaginary() { return Exact{.real = {}, .imaginary = {1}}; }
  std::optional<Exact> plus(const Exact& a, const Exact& b);
  std::optional<Exact> times(const Exact& a, const Exact& b);
  std::optional<Exact> inverse(const Exact& a);
  std::optional<Exact> power(Exact base, int64_t exponent);
  // Absolute values, floors, ceilings and roots of constants, if they are rational.
  std::optional<Exact> function(std::string_view name, const Exact& x, int64_t order);

  Outcome outcome = Outcome::value;

 private:
  std::optional<Exact> fail(Outcome why);
  std::optional<Exact> root(const Exact& x, int64_t order);
  std::optional<Integer> root(const Integer& x, int64_t order);
  bool affordable(const Exact& a, const Exact& b);

  Budget& budget_;
};

}  // namespace hone::math
