#pragma once
// The points at which two expressions are compared. Every free variable gets a pseudo-random value there: expressions
// that agree at a few points are the same function (Schwartz 1980). The draws derive from a hash of both texts, so an
// answer cannot be written to fit them: writing it moves them.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rewards/math/expr.h"

namespace hone::math {

enum class Signs : uint8_t { positive, negative, one_negative, mixed };

struct Point {
  uint64_t seed = 0;  // of the comparison
  uint64_t index = 0;
  int sign = 1;              // which of the two values of \pm
  bool percent = true;       // x% is x/100; otherwise the sign is ignored
  bool units = false;        // a unit is a factor; otherwise it is ignored
  bool names_matter = true;  // otherwise variables are known by the order in which they first appear
  // Of floating-point draws: magnitudes are in [0.3, 1.7] * scale.
  long double scale = 1;
  Signs signs = Signs::positive;
  uint64_t negative_variable = 0;  // which one is negative, for Signs::one_negative
};

// A seed that depends on every byte of both texts.
uint64_t seed_of(std::string_view reference, std::string_view answer);
// The number that the point draws for a symbol (at each point another) or a constant such as \pi (always the same).
uint64_t draw(const Tree& tree, int32_t node, const Point& point);
// The same as a real number for floating-point evaluation, with its sign.
long double draw_real(const Tree& tree, int32_t node, const Point& point);
// Adds the identities of the variables below a node that are not yet in the list.
void collect_variables(const Tree& tree, int32_t node, const Point& point, std::vector<uint64_t>& variables);

// Without the backslash of a command.
std::string_view bare(std::string_view name);
// \pi, e and i.
bool is_constant_name(std::string_view name);

// The digits of a number node without its separators.
std::string literal_text(const Tree& tree, int32_t node);

// A number as it is written: (digits + repeat / (10^m - 1)) * 10^exponent, with m digits in `repeat`.
struct Literal {
  std::string digits, repeat;
  int64_t exponent = 0;
};
// Of a number or repeating node; empty if its exponent is beyond 10^9.
std::optional<Literal> read_literal(const Tree& tree, int32_t node);

// The value of one digit in a base up to 36.
int digit_value(char c);

// The value where it is an integer of 64 bits made by + - * / and small powers, as exponents and factorials need it.
std::optional<int64_t> small_integer(const Tree& tree, int32_t node);

}  // namespace hone::math
