// Judges for families whose answer is a number or numbers that may be written in several ways: power_function,
// coin_flip, number_format, dice, fraction_simplification, complex_arithmetic, prime_factorization, cryptarithm.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <vector>

#include "rewards/answers/answer_text.h"
#include "rewards/answers/text.h"
#include "rewards/math/compare.h"
#include "rewards/puzzles/puzzle.h"

namespace hone {

namespace {

std::optional<double> number(std::string_view text) {
  double out = 0;
  text = trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && stop == text.data() + text.size() && std::isfinite(out) ? std::optional(out)
                                                                                         : std::nullopt;
}

std::string three_figures(double value) {
  char out[32];
  std::snprintf(out, sizeof out, "%.2e", value);
  return out;
}

// Equal to three significant figures.
double power_function(const Puzzle& puzzle, std::string_view text) {
  const auto expected = number(puzzle.reference);
  HONE_CHECK(expected, "power_function: the answer '", puzzle.reference, "' is not a number");
  const auto given = number(text);
  return given && three_figures(*expected) == three_figures(*given) ? 1 : 0;
}

// Compares a decimal or a fraction within 1e-4.
double coin_flip(const Puzzle& puzzle, std::string_view text) {
  const auto expected = number(puzzle.reference);
  HONE_CHECK(expected, "coin_flip: the answer '", puzzle.reference, "' is not a number");
  const size_t slash = text.find('/');
  const auto top = number(text.substr(0, slash)),
             bottom = slash == std::string_view::npos ? std::optional(1.0) : number(text.substr(slash + 1));
  return top && bottom && *bottom != 0 && std::fabs(*top / *bottom - *expected) <= 1e-4 ? 1 : 0;
}

// Compares within a hundredth, in any form that the question shows: 1,234.5, 1234.500, 1.2345e+03.
double number_format(const Puzzle& puzzle, std::string_view text) {
  const auto expected = number(puzzle.reference);
  HONE_CHECK(expected, "number_format: the answer '", puzzle.reference, "' is not a number");
  std::string digits(text);
  std::erase(digits, ',');
  const auto given = number(digits);
  return given && std::fabs(*given - *expected) < 1e-2 ? 1 : 0;
}

// Compares fractions in the same terms, in LaTeX or plain notation.
double fraction(const Puzzle& puzzle, std::string_view text) {
  return math_equal(puzzle.reference, text, {.strict = true}) ? 1 : 0;
}

double complex_arithmetic(const Puzzle& puzzle, std::string_view text) {
  return math_equal(puzzle.reference, text) ? 1 : 0;
}

// Splits an answer into pieces whose order does not matter.
std::vector<std::string> sorted_pieces(std::string_view text, std::string_view separator) {
  std::vector<std::string> out;
  for (const std::string_view piece : split(text, separator)) {
    out.emplace_back();
    for (const char c : piece)
      if (!is_space(c) && c != '$') out.back() += c;
  }
  std::sort(out.begin(), out.end());
  return out;
}

double prime_factorization(const Puzzle& puzzle, std::string_view text) {
  for (const std::string_view separator : {"×", "\\times", "\\cdot", "*", "x", "·"})
    if (sorted_pieces(text, separator) == sorted_pieces(puzzle.reference, "×")) return 1;
  return 0;
}

double cryptarithm(const Puzzle& puzzle, std::string_view text) {
  return sorted_pieces(text, ",") == sorted_pieces(puzzle.reference, ",") ? 1 : 0;
}

[[maybe_unused]] const bool added =
    puzzle_judges().add("power_function", power_function) && puzzle_judges().add("coin_flip", coin_flip) &&
    puzzle_judges().add("number_format", number_format) && puzzle_judges().add("dice", fraction) &&
    puzzle_judges().add("fraction_simplification", fraction) &&
    puzzle_judges().add("complex_arithmetic", complex_arithmetic) &&
    puzzle_judges().add("prime_factorization", prime_factorization) && puzzle_judges().add("cryptarithm", cryptarithm);

}  // namespace

}  // namespace hone
