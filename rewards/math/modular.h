#pragma once
// Values modulo a 61-bit prime, for numbers that are too large to write out: 10^{10^{10}}. The prime is random and
// depends on the point's seed, a hash of both texts. With a fixed prime it would be easy to write an unequal number
// that is congruent to the reference.
#include <cstdint>
#include <optional>
#include <string_view>

#include "rewards/math/rational_value.h"

namespace hone::math {

class ModularArithmetic {
 public:
  using Value = uint64_t;

  ModularArithmetic(const Point& point, Budget& budget);

  std::optional<uint64_t> integer(std::string_view digits);
  std::optional<uint64_t> small(int64_t value) {
    const uint64_t size = static_cast<uint64_t>(value < 0 ? -value : value) % prime_;
    return value < 0 ? (prime_ - size) % prime_ : size;
  }
  std::optional<uint64_t> symbol(uint64_t draw, bool) { return draw % prime_; }
  std::optional<uint64_t> imaginary() { return fail(Outcome::irrational); }
  std::optional<uint64_t> plus(uint64_t a, uint64_t b) { return (a + b) % prime_; }
  std::optional<uint64_t> times(uint64_t a, uint64_t b);
  std::optional<uint64_t> inverse(uint64_t a);
  std::optional<uint64_t> power(uint64_t base, int64_t exponent);
  std::optional<uint64_t> function(std::string_view, uint64_t, int64_t) { return fail(Outcome::irrational); }

  Outcome outcome = Outcome::value;

 private:
  std::optional<uint64_t> fail(Outcome why);

  uint64_t prime_;
  Budget& budget_;
};

}  // namespace hone::math
