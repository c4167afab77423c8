#include "rewards/answers/units.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "rewards/answers/text.h"

namespace hone::math {

namespace {

using enum Quantity;

struct NamedUnit {           // NOLINT(clang-analyzer-optin.performance.Padding): the order of the table below
  std::string_view symbols;  // separated by spaces, case-sensitive
  std::string_view names;    // in any case, also with a plural s
  Quantity quantity = length;
  int8_t power = 1;
  Rational factor{1, 1};
  Currency currency = Currency::none;
};

constexpr NamedUnit named_units[] = {
    {"m", "meter metre", length, 1, {1, 1}},
    {"cm", "centimeter centimetre", length, 1, {1, 100}},
    {"mm", "millimeter millimetre", length, 1, {1, 1000}},
    {"km", "kilometer kilometre", length, 1, {1000, 1}},
    {"in", "inch inche", length, 1, {127, 5000}},
    {"ft", "foot feet", length, 1, {381, 1250}},
    {"yd", "yard", length, 1, {1143, 1250}},
    {"mi", "mile", length, 1, {201168, 125}},
    {"g gm", "gram", mass, 1, {1, 1}},
    {"mg", "milligram", mass, 1, {1, 1000}},
    {"kg", "kilogram", mass, 1, {1000, 1}},
    {"lb lbs", "pound", mass, 1, {45359237, 100000}},
    {"oz", "ounce", mass, 1, {45359237, 1600000}},
    {"s sec", "second", time, 1, {1, 1}},
    {"min mins", "minute", time, 1, {60, 1}},
    {"h hr hrs", "hour", time, 1, {3600, 1}},
    {"", "day", time, 1, {86400, 1}},
    {"", "week", time, 1, {604800, 1}},
    {"", "month", calendar, 1, {1, 1}},
    {"yr yrs", "year", calendar, 1, {12, 1}},
    {"", "decade", calendar, 1, {120, 1}},
    {"", "century centurie", calendar, 1, {1200, 1}},
    {"", "cent", money, 1, {1, 1}},
    {"\\dollar USD", "dollar buck", money, 1, {100, 1}, Currency::dollar},
    {"\\euro EUR", "euro", money, 1, {100, 1}, Currency::euro},
    {"\\sterling GBP", "sterling quid", money, 1, {100, 1}, Currency::sterling},
    {"", "penny pence pennie", money, 1, {1, 1}},
    {"\\yen JPY", "yen", money, 1, {100, 1}, Currency::yen},
    {"\\rupee INR", "rupee", money, 1, {100, 1}, Currency::rupee},
    {"CNY RMB", "yuan renminbi", money, 1, {100, 1}, Currency::yuan},
    {"\\won KRW", "won", money, 1, {100, 1}, Currency::won},
    {"\\ruble RUB", "ruble rouble", money, 1, {100, 1}, Currency::ruble},
    {"MXN", "peso", money, 1, {100, 1}, Currency::peso},
    {"CHF", "franc", money, 1, {100, 1}, Currency::franc},
    {"", "celsius", temperature, 1, {1, 1}},
    {"", "fahrenheit", temperature, 1, {1, 1}},
    {"", "unit", generic, 1, {1, 1}},
    {"\\degree deg", "degree", angle, 1, {1, 1}},
    {"rad", "radian", angle, 1, {180, 1}},  // 180 / pi degrees
    {"L l", "liter litre", length, 3, {1, 1000}},
    {"mL ml", "milliliter millilitre", length, 3, {1, 1000000}},
    {"gal", "gallon", length, 3, {473176473, 125000000000}},
    {"qt", "quart", length, 3, {473176473, 500000000000}},
};

// Units of several that one word names.
struct Compound {
  std::string_view name, meaning;
};
constexpr Compound compounds[] = {{"mph", "miles per hour"}, {"kph", "km per hour"}, {"kmh", "km per hour"}};

// Words after a unit that do not change its size.
constexpr std::string_view adjectives[] = {"long",  "tall", "wide",  "high", "deep",
                                           "thick", "old",  "apart", "away", "total"};

// Words that are units after a number although they have no size, or have one only with another word.
constexpr std::string_view partial_units[] = {"square", "cubic"};

bool lists(std::string_view words, std::string_view word) {
  const std::vector<std::string_view> all = words_of(words);
  return std::find(all.begin(), all.end(), word) != all.end();
}

const NamedUnit* find_unit(std::string_view word) {
  const std::string name = lower(word);
  const std::string_view singular =
      std::string_view(name).substr(0, name.size() - (name.size() > 3 && name.ends_with('s') ? 1 : 0));
  for (const NamedUnit& unit : named_units)
    if (lists(unit.symbols, word) || lists(unit.names, name) || lists(unit.names, singular)) return &unit;
  return nullptr;
}

std::optional<Unit> unit_of(const NamedUnit& named) {
  Unit out;
  out.powers[static_cast<size_t>(named.quantity)] = named.power;
  out.factor = named.factor;
  out.currency = named.currency;
  if (named.symbols == "rad") out.pi_power = -1;
  out.fahrenheit = named.names == "fahrenheit";
  return out;
}

std::optional<Unit> product(const Unit& a, const Unit& b, int exponent) {
  constexpr int max_exponent = 6;
  if (exponent < -max_exponent || exponent > max_exponent) return std::nullopt;
  Unit out = a;
  for (size_t q = 0; q < out.powers.size(); ++q)
    out.powers[q] = static_cast<int8_t>(out.powers[q] + exponent * b.powers[q]);
  if (a.currency != Currency::none && b.currency != Currency::none && a.currency != b.currency) return std::nullopt;
  if (b.currency != Currency::none) out.currency = b.currency;
  out.fahrenheit = a.fahrenheit || b.fahrenheit;
  out.pi_power = static_cast<int8_t>(out.pi_power + exponent * b.pi_power);
  for (int k = 0; k < std::abs(exponent); ++k) {
    const std::optional<Rational> factor = apply(exponent < 0 ? '/' : '*', out.factor, b.factor);
    if (!factor) return std::nullopt;
    out.factor = *factor;
  }
  return out;
}

// Returns the words, numbers and '/' of a phrase. Grouping characters are dropped.
std::vector<std::string> tokens_of(std::string_view phrase) {
  std::vector<std::string> out;
  for (size_t i = 0; i < phrase.size();) {
    if (phrase.substr(i).starts_with("\\text")) {
      i += 5;
      continue;
    }
    const char c = phrase[i];
    size_t end = i + 1;
    if (c == '\\' || is_letter(c))
      while (end < phrase.size() && is_letter(phrase[end])) ++end;
    else if (is_digit(c))
      while (end < phrase.size() && is_digit(phrase[end])) ++end;
    if (c == '/' || c == '-' || c == '\\' || is_letter(c) || is_digit(c)) out.emplace_back(phrase.substr(i, end - i));
    i = end;
  }
  return out;
}

// Returns the temperature scale of "degrees Celsius" and "\degree C"; null for any other word.
const NamedUnit* temperature_of(std::string_view word) {
  const NamedUnit* named = find_unit(word == "C" ? "celsius" : word == "F" ? "fahrenheit" : word);
  return named && named->quantity == temperature ? named : nullptr;
}

// Reads the next units of a phrase, each with its exponent.
class UnitReader {
 public:
  explicit UnitReader(std::string_view phrase) : tokens_(tokens_of(phrase)) {}

  std::optional<Unit> run() {
    Unit out;
    int direction = 1;
    size_t units = 0;
    while (at_ < tokens_.size()) {
      const std::string& token = tokens_[at_];
      if (token == "/" || token == "per") {
        direction = -1;
        ++at_;
        continue;
      }
      if (units > 0 && direction == 1 && ends_in_adjective()) break;
      const std::optional<Unit> next = one(direction, out);
      if (!next) return std::nullopt;
      out = *next;
      ++units;
    }
    return units > 0 ? std::optional(out) : std::nullopt;
  }

 private:
  bool ends_in_adjective() const {
    return at_ + 1 == tokens_.size() &&
           std::find(std::begin(adjectives), std::end(adjectives), tokens_[at_]) != std::end(adjectives);
  }
  bool take(std::initializer_list<std::string_view> words) {
    if (at_ >= tokens_.size() || std::find(words.begin(), words.end(), tokens_[at_]) == words.end()) return false;
    ++at_;
    return true;
  }
  // Reads [square] unit [^2] and multiplies it with the units before it.
  std::optional<Unit> one(int direction, const Unit& before) {
    int exponent = take({"square", "sq"}) ? 2 : take({"cubic", "cu"}) ? 3 : 1;
    if (at_ >= tokens_.size()) return std::nullopt;
    const std::string word = tokens_[at_++];
    if ((word == "\\degree" || word == "degrees" || word == "degree") && at_ < tokens_.size())
      if (const NamedUnit* scale = temperature_of(tokens_[at_])) {
        ++at_;
        return product(before, *unit_of(*scale), direction);
      }
    if (take({"squared"})) exponent = 2;
    if (take({"cubed"})) exponent = 3;
    const bool minus = take({"-"});
    if (at_ < tokens_.size() && is_digit(tokens_[at_][0])) exponent = tokens_[at_++].at(0) - '0';
    if (minus) exponent = -exponent;
    for (const Compound& compound : compounds)
      if (compound.name == word) {
        const std::optional<Unit> unit = read_unit(compound.meaning);
        return unit ? product(before, *unit, direction * exponent) : std::nullopt;
      }
    const NamedUnit* named = find_unit(word);
    return named ? product(before, *unit_of(*named), direction * exponent) : std::nullopt;
  }

  std::vector<std::string> tokens_;
  size_t at_ = 0;
};

}  // namespace

std::optional<Unit> read_unit(std::string_view phrase) { return UnitReader(phrase).run(); }

bool is_unit(std::string_view word) {
  if (std::find(std::begin(partial_units), std::end(partial_units), word) != std::end(partial_units) || word == "mph" ||
      word == "kph")
    return true;
  const NamedUnit* named = word.size() >= 2 && word != "in" ? find_unit(word) : nullptr;
  return named && named->quantity != money;
}

bool is_currency_command(std::string_view name) {
  return std::any_of(std::begin(named_units), std::end(named_units), [&](const NamedUnit& unit) {
    return unit.currency != Currency::none && unit.symbols.starts_with('\\') &&
           unit.symbols.substr(1, unit.symbols.find(' ') - 1) == name;
  });
}

bool Unit::same_kind(const Unit& other) const {
  // Generic "units" match any length, area or volume.
  if (is_generic() != other.is_generic()) {
    const Unit& plain = is_generic() ? other : *this;
    const int8_t power = (is_generic() ? *this : other).powers[static_cast<size_t>(Quantity::generic)];
    std::array<int8_t, 8> lengths{};
    lengths[static_cast<size_t>(Quantity::length)] = power;
    return plain.powers == lengths;
  }
  const bool currencies = currency == other.currency || currency == Currency::none || other.currency == Currency::none;
  return powers == other.powers && currencies && fahrenheit == other.fahrenheit;
}

}  // namespace hone::math
