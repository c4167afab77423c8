#include "rewards/math/value.h"

#include <algorithm>
#include <cmath>

#include "rewards/math/eval.h"
#include "rewards/math/exact.h"
#include "rewards/math/modular.h"

namespace hone::math {

namespace {

using Real = long double;

constexpr uint64_t num_proportional_points = 3;

constexpr Real relative_tolerance = 1e-15L, cancellation_tolerance = 1e-10L, absolute_tolerance = 1e-15L;

// Returns true if two values differ by no more than rounding explains. After cancellation only ten digits of a number
// count.
bool close(const Approximate& x, const Approximate& y) {
  const Real size = std::max(std::abs(x.value), std::abs(y.value)), difference = std::abs(x.value - y.value);
  const Real rounding = std::min(32 * (x.error + y.error), cancellation_tolerance * size + absolute_tolerance);
  return difference <= relative_tolerance * size + rounding;
}

// A point of a floating-point comparison. At an everyday point both sides of equal functions can be computed, and
// either both are real or neither is. At other points one side may overflow or leave the real numbers alone (\sqrt{xy}
// and \sqrt{x}\sqrt{y} for negative x and y).
struct Probe {
  Point point;
  bool everyday = true;
};

std::vector<Probe> probes(const Point& shape, const std::vector<uint64_t>& variables) {
  std::vector<Probe> out;
  const auto add = [&](Real scale, Signs signs, bool everyday, uint64_t negative_variable = 0) {
    Point point = shape;
    point.index = out.size();
    point.scale = scale;
    point.signs = signs;
    point.negative_variable = negative_variable;
    out.push_back({point, everyday});
  };
  add(1, Signs::positive, true);
  if (variables.empty()) return out;
  constexpr size_t most_single = 6;
  add(1, Signs::positive, true);
  for (size_t v = 0; v < std::min(variables.size(), most_single); ++v) add(1, Signs::one_negative, true, variables[v]);
  add(1, Signs::negative, false);
  add(1, Signs::mixed, false);
  // Points far from zero, where |x - 50| is not 50 - x.
  for (const Real scale : {10.0L, 100.0L, 1000.0L}) {
    add(scale, Signs::positive, false);
    add(scale, Signs::mixed, false);
  }
  return out;
}

// Rounds to the precision's decimals, half away from zero.
Integer rounded(const Fraction& x, const Integer& unit) {
  const Integer size = floor_of(absolute(x) * Fraction{unit} + Fraction{1, 2});
  return x.sign() < 0 ? Integer(-size) : size;
}

Fraction norm(const Exact& x) { return x.real * x.real + x.imaginary * x.imaginary; }

}  // namespace

bool is_constant(const Part& part) {
  if (part.kind() == Kind::symbol) return is_constant_name(part.text());
  if (part.kind() == Kind::word) return false;
  for (const Part& child : part.children())
    if (!is_constant(child)) return false;
  return true;
}

// True for a segment such as AB.
static bool names_points(const Part& part) {
  if (part.kind() == Kind::symbol) return part.text().size() == 1 && part.text()[0] >= 'A' && part.text()[0] <= 'Z';
  const std::vector<Part> sides = part.children();
  return part.kind() == Kind::multiply && names_points(sides[0]) && names_points(sides[1]);
}

bool is_name(const Part& part) {
  const Node& n = part.get();
  if (n.kind == Kind::symbol || n.kind == Kind::word || n.kind == Kind::opaque) return true;
  if (n.kind == Kind::multiply) {
    if (names_points(part)) return true;
    const std::vector<Part> sides = part.children();
    if (n.applied) return sides[1].kind() == Kind::number || sides[1].kind() == Kind::tuple || is_name(sides[1]);
    return (is_name(sides[0]) && sides[0].text().starts_with('\\')) && is_name(sides[1]);
  }
  if (n.kind != Kind::tuple && n.kind != Kind::ratio) return false;
  const std::vector<Part> items = part.children();
  return std::all_of(items.begin(), items.end(), is_name);
}

Point ValueComparison::point(const Part& part, const Point& shape) const {
  Point out = shape;
  out.seed = seed_;
  out.sign = part.sign < 0 ? -1 : 1;
  out.names_matter = !policy_.any_names;
  return out;
}

bool ValueComparison::same(const Part& g, const Part& a, bool percent, bool units) {
  const Point shape{.percent = percent, .units = units};
  bool equal = false;
  Outcome outcome = compare_exactly(g, a, shape, equal);
  if (outcome == Outcome::too_large) outcome = compare_modulo_primes(g, a, shape, equal);
  if (outcome == Outcome::irrational) equal = compare_approximately(g, a, shape);
  return equal || ((outcome == Outcome::value || outcome == Outcome::irrational) && rounds_alike(g, a, shape));
}

Outcome ValueComparison::compare_exactly(const Part& g, const Part& a, const Point& shape, bool& equal) {
  constexpr uint64_t num_points = 2;
  ExactArithmetic arithmetic(budget_);
  for (uint64_t k = 0; k < num_points; ++k) {
    Point at = shape;
    at.index = k;
    const auto x = RationalEvaluator(arithmetic, *g.tree, point(g, at)).run(g.node);
    if (arithmetic.outcome == Outcome::undefined || arithmetic.outcome == Outcome::irrational)
      return arithmetic.outcome;
    const auto y = RationalEvaluator(arithmetic, *a.tree, point(a, at)).run(a.node);
    if (!x || !y) return arithmetic.outcome;
    equal = *x == *y;
    if (!equal || !(x->random || y->random)) break;
  }
  return Outcome::value;
}

Outcome ValueComparison::compare_modulo_primes(const Part& g, const Part& a, const Point& shape, bool& equal) {
  constexpr uint64_t num_primes = 4;
  for (uint64_t k = 0; k < num_primes; ++k) {
    Point at = shape;
    at.index = k;
    ModularArithmetic arithmetic(point(g, at), budget_);
    const auto x = RationalEvaluator(arithmetic, *g.tree, point(g, at)).run(g.node);
    const auto y = x ? RationalEvaluator(arithmetic, *a.tree, point(a, at)).run(a.node) : std::nullopt;
    if (!x || !y) return arithmetic.outcome;
    if (*x != *y) return Outcome::too_large;
  }
  equal = true;
  return Outcome::value;
}

// Real values must agree wherever both sides have them. Complex values count only if the imaginary unit is written or
// if there are no real values, since the complex value of a root or logarithm is a convention.
bool ValueComparison::compare_approximately(const Part& g, const Part& a, const Point& shape) const {
  std::vector<uint64_t> variables;
  collect_variables(*g.tree, g.node, point(g, shape), variables);
  collect_variables(*a.tree, a.node, point(a, shape), variables);
  const auto holds_i = [](const Part& p) {
    return std::any_of(p.tree->nodes.begin(), p.tree->nodes.end(), [&](const Node& n) {
      return n.kind == Kind::symbol && p.tree->source.substr(n.begin, n.end - n.begin) == "i";
    });
  };
  const bool complex_matters = holds_i(g) || holds_i(a);
  int real = 0, complex = 0;
  bool complex_differs = false;
  for (const Probe& probe : probes(shape, variables)) {
    const auto x = evaluate(*g.tree, g.node, point(g, probe.point)),
               y = evaluate(*a.tree, a.node, point(a, probe.point));
    if (!x && !y) continue;
    if (!x || !y) {
      if (probe.everyday) return false;
      continue;
    }
    const bool alike = close(*x, *y);
    if (x->real && y->real) {
      if (!alike) return false;
      ++real;
    } else if (x->real != y->real) {
      if (!alike && (probe.everyday || complex_matters)) return false;
      complex += alike ? 1 : 0;
    } else {
      complex_differs = complex_differs || !alike;
      ++complex;
    }
  }
  const int enough = variables.empty() ? 1 : 2;
  if (complex_differs) return !complex_matters && real >= enough;
  return real + complex >= enough;
}

// Returns true if both are constants, one of them a decimal, and they round to the same value. Their difference must
// also be small relative to the value: .0000672 is not .0000673.
bool ValueComparison::rounds_alike(const Part& g, const Part& a, const Point& shape) {
  if (policy_.strict || !(g.tree->decimal || a.tree->decimal) || !is_constant(g) || !is_constant(a)) return false;
  ExactArithmetic arithmetic(budget_);
  const auto exact_g = RationalEvaluator(arithmetic, *g.tree, point(g, shape)).run(g.node);
  const auto exact_a = exact_g ? RationalEvaluator(arithmetic, *a.tree, point(a, shape)).run(a.node) : std::nullopt;
  if (exact_g && exact_a && !exact_g->random && !exact_a->random) {
    const Integer unit = pow(Integer(10), static_cast<unsigned>(policy_.precision));
    const Exact difference{.real = exact_g->real - exact_a->real, .imaginary = exact_g->imaginary - exact_a->imaginary};
    return (norm(difference) * Fraction{unit} - norm(*exact_g)).sign() <= 0 &&
           rounded(exact_g->real, unit) == rounded(exact_a->real, unit) &&
           rounded(exact_g->imaginary, unit) == rounded(exact_a->imaginary, unit);
  }
  const auto x = evaluate(*g.tree, g.node, point(g, shape)), y = evaluate(*a.tree, a.node, point(a, shape));
  if (!x || !y) return false;
  if (std::abs(x->value - y->value) >
      std::pow(10.0L, -0.5L * static_cast<Real>(policy_.precision)) * std::abs(x->value))
    return false;
  const Real unit = std::pow(10.0L, static_cast<Real>(policy_.precision));
  const auto alike = [unit](Real u, Real v) { return std::round(u * unit) == std::round(v * unit); };
  return alike(x->value.real(), y->value.real()) && alike(x->value.imag(), y->value.imag());
}

bool ValueComparison::nearly_same(const Part& g, const Part& a) const {
  const auto rounds = [](const Part& p) { return p.tree->decimal || p.holds(Kind::divide) || p.holds(Kind::function); };
  return (rounds(g) || rounds(a)) && differ_by_at_most(0.01, g, a);
}

bool ValueComparison::differ_by_at_most(double tolerance, const Part& g, const Part& a) const {
  const auto x = evaluate(*g.tree, g.node, point(g, {})), y = evaluate(*a.tree, a.node, point(a, {}));
  return x && y && std::abs(x->value - y->value) <= Real{tolerance} * std::max(std::abs(x->value), std::abs(y->value));
}

int ValueComparison::proportional(const Sides& g, const Sides& a) {
  int sign = 0;
  return proportional_exactly(g, a, sign) == Outcome::irrational ? proportional_approximately(g, a) : sign;
}

Outcome ValueComparison::proportional_exactly(const Sides& g, const Sides& a, int& sign) {
  ExactArithmetic arithmetic(budget_);
  const auto difference = [&](const Sides& sides, const Point& at) -> std::optional<Exact> {
    const auto left = RationalEvaluator(arithmetic, *sides.left.tree, point(sides.left, at)).run(sides.left.node);
    auto right = left ? RationalEvaluator(arithmetic, *sides.right.tree, point(sides.right, at)).run(sides.right.node)
                      : std::nullopt;
    if (right) right = arithmetic.times(*right, {.real = {-1}});
    return right ? arithmetic.plus(*left, *right) : std::nullopt;
  };
  std::optional<Exact> ratio;
  for (uint64_t k = 0; k < num_proportional_points; ++k) {
    Point at;
    at.index = k;
    const auto x = difference(g, at), y = x ? difference(a, at) : std::nullopt,
               inverse = y ? arithmetic.inverse(*y) : std::nullopt,
               now = inverse ? arithmetic.times(*x, *inverse) : std::nullopt;
    if (!now) return arithmetic.outcome;
    if (now->real.is_zero() || !now->imaginary.is_zero() || (ratio && !(*now == *ratio))) return Outcome::value;
    ratio = now;
  }
  sign = ratio->real.sign();
  return Outcome::value;
}

int ValueComparison::proportional_approximately(const Sides& g, const Sides& a) const {
  const auto difference = [&](const Sides& sides, const Point& at) -> std::optional<Approximate> {
    const auto left = evaluate(*sides.left.tree, sides.left.node, point(sides.left, at)),
               right = evaluate(*sides.right.tree, sides.right.node, point(sides.right, at));
    if (!left || !right) return std::nullopt;
    return Approximate{
        .value = left->value - right->value, .error = left->error + right->error, .real = left->real && right->real};
  };
  std::vector<uint64_t> variables;
  for (const Part& side : {g.left, g.right, a.left, a.right})
    collect_variables(*side.tree, side.node, point(side, {}), variables);
  std::optional<Approximate> ratio;
  uint64_t used = 0;
  for (const Probe& probe : probes({}, variables)) {
    const auto x = difference(g, probe.point), y = difference(a, probe.point);
    if (!x || !y || std::abs(x->value) <= 64 * x->error || std::abs(y->value) <= 64 * y->error) continue;
    if (x->real != y->real && probe.everyday) return 0;
    if (probe.point.signs != Signs::positive && !(x->real && y->real)) continue;
    const std::complex<Real> quotient = x->value / y->value;
    const Approximate now{
        .value = quotient, .error = (x->error + std::abs(quotient) * y->error) / std::abs(y->value), .real = true};
    if (std::fabs(now.value.imag()) > 1e-12L * std::abs(now.value) + 32 * now.error || (ratio && !close(*ratio, now)))
      return 0;
    if (!ratio) ratio = now;
    ++used;
  }
  if (used < num_proportional_points) return 0;
  return ratio->value.real() > 0 ? 1 : -1;
}

}  // namespace hone::math
