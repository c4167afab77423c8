#pragma once
// Evaluates an expression that is rational in its variables, in any arithmetic that has + * and inverses: exactly
// (exact.h), or modulo a prime (modular.h). An arithmetic defines
//   Value; integer(digits), small(int64), symbol(draw, positive), imaginary(), plus, times, inverse, power(value,
//   int64), function(name, value, order)
// These return std::optional<Value>. If it is empty, `outcome` says why.
#include <optional>

#include "rewards/answers/units.h"
#include "rewards/math/point.h"

namespace hone::math {

// Why there is no value: it is irrational, it is undefined (0/0), or it exceeds the limits of digits or time.
enum class Outcome : uint8_t { value, irrational, undefined, too_large };

// The computation budget of one comparison, in products of 64-bit words.
struct Budget {
  int64_t left = 4'000'000;

  bool spend(int64_t cost) {
    left -= cost;
    return left >= 0;
  }
};

template <class Arithmetic>
class RationalEvaluator {
 public:
  using Value = typename Arithmetic::Value;
  using Result = std::optional<Value>;

  RationalEvaluator(Arithmetic& arithmetic, const Tree& tree, const Point& point)
      : arithmetic_(arithmetic), tree_(tree), point_(point) {}

  Result run(int32_t node) {
    const Node& n = tree_.at(node);
    switch (n.kind) {
      case Kind::number:
      case Kind::repeating:
        return literal(node);
      case Kind::based:
        return based(node);
      case Kind::symbol:
      case Kind::opaque:
        if (tree_.text(node) == "i") return arithmetic_.imaginary();
        return arithmetic_.symbol(draw(tree_, node, point_),
                                  n.kind == Kind::opaque || is_constant_name(tree_.text(node)));
      case Kind::factorial:
        return combination(n.first, -1);
      case Kind::function:
        return function(node);
      case Kind::power:
        return power(n);
      default:
        return operation(node);
    }
  }

 private:
  static constexpr int64_t largest_factorial = 1000;

  Result fail(Outcome outcome) {
    arithmetic_.outcome = outcome;
    return std::nullopt;
  }
  Result times(const Result& a, const Result& b) { return a && b ? arithmetic_.times(*a, *b) : std::nullopt; }
  Result plus(const Result& a, const Result& b) { return a && b ? arithmetic_.plus(*a, *b) : std::nullopt; }
  Result divided(const Result& a, const Result& b) { return a && b ? times(a, arithmetic_.inverse(*b)) : std::nullopt; }
  Result negated(const Result& a) { return times(a, arithmetic_.small(-1)); }
  Result power_of_ten(int64_t exponent) { return arithmetic_.power(*arithmetic_.small(10), exponent); }

  Result literal(int32_t node) {
    const std::optional<Literal> text = read_literal(tree_, node);
    if (!text) return fail(Outcome::irrational);
    Result out = arithmetic_.integer(text->digits);
    if (!text->repeat.empty()) {
      const Result nines = plus(power_of_ten(static_cast<int64_t>(text->repeat.size())), arithmetic_.small(-1));
      out = plus(out, divided(arithmetic_.integer(text->repeat), nines));
    }
    return text->exponent == 0 ? out : times(out, power_of_ten(text->exponent));
  }
  Result based(int32_t node) {
    const Result base = arithmetic_.small(tree_.at(node).columns);
    Result out = arithmetic_.small(0);
    int64_t places = 0;
    bool fraction = false;
    for (const char c : tree_.text(node)) {
      if (c == '.') {
        fraction = true;
        continue;
      }
      out = plus(times(out, base), arithmetic_.small(digit_value(c)));
      places += fraction ? 1 : 0;
    }
    return places == 0 ? out : times(out, arithmetic_.power(*base, -places));
  }
  // top!, or top! / (bottom! (top - bottom)!).
  Result combination(int32_t top_node, int32_t bottom_node) {
    const auto top = small_integer(tree_, top_node),
               bottom = bottom_node < 0 ? std::optional<int64_t>(0) : small_integer(tree_, bottom_node);
    if (!top || !bottom || *bottom < 0 || *bottom > *top || *top > largest_factorial) return fail(Outcome::irrational);
    Result out = product(bottom_node < 0 ? 1 : *top - *bottom + 1, *top);
    return bottom_node < 0 ? out : divided(out, product(1, *bottom));
  }
  Result product(int64_t from, int64_t to) {
    Result out = arithmetic_.small(1);
    for (int64_t k = from; k <= to && out; ++k) out = times(out, arithmetic_.small(k));
    return out;
  }
  Result function(int32_t node) {
    const Node& n = tree_.at(node);
    const std::string_view name = bare(tree_.text(node));
    const int32_t second = n.count == 2 ? tree_.at(n.first).next : -1;
    if (name == "binom") return combination(n.first, second);
    const auto order = second < 0 ? std::optional<int64_t>(2) : small_integer(tree_, second);
    if (!order) return fail(Outcome::irrational);
    const Result inside = run(n.first);
    return inside ? arithmetic_.function(name, *inside, *order) : std::nullopt;
  }
  Result power(const Node& n) {
    const auto exponent = small_integer(tree_, tree_.at(n.first).next);
    if (!exponent || *exponent == INT64_MIN) return fail(Outcome::irrational);
    const Result base = run(n.first);
    return base ? arithmetic_.power(*base, *exponent) : std::nullopt;
  }
  // Operators with one or two operands. The left operand is handled by a loop, since operators nest to the left as deep
  // as a text is long (a + b + c + ...).
  static bool is_operation(const Node& n) {
    return n.count >= 1 && n.count <= 2 && n.kind != Kind::function && n.kind != Kind::factorial &&
           n.kind != Kind::power;
  }
  Result operation(int32_t node) {
    std::vector<int32_t> operators;
    for (; is_operation(tree_.at(node)); node = tree_.at(node).first) operators.push_back(node);
    if (operators.empty()) return fail(Outcome::irrational);
    Result out = run(node);
    for (; out && !operators.empty(); operators.pop_back()) out = applied(operators.back(), out);
    return out;
  }
  // Applies the operator at a node to its first operand a.
  Result applied(int32_t node, const Result& a) {
    const Node& n = tree_.at(node);
    const bool minus = point_.sign * (n.op == '-' ? -1 : 1) < 0;
    if (n.kind == Kind::negate) return negated(a);
    if (n.kind == Kind::percent) return point_.percent ? divided(a, arithmetic_.small(100)) : a;
    if (n.kind == Kind::scale) return times(a, power_of_ten(n.columns));
    if (n.kind == Kind::unit) return point_.units ? measured(*a, node) : a;
    if (n.kind == Kind::plus_minus && n.count == 1) return minus ? negated(a) : a;
    if (n.count != 2) return fail(Outcome::irrational);
    const Result b = run(tree_.at(n.first).next);
    if (n.kind == Kind::add) return plus(a, b);
    if (n.kind == Kind::multiply) return times(a, b);
    if (n.kind == Kind::divide) return divided(a, b);
    if (n.kind == Kind::plus_minus) return plus(a, minus ? negated(b) : b);
    return fail(Outcome::irrational);
  }
  Result measured(const Value& value, int32_t node) {
    const std::optional<Unit> unit = read_unit(tree_.text(node));
    if (!unit || unit->pi_power != 0) return fail(Outcome::irrational);
    return times(value, divided(arithmetic_.small(unit->factor.top), arithmetic_.small(unit->factor.bottom)));
  }

  Arithmetic& arithmetic_;
  const Tree& tree_;
  const Point& point_;
};

}  // namespace hone::math
