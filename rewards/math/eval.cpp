#include "rewards/math/eval.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <numbers>

#include "rewards/answers/text.h"
#include "rewards/answers/units.h"

namespace hone::math {

namespace {

using Real = long double;
using Complex = std::complex<Real>;
using Result = std::optional<Approximate>;

constexpr Real epsilon = std::numeric_limits<Real>::epsilon();
constexpr Real pi = std::numbers::pi_v<Real>;

// Returns a result with the rounding error of the operation added. Infinities give no result. Negative zeros and
// rounding noise next to the real axis become zero, since branch cuts lie there (the root of -1 is i).
Result rounded(Complex z, Real error, bool real) {
  if (!std::isfinite(z.real()) || !std::isfinite(z.imag())) return std::nullopt;
  error += 2 * epsilon * std::abs(z);
  if (!std::isfinite(error)) return std::nullopt;
  const Real imaginary = std::fabs(z.imag()) <= 4 * error ? 0 : z.imag();
  return Approximate{.value = {z.real() + 0.0L, imaginary}, .error = error, .real = real && imaginary == 0};
}

Complex raise(Complex base, Complex exponent) {
  if (base.imag() == 0 && exponent.imag() == 0 && (base.real() >= 0 || std::trunc(exponent.real()) == exponent.real()))
    return std::pow(base.real(), exponent.real());
  return std::pow(base, exponent);
}

std::optional<Complex> apply(std::string_view name, Complex x) {
  if (name.empty() || name == "abs") return std::abs(x);
  if (name == "sqrt") return std::sqrt(x);
  if (name == "sin") return std::sin(x);
  if (name == "cos") return std::cos(x);
  if (name == "tan") return std::tan(x);
  if (name == "cot") return Complex(1) / std::tan(x);
  if (name == "sec") return Complex(1) / std::cos(x);
  if (name == "csc") return Complex(1) / std::sin(x);
  if (name == "arcsin" || name == "asin") return std::asin(x);
  if (name == "arccos" || name == "acos") return std::acos(x);
  if (name == "arctan" || name == "atan") return std::atan(x);
  if (name == "sinh") return std::sinh(x);
  if (name == "cosh") return std::cosh(x);
  if (name == "tanh") return std::tanh(x);
  if (name == "ln" || name == "log") return x == Complex(0) ? std::nullopt : std::optional(std::log(x));
  if (name == "exp") return std::exp(x);
  return std::nullopt;
}

// The error of a function's value: the change of the value when its argument changes by its error.
Result apply(std::string_view name, const Approximate& x) {
  const auto value = apply(name, x.value), above = apply(name, x.value + x.error),
             below = apply(name, x.value - x.error);
  if (!value) return std::nullopt;
  return rounded(*value, std::max(above ? std::abs(*above - *value) : 0, below ? std::abs(*below - *value) : 0),
                 x.real);
}

// A value within its rounding error of an integer counts as that integer.
Result whole_part(std::string_view name, const Approximate& x) {
  if (x.value.imag() != 0) return std::nullopt;
  const Real nearest = std::round(x.value.real());
  if (std::fabs(x.value.real() - nearest) <= 4 * x.error) return rounded(nearest, 0, x.real);
  return rounded(name == "lfloor" ? std::floor(x.value.real()) : std::ceil(x.value.real()), 0, x.real);
}

Result factorial(const Approximate& x) {
  const Real top = x.value.real();
  if (x.value.imag() != 0 || top > 1000 || (top < 0 && std::trunc(top) == top)) return std::nullopt;
  const Real value = std::tgamma(top + 1);
  return rounded(value, std::fabs(std::tgamma(top + 1 + x.error) - value) + 64 * epsilon * std::fabs(value), x.real);
}

Result plus(const Approximate& a, const Approximate& b, Real sign) {
  return rounded(a.value + sign * b.value, a.error + b.error, a.real && b.real);
}

Result times(const Approximate& a, const Approximate& b) {
  return rounded(a.value * b.value, std::abs(a.value) * b.error + std::abs(b.value) * a.error, a.real && b.real);
}

Result divided(const Approximate& a, const Approximate& b) {
  if (std::abs(b.value) <= 4 * b.error || b.value == Complex(0)) return std::nullopt;
  const Complex out = a.value / b.value;
  return rounded(out, (a.error + std::abs(out) * b.error) / std::abs(b.value), a.real && b.real);
}

Result power(const Approximate& base, const Approximate& exponent) {
  if (base.value == Complex(0) && exponent.value.real() <= 0 && exponent.value != Complex(0)) return std::nullopt;
  const Complex out = raise(base.value, exponent.value);
  const Real size = std::abs(base.value);
  const bool real = base.real && exponent.real;
  if (size == 0) return rounded(out, base.error, real);
  return rounded(out,
                 std::abs(out) * (std::abs(exponent.value) * (base.error / size + epsilon) +
                                  std::fabs(std::log(size)) * exponent.error),
                 real);
}

// x^{p/q} with an odd q has the real root for a negative x.
Result odd_root(const Approximate& base, int64_t top, int64_t bottom) {
  if (base.value.imag() != 0 || base.value.real() >= 0)
    return power(base, {.value = static_cast<Real>(top) / static_cast<Real>(bottom), .error = epsilon});
  const Result size = odd_root({.value = -base.value, .error = base.error, .real = base.real}, top, bottom);
  return size && top % 2 != 0 ? rounded(-size->value, size->error, size->real) : size;
}

class Evaluator {
 public:
  Evaluator(const Tree& tree, const Point& point) : tree_(tree), point_(point) {}

  Result run(int32_t node) {
    const Node& n = tree_.at(node);
    if (n.kind == Kind::number || n.kind == Kind::repeating) return literal(node);
    if (n.kind == Kind::based) return based(node);
    if (n.kind == Kind::symbol || n.kind == Kind::opaque) return symbol(node);
    if (n.count == 0 || n.count > 2) return std::nullopt;
    const Result a = run(n.first);
    if (!a) return a;
    if (n.count == 1) return unary(node, *a);
    const int32_t second = tree_.at(n.first).next;
    if (n.kind == Kind::power || (n.kind == Kind::function && bare(tree_.text(node)) == "sqrt"))
      return rooted(n, *a, second);
    const Result b = run(second);
    if (!b) return b;
    if (n.kind == Kind::add) return plus(*a, *b, 1);
    if (n.kind == Kind::plus_minus) return plus(*a, *b, sign(n));
    if (n.kind == Kind::multiply) return times(*a, *b);
    if (n.kind == Kind::divide) return divided(*a, *b);
    return std::nullopt;
  }

 private:
  Real sign(const Node& n) const { return static_cast<Real>(point_.sign * (n.op == '-' ? -1 : 1)); }

  Result unary(int32_t node, const Approximate& a) const {
    const Node& n = tree_.at(node);
    if (n.kind == Kind::negate) return rounded(-a.value, a.error, a.real);
    if (n.kind == Kind::plus_minus) return rounded(sign(n) * a.value, a.error, a.real);
    if (n.kind == Kind::percent) return point_.percent ? divided(a, {.value = 100}) : a;
    if (n.kind == Kind::degree) return times(a, {.value = pi / 180, .error = epsilon * pi / 180});
    if (n.kind == Kind::scale) return times(a, {.value = std::pow(10.0L, static_cast<Real>(n.columns))});
    if (n.kind == Kind::unit) return point_.units ? measured(node, a) : a;
    if (n.kind == Kind::factorial) return factorial(a);
    if (n.kind != Kind::function) return std::nullopt;
    const std::string_view name = bare(tree_.text(node));
    return name == "lfloor" || name == "lceil" ? whole_part(name, a) : apply(name, a);
  }
  Result measured(int32_t node, const Approximate& a) const {
    const std::optional<Unit> unit = read_unit(tree_.text(node));
    if (!unit) return std::nullopt;
    const Real factor = static_cast<Real>(unit->factor.top) / static_cast<Real>(unit->factor.bottom) *
                        std::pow(pi, static_cast<Real>(unit->pi_power));
    return times(a, {.value = factor, .error = epsilon * factor});
  }
  // Computes base^exponent, or the root of the given order.
  Result rooted(const Node& n, const Approximate& base, int32_t second) {
    const Node& exponent = tree_.at(second);
    const bool root = n.kind == Kind::function, fraction = !root && exponent.kind == Kind::divide;
    const auto top = root ? std::optional<int64_t>(1) : fraction ? small_integer(tree_, exponent.first) : std::nullopt;
    const auto bottom = root       ? small_integer(tree_, second)
                        : fraction ? small_integer(tree_, tree_.at(exponent.first).next)
                                   : std::nullopt;
    if (top && bottom && *bottom > 0 && *bottom % 2 != 0) return odd_root(base, *top, *bottom);
    Result b = run(second);
    if (b && root) b = divided({.value = 1}, *b);
    return b ? power(base, *b) : b;
  }
  Result symbol(int32_t node) const {
    const std::string_view name = bare(tree_.text(node));
    if (name == "pi") return rounded(pi, 0, true);
    if (name == "e") return rounded(std::numbers::e_v<Real>, 0, true);
    if (name == "i") return rounded(Complex(0, 1), 0, false);
    return Approximate{.value = draw_real(tree_, node, point_)};
  }
  Result literal(int32_t node) const {
    const std::optional<Literal> text = read_literal(tree_, node);
    if (!text) return std::nullopt;
    std::string digits = text->digits;
    int64_t exponent = text->exponent;
    for (size_t k = 0; k < 40 && !text->repeat.empty(); k += text->repeat.size()) {
      digits += text->repeat;
      exponent -= static_cast<int64_t>(text->repeat.size());
    }
    digits += "e" + std::to_string(exponent);
    Real value = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc()) return std::nullopt;
    return Approximate{.value = value, .error = exponent == 0 && value < 0x1p62L ? 0 : epsilon * value};
  }
  Result based(int32_t node) const {
    const auto base = static_cast<Real>(tree_.at(node).columns);
    Real value = 0, scale = 1;
    bool fraction = false;
    for (const char c : tree_.text(node)) {
      if (c == '.') {
        fraction = true;
        continue;
      }
      value = value * base + static_cast<Real>(digit_value(c));
      scale *= fraction ? base : 1;
    }
    return rounded(value / scale, 0, true);
  }

  const Tree& tree_;
  const Point& point_;
};

}  // namespace

std::optional<Approximate> evaluate(const Tree& tree, int32_t node, const Point& point) {
  return Evaluator(tree, point).run(node);
}

}  // namespace hone::math
