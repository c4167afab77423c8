#pragma once
// Units of measure: the kind of quantity they measure, and their size in base units of that kind.
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "rewards/answers/rational.h"

namespace hone::math {

// Kinds of quantity, each with its base unit. Months and years are a separate kind, since a month has no fixed number
// of days.
enum class Quantity : uint8_t {
  length,
  mass,
  time,
  calendar,
  money,
  angle,
  temperature,
  generic
};  // meter, gram, second, month, cent, degree, degree Celsius, unit

// Money of different currencies does not convert.
enum class Currency : uint8_t { none, dollar, euro, sterling, yen, rupee, yuan, won, ruble, peso, franc };

struct Unit {
  std::array<int8_t, 8> powers{};  // exponent of each Quantity: an area is length^2, a speed length^1 time^-1
  Rational factor{1, 1};           // in base units, times a power of pi
  int8_t pi_power = 0;
  Currency currency = Currency::none;  // none for cents
  bool fahrenheit = false;

  bool same_kind(const Unit& other) const;
  // "units", "square units": units without a size.
  bool is_generic() const { return powers[static_cast<size_t>(Quantity::generic)] != 0; }
  bool operator==(const Unit&) const = default;
};

// Returns the unit that is written after a number: "cm", "square inches", "km/h", "\text{cm}^{2}", "miles per hour",
// "feet tall". Returns nothing for other words, which may name what was counted.
std::optional<Unit> read_unit(std::string_view phrase);

// Returns true for a LaTeX command of a currency: "euro" of "\euro 5".
bool is_currency_command(std::string_view name);

// Returns true if the word is a unit wherever it follows a number: "cm", "hours", "square". Letters that may be
// variables are not ("m").
bool is_unit(std::string_view word);

}  // namespace hone::math
