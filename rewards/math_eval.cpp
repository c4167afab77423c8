#include "rewards/math_eval.h"

#include <array>
#include <charconv>
#include <cmath>
#include <numbers>

#include "core/rng.h"
#include "rewards/text.h"

namespace hone::math {

namespace {

constexpr uint64_t seed = 0x6d617468;
constexpr size_t largest_factorial = 1000;

// A name as it is compared: x_{1} is x_1.
uint64_t name_hash(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name)
    if (c != '{' && c != '}' && c != ' ' && c != '\\') hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

std::string_view bare(std::string_view name) { return name.starts_with('\\') ? name.substr(1) : name; }
bool is_constant(std::string_view name) { return bare(name) == "pi" || name == "e" || name == "i"; }

// The stream of a variable's draws.
uint64_t identity(const Tree& tree, int32_t node, const Point& point) {
  const uint64_t own = name_hash(tree.text(node));
  if (point.names_matter || is_constant(tree.text(node))) return own;
  std::vector<uint64_t> seen;
  for (int32_t i = 0; i <= node; ++i) {
    if (tree.at(i).kind != Kind::symbol) continue;
    const uint64_t hash = name_hash(tree.text(i));
    size_t k = 0;
    while (k < seen.size() && seen[k] != hash) ++k;
    if (k == seen.size()) seen.push_back(hash);
    if (hash == own) return k;
  }
  return own;
}

uint64_t draw(uint64_t stream, uint64_t index) {
  const Philox4 out = philox(seed, stream, index);
  return (uint64_t{out.word[1]} << 32) | out.word[0];
}

// value is read after the operation that sets it and says whether it overflowed.
std::optional<int64_t> checked(bool overflow, const int64_t& value) { return overflow ? std::nullopt : std::optional(value); }

// The value where it is an integer of 64 bits made by + - * and small powers, as exponents and factorials need it.
std::optional<int64_t> small_integer(const Tree& tree, int32_t node) {
  const Node& n = tree.at(node);
  std::optional<int64_t> a, b;
  if (n.count >= 1 && n.count <= 2) a = small_integer(tree, n.first);
  if (n.count == 2) b = small_integer(tree, tree.at(n.first).next);
  int64_t out = 0;
  if (n.kind == Kind::number) {
    const std::string literal = literal_text(tree, node);
    const auto [stop, error] = std::from_chars(literal.data(), literal.data() + literal.size(), out);
    return checked(error != std::errc() || stop != literal.data() + literal.size(), out);
  }
  if (!a) return std::nullopt;
  if (n.kind == Kind::negate) return checked(__builtin_sub_overflow(int64_t{0}, *a, &out), out);
  if (!b) return std::nullopt;
  if (n.kind == Kind::add) return checked(__builtin_add_overflow(*a, *b, &out), out);
  if (n.kind == Kind::multiply) return checked(__builtin_mul_overflow(*a, *b, &out), out);
  if (n.kind == Kind::power && *b >= 0 && *b <= 64) {
    out = 1;
    for (int64_t k = 0; k < *b; ++k)
      if (__builtin_mul_overflow(out, *a, &out)) return std::nullopt;
    return out;
  }
  return std::nullopt;
}

uint64_t power_modular(uint64_t base, uint64_t exponent) {
  uint64_t out = 1;
  for (; exponent; exponent >>= 1, base = multiply_modular(base, base))
    if (exponent & 1) out = multiply_modular(out, base);
  return out;
}

uint64_t inverse(uint64_t a) { return power_modular(a, prime - 2); }

uint64_t digits_modular(std::string_view digits) {
  uint64_t out = 0;
  for (const char c : digits) out = (multiply_modular(out, 10) + static_cast<uint64_t>(c - '0')) % prime;
  return out;
}

// 0.1\overline{6} in digits: what stands before the repeating ones, how many of it after the point, and what repeats.
struct Repeating {
  std::string head, repeat;
  size_t places = 0;
};

Repeating repeating(std::string_view text) {
  Repeating out;
  const size_t line = text.find('\\'), point = text.find('.');
  for (size_t i = 0; i < text.size(); ++i)
    if (is_digit(text[i])) (i < line ? out.head : out.repeat) += text[i];
  out.places = line - point - 1;
  return out;
}

// head.repeat repeat ... = (head (10^m - 1) + repeat) / (10^places (10^m - 1)), m digits repeating
uint64_t repeating_modular(const Repeating& r) {
  const uint64_t nines = (power_modular(10, r.repeat.size()) + prime - 1) % prime;
  const uint64_t top = (multiply_modular(digits_modular(r.head), nines) + digits_modular(r.repeat)) % prime;
  return multiply_modular(top, inverse(multiply_modular(power_modular(10, r.places), nines)));
}

double repeating_value(const Repeating& r) {
  std::string digits = r.head.substr(0, r.head.size() - r.places) + "." + r.head.substr(r.head.size() - r.places);
  for (size_t significant = 0; significant < 40; significant += r.repeat.size()) digits += r.repeat;
  double out = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), out);
  return out;
}

std::optional<uint64_t> number_modular(const Tree& tree, int32_t node) {
  const std::string literal = literal_text(tree, node);
  uint64_t out = 0;
  int64_t scale = 0, exponent = 0;
  bool fraction = false;
  for (size_t i = 0; i < literal.size(); ++i) {
    const char c = literal[i];
    if (c == '.') fraction = true;
    if (c == 'e' || c == 'E') {
      const char* begin = literal.data() + i + (literal[i + 1] == '+' ? 2 : 1);
      if (std::from_chars(begin, literal.data() + literal.size(), exponent).ec != std::errc()) return std::nullopt;
      break;
    }
    if (!is_digit(c)) continue;
    out = (multiply_modular(out, 10) + static_cast<uint64_t>(c - '0')) % prime;
    if (fraction) --scale;
  }
  if (exponent > 1'000'000'000 || exponent < -1'000'000'000) return std::nullopt;
  scale += exponent;
  const uint64_t ten = power_modular(10, static_cast<uint64_t>(scale < 0 ? -scale : scale));
  return multiply_modular(out, scale < 0 ? inverse(ten) : ten);
}

std::optional<uint64_t> combinatorial(const Tree& tree, const Node& n) {
  static constexpr auto factorials = [] {
    std::array<uint64_t, largest_factorial + 1> out{1};
    for (size_t k = 1; k < out.size(); ++k) out[k] = multiply_modular(out[k - 1], k);
    return out;
  }();
  const auto top = small_integer(tree, n.first), bottom = n.count == 2 ? small_integer(tree, tree.at(n.first).next) : std::optional<int64_t>(0);
  if (!top || !bottom || *bottom < 0 || *bottom > *top || *top > static_cast<int64_t>(largest_factorial)) return std::nullopt;
  const auto factorial = [](int64_t k) { return factorials[static_cast<size_t>(k)]; };
  if (n.kind == Kind::factorial) return factorial(*top);
  return multiply_modular(factorial(*top), inverse(multiply_modular(factorial(*bottom), factorial(*top - *bottom))));
}

using Complex = std::complex<double>;

std::optional<Complex> finite(Complex z) { return std::isfinite(z.real()) && std::isfinite(z.imag()) ? std::optional(z) : std::nullopt; }

Complex raise(Complex base, Complex exponent) {
  if (base.imag() == 0 && exponent.imag() == 0 && (base.real() >= 0 || std::trunc(exponent.real()) == exponent.real()))
    return std::pow(base.real(), exponent.real());
  return std::pow(base, exponent);
}

std::optional<Complex> apply(std::string_view name, Complex x, std::optional<Complex> second) {
  if (name.empty() || name == "abs") return std::abs(x);
  if (name == "sqrt") {
    if (!second) return std::sqrt(x);
    const bool odd = second->imag() == 0 && std::fmod(std::fabs(second->real()), 2.0) == 1.0;
    if (odd && x.imag() == 0 && x.real() < 0) return -raise(-x, 1.0 / *second);
    return raise(x, 1.0 / *second);
  }
  if (name == "sin") return std::sin(x);
  if (name == "cos") return std::cos(x);
  if (name == "tan") return std::tan(x);
  if (name == "cot") return 1.0 / std::tan(x);
  if (name == "sec") return 1.0 / std::cos(x);
  if (name == "csc") return 1.0 / std::sin(x);
  if (name == "arcsin" || name == "asin") return std::asin(x);
  if (name == "arccos" || name == "acos") return std::acos(x);
  if (name == "arctan" || name == "atan") return std::atan(x);
  if (name == "sinh") return std::sinh(x);
  if (name == "cosh") return std::cosh(x);
  if (name == "tanh") return std::tanh(x);
  if (name == "ln" || name == "log") return std::log(x);
  if (name == "exp") return std::exp(x);
  if (name == "lfloor" && x.imag() == 0) return std::floor(x.real());
  if (name == "lceil" && x.imag() == 0) return std::ceil(x.real());
  return std::nullopt;
}

}  // namespace

std::string literal_text(const Tree& tree, int32_t node) {
  std::string out;
  for (const char c : tree.text(node))
    if (c != ',' && c != ' ' && c != '_') out += c;
  return out;
}

std::optional<uint64_t> evaluate_modular(const Tree& tree, int32_t node, const Point& point) {
  const Node& n = tree.at(node);
  if (n.kind == Kind::number) return number_modular(tree, node);
  if (n.kind == Kind::repeating) return repeating_modular(repeating(tree.text(node)));
  if (n.kind == Kind::symbol || n.kind == Kind::opaque) {
    if (tree.text(node) == "i") return std::nullopt;
    return draw(identity(tree, node, point), is_constant(tree.text(node)) || n.kind == Kind::opaque ? 0 : point.index) % prime;
  }
  if (n.kind == Kind::factorial || (n.kind == Kind::function && bare(tree.text(node)) == "binom")) return combinatorial(tree, n);
  if (n.count == 0 || n.count > 2 || n.kind == Kind::function) return std::nullopt;
  const auto a = evaluate_modular(tree, n.first, point);
  if (!a) return std::nullopt;
  const auto negative = [](uint64_t x) { return x == 0 ? 0 : prime - x; };
  if (n.kind == Kind::negate) return negative(*a);
  if (n.kind == Kind::percent) return point.percent ? multiply_modular(*a, inverse(100)) : *a;
  if (n.kind == Kind::scale) return multiply_modular(*a, power_modular(10, n.columns));
  if (n.kind == Kind::plus_minus && n.count == 1) return point.sign * (n.op == '-' ? -1 : 1) > 0 ? *a : negative(*a);
  if (n.count != 2) return std::nullopt;
  const int32_t second = tree.at(n.first).next;
  if (n.kind == Kind::power) {
    const auto exponent = small_integer(tree, second);
    if (!exponent || (*exponent < 0 && *a == 0) || *exponent == INT64_MIN) return std::nullopt;
    return *exponent < 0 ? inverse(power_modular(*a, static_cast<uint64_t>(-*exponent))) : power_modular(*a, static_cast<uint64_t>(*exponent));
  }
  const auto b = evaluate_modular(tree, second, point);
  if (!b) return std::nullopt;
  if (n.kind == Kind::add) return (*a + *b) % prime;
  if (n.kind == Kind::multiply) return multiply_modular(*a, *b);
  if (n.kind == Kind::divide) return *b == 0 ? std::nullopt : std::optional(multiply_modular(*a, inverse(*b)));
  if (n.kind == Kind::plus_minus) return (*a + (point.sign * (n.op == '-' ? -1 : 1) > 0 ? *b : negative(*b))) % prime;
  return std::nullopt;
}

std::optional<Complex> evaluate(const Tree& tree, int32_t node, const Point& point) {
  const Node& n = tree.at(node);
  if (n.kind == Kind::number) {
    const std::string literal = literal_text(tree, node);
    double value = 0;
    if (std::from_chars(literal.data(), literal.data() + literal.size(), value).ec != std::errc()) return std::nullopt;
    return value;
  }
  if (n.kind == Kind::repeating) return repeating_value(repeating(tree.text(node)));
  if (n.kind == Kind::symbol || n.kind == Kind::opaque) {
    const std::string_view name = bare(tree.text(node));
    if (name == "pi") return std::numbers::pi;
    if (name == "e") return std::numbers::e;
    if (name == "i") return Complex(0, 1);
    return 0.3 + 1.4 * static_cast<double>(draw(identity(tree, node, point), n.kind == Kind::opaque ? 0 : point.index) >> 11) * 0x1p-53;
  }
  if (n.count == 0 || n.count > 2) return std::nullopt;
  const auto a = evaluate(tree, n.first, point);
  if (!a) return std::nullopt;
  const double sign = point.sign * (n.op == '-' ? -1 : 1);
  if (n.kind == Kind::negate) return -*a;
  if (n.kind == Kind::percent) return point.percent ? *a / 100.0 : *a;
  if (n.kind == Kind::degree) return *a * (std::numbers::pi / 180);
  if (n.kind == Kind::scale) return finite(*a * std::pow(10.0, n.columns));
  if (n.kind == Kind::factorial) return a->imag() == 0 && a->real() >= 0 && a->real() <= 170 ? finite(std::tgamma(a->real() + 1)) : std::nullopt;
  if (n.kind == Kind::plus_minus && n.count == 1) return sign * *a;
  std::optional<Complex> b;
  if (n.count == 2 && !(b = evaluate(tree, tree.at(n.first).next, point))) return std::nullopt;
  if (n.kind == Kind::function) {
    const auto out = apply(bare(tree.text(node)), *a, b);
    return out ? finite(*out) : std::nullopt;
  }
  if (!b) return std::nullopt;
  if (n.kind == Kind::add) return finite(*a + *b);
  if (n.kind == Kind::multiply) return finite(*a * *b);
  if (n.kind == Kind::divide) return *b == 0.0 ? std::nullopt : finite(*a / *b);
  if (n.kind == Kind::power) return finite(raise(*a, *b));
  if (n.kind == Kind::plus_minus) return finite(*a + sign * *b);
  return std::nullopt;
}

}  // namespace hone::math
