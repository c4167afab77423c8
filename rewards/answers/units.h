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
  angle
};  // meter, gram, second, month, cent, degree

struct Unit {
  std::array<int8_t, 6> powers{};  // of each Quantity: an area is length^2, a speed length^1 time^-1
  Rational factor{1, 1};           // in base units, times a power of pi
  int8_t pi_power = 0;

  bool same_kind(const Unit& other) const { return powers == other.powers; }
  bool operator==(const Unit&) const = default;
};

// A unit as it is written after a number: "cm", "square inches", "km/h", "\text{cm}^{2}", "miles per hour", "feet
// tall". Empty for any other words: they may name what was counted.
std::optional<Unit> read_unit(std::string_view phrase);

// The word is a unit wherever it follows a number: "cm", "hours", "square". Letters that a variable may have are not
// ("m").
bool is_unit(std::string_view word);

}  // namespace hone::math
