#pragma once
// Units of measure: what kind of quantity they are of, and how many of that kind's base unit they hold.
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "rewards/answers/rational.h"

namespace hone::math {

// Kinds of quantity, each with its base unit. Months and years are a kind of their own, since a month is no fixed
// number of days.
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
  std::array<int8_t, 8> powers{};  // of each Quantity: an area is length^2, a speed length^1 time^-1
  Rational factor{1, 1};           // in base units, times a power of pi
  int8_t pi_power = 0;
  Currency currency = Currency::none;  // none for cents, too
  bool fahrenheit = false;

  bool same_kind(const Unit& other) const;
  // "units", "square units": of no size of their own.
  bool is_generic() const { return powers[static_cast<size_t>(Quantity::generic)] != 0; }
  bool operator==(const Unit&) const = default;
};

// A unit as it is written after a number: "cm", "square inches", "km/h", "\text{cm}^{2}", "miles per hour", "feet
// tall". Empty for any other words: they may name what was counted.
std::optional<Unit> read_unit(std::string_view phrase);

// A command for the sign of a currency: "euro" of "\euro 5".
bool is_currency_command(std::string_view name);

// The word is a unit wherever it follows a number: "cm", "hours", "square". Letters that a variable may have are not
// ("m").
bool is_unit(std::string_view word);

}  // namespace hone::math
