#include "rewards/math/compare.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "rewards/answers/number_text.h"
#include "rewards/answers/text.h"
#include "rewards/answers/units.h"
#include "rewards/math/part.h"
#include "rewards/math/value.h"

namespace hone {

namespace math {

namespace {

constexpr std::string_view angle_functions[] = {"sin", "cos", "tan", "cot", "sec", "csc"};
constexpr int max_work = 100000;  // limit of node comparisons, so that long lists and nested equations stay cheap

class Comparison {
 public:
  Comparison(const MathPolicy& policy, uint64_t seed) : policy_(policy), values_(policy, seed) {}

  bool equal(const Part& g, const Part& a) {
    work_ += g.get().size + a.get().size;
    if (work_ > max_work) return false;
    if (g.kind() == Kind::relation || a.kind() == Kind::relation) return relations(g, a);
    if (is_collection(g) || is_collection(a)) return collections(g, a);
    if (g.kind() == Kind::word || a.kind() == Kind::word) return same_word(g, a);
    if (g.kind() == Kind::ratio || g.kind() == Kind::matrix || g.kind() == Kind::tuple || g.kind() == Kind::set_union) {
      const Node &x = g.get(), &y = a.get();
      if (x.kind != y.kind || x.count != y.count || x.columns != y.columns || x.open != y.open || x.close != y.close)
        return false;
      return g.kind() == Kind::set_union ? same_members(g.children(), a.children())
                                         : same_in_order(g.children(), a.children());
    }
    return scalars(g, a);
  }

  // p is a relation (compare.h).
  bool states_last_side(const Part& p) {
    const std::vector<Part> sides = p.children();
    const Relation r = relation(p);
    if (value(p) == sides.back().node) return holds(r);
    // "2x = 2 * 9 = 18" states the value of 2x.
    return sides.size() >= 3 && std::all_of(sides.begin() + 1, sides.end(), is_constant) && holds(r) &&
           r.signs.find_first_not_of('=') == std::string::npos;
  }

 private:
  // -- words
  bool same_word(const Part& g, const Part& a) const {
    const auto nameable = [](const Part& p) { return p.kind() == Kind::word || p.kind() == Kind::symbol; };
    return nameable(g) && nameable(a) && lower(trimmed(g.text())) == lower(trimmed(a.text()));
  }

  // -- collections
  static bool is_collection(const Part& p) {
    return p.kind() == Kind::list || p.kind() == Kind::set ||
           (p.sign == 0 && p.tree->plus_minus && p.kind() != Kind::tuple && p.kind() != Kind::matrix &&
            p.holds(Kind::plus_minus));
  }
  static bool is_group(const Part& p) { return p.kind() == Kind::list || p.kind() == Kind::set; }
  // A nested group is one member: {1, {2}} is not {1, 2}.
  static std::vector<Part> members(const Part& p) {
    if (!is_group(p)) return values(p);
    std::vector<Part> out;
    for (const Part& child : p.children())
      for (const Part& member : is_group(child) ? std::vector<Part>{child} : values(child)) out.push_back(member);
    return out;
  }
  // Returns both values if the part contains \pm.
  static std::vector<Part> values(const Part& p) {
    if (!is_collection(p)) return {p};
    return {{p.tree, p.node, 1}, {p.tree, p.node, -1}};
  }
  bool collections(const Part& g, const Part& a) {
    if (policy_.strict)
      return g.kind() == a.kind() &&
             (g.kind() == Kind::list || g.kind() == Kind::set ? same_in_order(g.children(), a.children())
                                                              : same_in_order(members(g), members(a)));
    // (1,3) and {1,3}, which LaTeX prints as 1,3.
    const auto is_pair = [](const Part& tuple, const Part& list) {
      return tuple.kind() == Kind::tuple && list.kind() == Kind::list && tuple.get().open == '(';
    };
    if (is_pair(g, a) || is_pair(a, g)) return same_in_order(g.children(), a.children());
    // The set \{[1,2]\} has one member, the interval.
    const auto holds_interval = [](const Part& set, const Part& interval) {
      return set.kind() == Kind::set && set.get().count == 1 && interval.kind() == Kind::tuple &&
             interval.get().open == '[';
    };
    if (holds_interval(g, a) || holds_interval(a, g)) return false;
    return same_members(distinct_members(g), distinct_members(a));
  }
  // Removes equal members of a set and of alternatives: "5 or 5" is 5. "5, 5" keeps two answers.
  std::vector<Part> distinct_members(const Part& p) {
    std::vector<Part> out = members(p);
    if (p.kind() != Kind::list || p.get().op == '|') drop_repeats(out);
    return out;
  }
  bool same_in_order(const std::vector<Part>& g, const std::vector<Part>& a) {
    if (g.size() != a.size()) return false;
    for (size_t i = 0; i < g.size(); ++i)
      if (!equal(g[i], a[i])) return false;
    return true;
  }
  bool same_members(const std::vector<Part>& g, std::vector<Part> a) {
    if (g.size() != a.size()) return false;
    for (const Part& wanted : g) {
      const auto found = std::find_if(
          a.begin(), a.end(), [&](const Part& p) { return is_group(wanted) == is_group(p) && equal(wanted, p); });
      if (found == a.end()) return false;
      a.erase(found);
    }
    return true;
  }
  void drop_repeats(std::vector<Part>& parts) {
    std::vector<Part> kept;
    for (const Part& part : parts)
      if (std::none_of(kept.begin(), kept.end(),
                       [&](const Part& k) { return is_group(k) == is_group(part) && equal(k, part); }))
        kept.push_back(part);
    parts = std::move(kept);
  }

  // -- relations
  struct Relation {
    std::vector<Part> sides;
    std::string signs;
  };
  // Reads a relation without the sides after an approximation sign.
  static Relation relation(const Part& p) {
    Relation out;
    for (const Part& side : p.children()) {
      if (!out.sides.empty()) {
        if (side.get().op == '~') break;
        out.signs += side.get().op;
      }
      out.sides.push_back(side);
    }
    return out;
  }
  // Returns the node of the value that a relation states: 5 for "x = 5" and "2+3 = 5", [0,1] for "x \in [0,1]". Returns
  // -1 if the relation itself is the answer.
  int32_t value(const Part& p) {
    const Relation r = relation(p);
    if (r.sides.size() == 1) return approximates(p) ? r.sides[0].node : -1;
    if (r.signs.back() == 'i') return is_name(r.sides[r.sides.size() - 2]) ? r.sides.back().node : -1;
    if (r.signs.find_first_not_of('=') != std::string::npos) return -1;
    const auto before_last = r.sides.end() - 1;
    if (std::any_of(r.sides.begin(), before_last, is_name)) return r.sides.back().node;
    if (std::all_of(r.sides.begin(), r.sides.end(), is_constant)) return holds(r) ? r.sides.back().node : -1;
    return is_name(r.sides.back()) && r.sides.size() == 2 && is_constant(r.sides[0]) ? r.sides[0].node : -1;
  }
  // Returns false for integers that are not near each other: "18 \approx 17".
  bool approximates(const Part& p) {
    constexpr double tolerance = 0.05;
    const std::vector<Part> sides = p.children();
    return !is_whole(sides[0]) || !is_whole(sides[1]) || values_.same(sides[0], sides[1], true, true) ||
           values_.differ_by_at_most(tolerance, sides[0], sides[1]);
  }
  // Returns true if the constant sides of a chain are equal to the precision written: "10/3 = 3.33".
  bool holds(const Relation& r) {
    if (ends_in_dollar_sign(r.sides[0].tree->source)) return true;
    std::vector<Part> constants;
    for (const Part& side : r.sides)
      if (is_scalar(side) && is_constant(side)) constants.push_back(side);
    for (size_t i = 0; i + 1 < constants.size(); ++i) {
      const Part &x = constants[i], &y = constants.back();
      if (!values_.same(x, y, true, false) && !values_.same(x, y, false, false) && !values_.same(x, y, true, true) &&
          !values_.nearly_same(x, y))
        return false;
    }
    return true;
  }
  // "\frac{1}{2} \$ = \frac{10}{9}" may convert a currency.
  static bool ends_in_dollar_sign(std::string_view source) { return source.find("{\\$}") != std::string_view::npos; }
  static bool is_scalar(const Part& p) {
    return !is_collection(p) && p.kind() != Kind::tuple && p.kind() != Kind::ratio && p.kind() != Kind::matrix &&
           p.kind() != Kind::set_union && p.kind() != Kind::word && p.kind() != Kind::relation &&
           p.kind() != Kind::based && p.kind() != Kind::opaque && !p.holds(Kind::infinity) && !p.holds(Kind::based);
  }
  bool relations(const Part& g, const Part& a) {
    const bool both = g.kind() == a.kind();
    if (both && same_relation(relation(g), relation(a))) return true;
    const int32_t vg = g.kind() == Kind::relation ? value(g) : -1, va = a.kind() == Kind::relation ? value(a) : -1;
    if (both && vg >= 0 && va >= 0)
      return equal(g.with(g.get().first), a.with(a.get().first)) && equal(g.with(vg), a.with(va));
    if (va >= 0 && !(both && relation(a).signs != "i")) return equal(g, a.with(va));
    if (vg >= 0 && !both) return equal(g.with(vg), a);
    if (g.kind() == Kind::relation && a.kind() == Kind::tuple) return same_interval(relation(g), a);
    if (policy_.inequality_for_interval && a.kind() == Kind::relation) {
      const Part interval = vg >= 0 ? g.with(vg) : g;
      return interval.kind() == Kind::tuple && same_interval(relation(a), interval);
    }
    return false;
  }
  static char mirrored(char sign) {
    return sign == '<' ? '>' : sign == '>' ? '<' : sign == 'L' ? 'G' : sign == 'G' ? 'L' : sign;
  }
  static Relation mirrored(Relation r) {
    std::reverse(r.sides.begin(), r.sides.end());
    std::reverse(r.signs.begin(), r.signs.end());
    for (char& sign : r.signs) sign = mirrored(sign);
    return r;
  }
  bool same_relation(const Relation& g, const Relation& a) {
    if (g.sides.size() != a.sides.size() || g.sides.size() < 2) return false;
    if (g.sides.size() == 2 && proportional(g, a)) return true;
    const Relation turned = mirrored(a);
    return (g.signs == a.signs && same_in_order(g.sides, a.sides)) ||
           (g.signs == turned.signs && same_in_order(g.sides, turned.sides));
  }
  // Compares equations up to a factor: 2x + 4y = 3 and x + 2y = 3/2. For inequalities the factor's sign counts.
  // Relations of constants are excluded, since constants are always proportional. Relations with units are excluded
  // too; they are compared side by side.
  bool proportional(const Relation& g, const Relation& a) {
    const char sign = g.signs[0];
    const bool same = sign == a.signs[0], turned = sign == mirrored(a.signs[0]);
    if (!(same || turned) || sign == 'i' || (is_constant(g.sides[0]) && is_constant(g.sides[1]))) return false;
    for (const Relation* relation : {&g, &a})
      if (relation->sides[0].holds(Kind::unit) || relation->sides[1].holds(Kind::unit)) return false;
    const int constant = values_.proportional({g.sides[0], g.sides[1]}, {a.sides[0], a.sides[1]});
    if (sign == '=' || sign == '!') return constant != 0;
    return (same && constant > 0) || (turned && constant < 0);
  }
  // Returns true if an inequality states the interval: a < x <= b is (a, b]; x >= a is [a, \infty).
  bool same_interval(Relation r, const Part& interval) {
    if (r.signs.empty() || r.signs.find_first_of("=!~i") != std::string::npos || interval.get().count != 2)
      return false;
    if (r.signs[0] == '>' || r.signs[0] == 'G') r = mirrored(std::move(r));
    const std::vector<Part> ends = interval.children();
    const char open = interval.get().open, close = interval.get().close;
    const auto infinite = [](const Part& p, bool negative) {
      return negative ? p.kind() == Kind::negate && p.with(p.get().first).kind() == Kind::infinity
                      : p.kind() == Kind::infinity;
    };
    if (r.sides.size() == 3)
      return r.signs.find_first_of(">G") == std::string::npos && is_constant(r.sides[0]) && is_constant(r.sides[2]) &&
             open == (r.signs[0] == '<' ? '(' : '[') && close == (r.signs[1] == '<' ? ')' : ']') &&
             equal(r.sides[0], ends[0]) && equal(r.sides[2], ends[1]);
    if (r.sides.size() != 2) return false;
    const bool strict = r.signs[0] == '<';
    if (is_name(r.sides[0]))
      return infinite(ends[0], true) && open == '(' && close == (strict ? ')' : ']') && equal(r.sides[1], ends[1]);
    return is_name(r.sides[1]) && infinite(ends[1], false) && close == ')' && open == (strict ? '(' : '[') &&
           equal(r.sides[0], ends[0]);
  }

  // -- numbers and expressions
  static int infinity_sign(const Part& p) {
    if (p.kind() == Kind::infinity) return 1;
    return p.kind() == Kind::negate ? -infinity_sign(p.with(p.get().first)) : 0;
  }
  // Strict policy: an integer as written, without its sign.
  static bool is_whole(const Part& p) {
    if (p.kind() == Kind::negate || p.kind() == Kind::percent || p.kind() == Kind::unit)
      return is_whole(p.with(p.get().first));
    if (p.kind() != Kind::number) return false;
    const std::string literal = literal_text(*p.tree, p.node);
    return literal.find_first_of("eE") != std::string::npos || canonical_digits(literal).find('.') == std::string::npos;
  }
  static bool is_fraction(const Part& p) {
    if (p.kind() == Kind::negate || p.kind() == Kind::unit) return is_fraction(p.with(p.get().first));
    if (p.kind() != Kind::divide) return false;
    const std::vector<Part> sides = p.children();
    return is_whole(sides[0]) && is_whole(sides[1]);
  }
  bool scalars(const Part& g, const Part& a) {
    if (const int x = infinity_sign(g), y = infinity_sign(a); x || y) return x == y;
    // Numbers in different bases are different answers, since a question may ask for a base: 1_7 is not 1_8.
    if (g.kind() == Kind::based && a.kind() == Kind::based && g.get().columns != a.get().columns) return false;
    const Measure mg = measure(g), ma = measure(a);
    // 90% is not 90 degrees.
    if ((mg.percent && (ma.unit || ma.mixed)) || (ma.percent && (mg.unit || mg.mixed))) return false;
    if (mg.unit && ma.unit) {
      if (mg.unit->is_generic() != ma.unit->is_generic() || are_pounds(*mg.unit, *ma.unit))
        return (are_pounds(*mg.unit, *ma.unit) || mg.unit->same_kind(*ma.unit)) && same_amount(g, a, false);
      return mg.unit->same_kind(*ma.unit) && same_amount(g, a, *mg.unit != *ma.unit || mg.mixed || ma.mixed);
    }
    if (mg.mixed || ma.mixed) return false;
    if (mg.unit || ma.unit)
      if (const auto bare_letter = without_unit_letter(mg.unit ? a : g, mg.unit ? *mg.unit : *ma.unit))
        return mg.unit ? same_amount(g, *bare_letter, false) : same_amount(*bare_letter, a, false);
    return same_amount(g, a, false);
  }
  bool same_amount(const Part& g, const Part& a, bool units) {
    if (policy_.strict) {
      if (units || is_whole(g) != is_whole(a)) return false;
      if (is_fraction(g) && is_fraction(a) && !values_.same(denominator(g), denominator(a), false, false)) return false;
      return values_.same(g, a, false, false);
    }
    return values_.same(g, a, true, units) ||
           ((g.tree->percent || a.tree->percent) && values_.same(g, a, false, units));
  }
  // The denominator as written. Fractions with equal value and equal denominator are in the same terms.
  static Part denominator(const Part& p) {
    if (p.kind() == Kind::negate || p.kind() == Kind::unit) return denominator(p.with(p.get().first));
    return p.children()[1];
  }

  // -- units
  struct Measure {
    std::optional<Unit> unit;  // the common unit; none if there is none or kinds differ
    bool mixed = false;        // a sum of several units: 1 hour 30 minutes
    bool percent = false;
  };
  // "£5" and "5 pounds"
  static bool are_pounds(const Unit& x, const Unit& y) {
    static const std::optional<Unit> pound = read_unit("pound"), sterling = read_unit("sterling");
    return (x == *pound && y == *sterling) || (x == *sterling && y == *pound);
  }
  static Measure measure(const Part& p) {
    const Node& n = p.get();
    const Part first = n.count > 0 ? p.with(n.first) : p;
    if (n.kind == Kind::unit) return {.unit = read_unit(p.text())};
    if (n.kind == Kind::percent) return {.unit = {}, .percent = true};
    if (n.kind == Kind::negate || n.kind == Kind::scale || (n.kind == Kind::plus_minus && n.count == 1))
      return measure(first);
    if ((n.kind != Kind::add && n.kind != Kind::plus_minus) || n.count != 2) return {};
    const Measure a = measure(first), b = measure(p.with(first.get().next));
    const bool mixed = a.mixed || b.mixed || (a.unit && b.unit && *a.unit != *b.unit);
    return {.unit = a.unit && b.unit && a.unit->same_kind(*b.unit) ? a.unit : std::nullopt, .mixed = mixed};
  }
  // "5m" compared with 5 meters: the letter is the unit and not a variable.
  static std::optional<Part> without_unit_letter(const Part& p, const Unit& unit) {
    if (p.kind() != Kind::multiply) return std::nullopt;
    const std::vector<Part> factors = p.children();
    const bool same = factors[1].kind() == Kind::symbol && read_unit(factors[1].text()) == unit;
    return same ? std::optional(factors[0]) : std::nullopt;
  }

  MathPolicy policy_;
  ValueComparison values_;
  int work_ = 0;
};

// Removes dollar and degree signs. A sign between digits stays. Degrees stay too if a function of an angle may be
// present (\tan 45^\circ is not \tan 45).
std::string without_unit_signs(std::string_view cleaned) {
  const bool angles = std::any_of(std::begin(angle_functions), std::end(angle_functions),
                                  [&](std::string_view name) { return cleaned.find(name) != std::string_view::npos; });
  std::string out;
  for (size_t i = 0; i < cleaned.size();) {
    const std::string_view rest = cleaned.substr(i);
    size_t length = rest.starts_with("\\dollar") || (rest.starts_with("\\degree") && !angles)
                        ? std::string_view("\\degree").size()
                        : 0;
    if (length > 0 && length < rest.size() && rest[length] == ' ') ++length;
    const bool between_digits = !out.empty() && is_digit(out.back()) && length < rest.size() && is_digit(rest[length]);
    if (length == 0 || between_digits) {
      out += cleaned[i++];
    } else {
      i += length;
    }
  }
  return out;
}

// Returns the text that is compared if an answer is not mathematics: letters and digits without punctuation. Braces
// stay if they may group a formula (\frac{15}{2} is not \frac{1}{52}).
std::string bare_text(std::string_view text) {
  const std::string cleaned = without_unit_signs(text);
  const bool formula = cleaned.find_first_of("^_") != std::string_view::npos || [&] {
    for (size_t at = cleaned.find('\\'); at != std::string_view::npos; at = cleaned.find('\\', at + 1))
      if (!std::string_view(cleaned).substr(at).starts_with("\\text")) return true;
    return false;
  }();
  std::string out;
  for (size_t i = 0; i < cleaned.size(); ++i) {
    if (std::string_view(cleaned).substr(i).starts_with("\\text")) {
      i += 4;
      continue;
    }
    const char c = cleaned[i];
    const bool between_digits =
        c == ' ' && !out.empty() && is_digit(out.back()) && i + 1 < cleaned.size() && is_digit(cleaned[i + 1]);
    const bool stop = c == '.' && !(i + 1 < cleaned.size() && is_digit(cleaned[i + 1]));
    const bool dropped = stop || (c == ' ' && !between_digits) || c == '&' || (!formula && (c == '{' || c == '}'));
    if (!dropped) out += formula ? c : to_lower(c);
  }
  if (out.size() == 3 && out.front() == '(' && out.back() == ')') out = out.substr(1, 1);
  return out;
}

bool is_plain_number(std::string_view text) {
  if (text.empty() || text.size() > max_source) return false;
  size_t digits = 0, points = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_digit(text[i]))
      ++digits;
    else if (text[i] == '.')
      ++points;
    else if (!(i == 0 && text[i] == '-'))
      return false;
  }
  return digits > 0 && points <= 1;
}

}  // namespace

}  // namespace math

bool states_last_side(std::string_view chain) {
  while (chain.starts_with('=') || chain.starts_with(' ')) chain.remove_prefix(1);
  const math::Tree tree = math::parse(math::clean(chain), true);
  if (!tree || tree.at(tree.root).kind != math::Kind::relation) return true;
  return math::Comparison({}, math::seed_of(chain, chain)).states_last_side({&tree, tree.root, 0});
}

bool math_equal(std::string_view reference, std::string_view answer, const MathPolicy& policy) {
  const std::string g = math::clean(reference), a = math::clean(answer);
  if (g.empty() || a.empty()) return false;
  if (g == a) return true;
  if (math::is_plain_number(g) && math::is_plain_number(a)) {
    if (canonical_digits(g) == canonical_digits(a)) return true;
    if (g.find('.') == std::string::npos && a.find('.') == std::string::npos) return false;
  }
  const auto holds = [](const std::string& text, std::string_view sign) {
    return text.find(sign) != std::string::npos;
  };
  const bool other_units = holds(g, "\\dollar") != holds(a, "\\dollar") && holds(g, "\\degree") != holds(a, "\\degree");
  if (const std::string bare = other_units ? "" : math::bare_text(g); !bare.empty() && bare == math::bare_text(a))
    return true;
  const math::Tree tg = math::parse(g, !policy.strict), ta = math::parse(a, !policy.strict);
  return tg && ta && math::Comparison(policy, math::seed_of(g, a)).equal({&tg, tg.root, 0}, {&ta, ta.root, 0});
}

}  // namespace hone
