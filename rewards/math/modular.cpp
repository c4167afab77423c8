#include "rewards/math/modular.h"

#include <algorithm>

#include "core/base/rng.h"

namespace hone::math {

namespace {

uint64_t multiplied(uint64_t a, uint64_t b, uint64_t modulus) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b % modulus);
}

uint64_t raised(uint64_t base, uint64_t exponent, uint64_t modulus) {
  uint64_t out = 1;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) out = multiplied(out, base, modulus);
    base = multiplied(base, base, modulus);
  }
  return out;
}

// The first twelve primes. As bases of the Miller-Rabin test they decide every odd 64-bit number (Sorenson and Webster
// 2015).
constexpr uint64_t bases[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};

// n must be odd and above 37.
bool is_prime(uint64_t n) {
  if (std::any_of(std::begin(bases), std::end(bases), [n](uint64_t base) { return n % base == 0; })) return false;
  const int twos = __builtin_ctzll(n - 1);
  return std::all_of(std::begin(bases), std::end(bases), [&](uint64_t base) {
    uint64_t x = raised(base, (n - 1) >> twos, n);
    if (x == 1 || x == n - 1) return true;
    for (int k = 1; k < twos; ++k)
      if ((x = multiplied(x, x, n)) == n - 1) return true;
    return false;
  });
}

uint64_t random_prime(const Point& point) {
  constexpr uint64_t stream = 0x7072696d65;  // "prime"; no variable has this stream
  const Philox4 out = philox(point.seed, stream, point.index);
  const uint64_t bits = (uint64_t{out.word[1]} << 32) | out.word[0];
  uint64_t candidate = (uint64_t{1} << 60) | (bits >> 4) | 1;
  while (!is_prime(candidate)) candidate += 2;
  return candidate;
}

}  // namespace

ModularArithmetic::ModularArithmetic(const Point& point, Budget& budget)
    : prime_(random_prime(point)), budget_(budget) {}

std::optional<uint64_t> ModularArithmetic::fail(Outcome why) {
  outcome = why;
  return std::nullopt;
}

std::optional<uint64_t> ModularArithmetic::integer(std::string_view digits) {
  std::optional<uint64_t> out = 0;
  for (const char c : digits) out = plus(multiplied(*out, 10, prime_), static_cast<uint64_t>(c - '0'));
  return budget_.spend(static_cast<int64_t>(digits.size())) ? out : fail(Outcome::too_large);
}

std::optional<uint64_t> ModularArithmetic::times(uint64_t a, uint64_t b) {
  return budget_.spend(1) ? std::optional(multiplied(a, b, prime_)) : fail(Outcome::too_large);
}

std::optional<uint64_t> ModularArithmetic::inverse(uint64_t a) {
  if (a == 0) return fail(Outcome::undefined);
  return budget_.spend(64) ? std::optional(raised(a, prime_ - 2, prime_)) : fail(Outcome::too_large);
}

std::optional<uint64_t> ModularArithmetic::power(uint64_t base, int64_t exponent) {
  if (!budget_.spend(64)) return fail(Outcome::too_large);
  const uint64_t size = raised(base, static_cast<uint64_t>(exponent < 0 ? -exponent : exponent), prime_);
  return exponent < 0 ? inverse(size) : std::optional(size);
}

}  // namespace hone::math
