#include "rewards/math/point.h"

#include <algorithm>
#include <charconv>

#include "core/base/rng.h"
#include "rewards/answers/text.h"

namespace hone::math {

namespace {

constexpr uint64_t fnv_start = 0xcbf29ce484222325u, fnv_prime = 0x100000001b3u;

uint64_t mixed_in(uint64_t hash, char c) { return (hash ^ static_cast<uint8_t>(c)) * fnv_prime; }

uint64_t draw(uint64_t seed, uint64_t stream, uint64_t index) {
  const Philox4 out = philox(seed, stream, index);
  return (uint64_t{out.word[1]} << 32) | out.word[0];
}

// The hash of a name in its canonical spelling: x_{1} is x_1.
uint64_t name_hash(std::string_view name) {
  uint64_t hash = fnv_start;
  for (const char c : name)
    if (c != '{' && c != '}' && c != ' ' && c != '\\') hash = mixed_in(hash, c);
  return hash;
}

// Returns the RNG stream of a variable.
uint64_t identity(const Tree& tree, int32_t node, const Point& point) {
  const uint64_t own = name_hash(tree.text(node));
  if (point.names_matter || tree.at(node).kind != Kind::symbol || is_constant_name(tree.text(node))) return own;
  std::vector<uint64_t> seen;
  for (int32_t i = 0; i <= node; ++i) {
    if (tree.at(i).kind != Kind::symbol) continue;
    const uint64_t hash = name_hash(tree.text(i));
    const auto found = std::find(seen.begin(), seen.end(), hash);
    if (hash == own) return static_cast<uint64_t>(found - seen.begin());
    if (found == seen.end()) seen.push_back(hash);
  }
  return own;
}

bool is_variable(const Tree& tree, int32_t node) {
  return tree.at(node).kind == Kind::symbol && !is_constant_name(tree.text(node));
}

bool is_negative(uint64_t variable, uint64_t bits, const Point& point) {
  if (point.signs == Signs::mixed) return (bits & 1) != 0;
  return point.signs == Signs::negative || (point.signs == Signs::one_negative && variable == point.negative_variable);
}

// Returns nothing on overflow. `value` is a reference, since it is read after the operation that sets it.
std::optional<int64_t> checked(bool overflow, const int64_t& value) {
  return overflow ? std::nullopt : std::optional(value);
}

}  // namespace

uint64_t seed_of(std::string_view reference, std::string_view answer) {
  uint64_t hash = fnv_start;
  for (const char c : reference) hash = mixed_in(hash, c);
  hash = mixed_in(hash, '\0');
  for (const char c : answer) hash = mixed_in(hash, c);
  return draw(hash, reference.size(), answer.size());
}

uint64_t draw(const Tree& tree, int32_t node, const Point& point) {
  return draw(point.seed, identity(tree, node, point), is_variable(tree, node) ? point.index : 0);
}

long double draw_real(const Tree& tree, int32_t node, const Point& point) {
  const uint64_t bits = draw(tree, node, point);
  const long double magnitude = 0.3L + 1.4L * (static_cast<long double>(bits >> 11) * 0x1p-53L);
  if (!is_variable(tree, node)) return magnitude;
  return point.scale * (is_negative(identity(tree, node, point), bits, point) ? -magnitude : magnitude);
}

void collect_variables(const Tree& tree, int32_t node, const Point& point, std::vector<uint64_t>& variables) {
  if (is_variable(tree, node)) {
    const uint64_t variable = identity(tree, node, point);
    if (std::find(variables.begin(), variables.end(), variable) == variables.end()) variables.push_back(variable);
  }
  for (int32_t c = tree.at(node).first; c >= 0; c = tree.at(c).next) collect_variables(tree, c, point, variables);
}

std::string_view bare(std::string_view name) { return name.starts_with('\\') ? name.substr(1) : name; }

bool is_constant_name(std::string_view name) { return bare(name) == "pi" || name == "e" || name == "i"; }

std::string literal_text(const Tree& tree, int32_t node) {
  std::string out;
  for (const char c : tree.text(node))
    if (c != ',' && c != ' ' && c != '_') out += c;
  return out;
}

std::optional<Literal> read_literal(const Tree& tree, int32_t node) {
  const std::string text = literal_text(tree, node);
  Literal out;
  bool fraction = false, repeats = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '.') fraction = true;
    if (c == '\\') repeats = true;
    if (c == '\\') i = text.find('{', i);
    if ((c == 'e' || c == 'E') && !repeats) {
      const char* begin = text.data() + i + (text[i + 1] == '+' ? 2 : 1);
      int64_t exponent = 0;
      if (std::from_chars(begin, text.data() + text.size(), exponent).ec != std::errc()) return std::nullopt;
      if (exponent > 1'000'000'000 || exponent < -1'000'000'000) return std::nullopt;
      out.exponent += exponent;
      break;
    }
    if (!is_digit(c)) continue;
    (repeats ? out.repeat : out.digits) += c;
    if (fraction && !repeats) --out.exponent;
  }
  return out;
}

int digit_value(char c) { return is_digit(c) ? c - '0' : is_letter(c) ? to_upper(c) - 'A' + 10 : 99; }

std::optional<int64_t> small_integer(const Tree& tree, int32_t node) {
  const Node& n = tree.at(node);
  int64_t out = 0;
  if (n.kind == Kind::number) {
    const std::string literal = literal_text(tree, node);
    const auto [stop, error] = std::from_chars(literal.data(), literal.data() + literal.size(), out);
    return checked(error != std::errc() || stop != literal.data() + literal.size(), out);
  }
  std::optional<int64_t> a, b;
  if (n.count >= 1 && n.count <= 2) a = small_integer(tree, n.first);
  if (n.count == 2) b = small_integer(tree, tree.at(n.first).next);
  if (!a) return std::nullopt;
  if (n.kind == Kind::negate) return checked(__builtin_sub_overflow(int64_t{0}, *a, &out), out);
  if (!b) return std::nullopt;
  if (n.kind == Kind::add) return checked(__builtin_add_overflow(*a, *b, &out), out);
  if (n.kind == Kind::multiply) return checked(__builtin_mul_overflow(*a, *b, &out), out);
  if (n.kind == Kind::divide && *b > 0 && *a % *b == 0) return *a / *b;
  if (n.kind == Kind::power && *b >= 0 && *b <= 64) {
    out = 1;
    for (int64_t k = 0; k < *b; ++k)
      if (__builtin_mul_overflow(out, *a, &out)) return std::nullopt;
    return out;
  }
  return std::nullopt;
}

}  // namespace hone::math
