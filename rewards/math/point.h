#pragma once
// The points at which two expressions are compared. Every free variable gets a pseudo-random value there: expressions
// that agree at a few random points are the same function (Schwartz 1980). The values derive from a hash of both texts,
// so an answer cannot be written to fit them: a change of the answer changes the values.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rewards/math/expr.h"

namespace hone::math {

enum class Signs : uint8_t { positive, negative, one_negative, mixed };

struct Point {
  uint64_t seed = 0;  // the comparison's seed
  uint64_t index = 0;
  int sign = 1;              // the sign that \pm stands for
  bool percent = true;       // x% is x/100; otherwise the sign is ignored
  bool units = false;        // a unit is a factor; otherwise it is ignored
  bool names_matter = true;  // otherwise variables are identified by their order of appearance
  // Magnitudes of floating-point values are in [0.3, 1.7] * scale.
  long double scale = 1;
  Signs signs = Signs::positive;
  uint64_t negative_variable = 0;  // the negative variable of Signs::one_negative
};

// Returns a seed that depends on every byte of both texts.
uint64_t seed_of(std::string_view reference, std::string_view answer);
// Returns the random number of a symbol (different at each point) or of a constant such as \pi (the same at every
// point).
uint64_t draw(const Tree& tree, int32_t node, const Point& point);
// Returns the same value as a real number with its sign, for floating-point evaluation.
long double draw_real(const Tree& tree, int32_t node, const Point& point);
// Adds the identities of the variables below a node that are not yet in the list.
void collect_variables(const Tree& tree, int32_t node, const Point& point, std::vector<uint64_t>& variables);

// Returns a command's name without the backslash.
std::string_view bare(std::string_view name);
// True for \pi, e and i.
bool is_constant_name(std::string_view name);

// Returns the digits of a number node without separators.
std::string literal_text(const Tree& tree, int32_t node);

// A number as written: (digits + repeat / (10^m - 1)) * 10^exponent, with m digits in `repeat`.
struct Literal {
  std::string digits, repeat;
  int64_t exponent = 0;
};
// Reads a number or repeating node. Returns nothing if its exponent is beyond 10^9.
std::optional<Literal> read_literal(const Tree& tree, int32_t node);

// Returns the value of a digit in a base up to 36.
int digit_value(char c);

// Returns the value if it is a 64-bit integer that + - * / and small powers give, as exponents and factorials need it.
std::optional<int64_t> small_integer(const Tree& tree, int32_t node);

}  // namespace hone::math
