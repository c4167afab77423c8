#include "core/base/rng.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

namespace hone {
namespace {

std::array<uint32_t, 4> words(Philox4 x) { return {x.word[0], x.word[1], x.word[2], x.word[3]}; }

// The known answers of the Philox authors, published with Random123 (philox4x32, 10 rounds).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(words(philox(0, 0, 0)), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words(philox(~0ull, ~0ull, ~0ull)),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0
  EXPECT_EQ(words(philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88)),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, ACursorIsThreeIntegers) {
  Rng a(5, 7);
  for (int i = 0; i < 10; ++i) a.next();
  Rng b(5, 7, a.index());
  EXPECT_EQ(a.next(), b.next());
  EXPECT_NE(Rng(5, 7).next(), Rng(5, 8).next());
  EXPECT_NE(Rng(5, 7).next(), Rng(6, 7).next());
}

TEST(Rng, UniformDrawsFillTheirRange) {
  Rng rng(1);
  std::array<int, 10> counts{};
  for (int i = 0; i < 100000; ++i) {
    const double x = rng.uniform();
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    ++counts[static_cast<size_t>(x * 10)];
  }
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);  // five standard deviations
}

TEST(Rng, BelowIsBoundedAndReachesAll) {
  Rng rng(2);
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(rng.below(7));
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_EQ(*seen.rbegin(), 6u);
  for (int i = 0; i < 100; ++i) EXPECT_LT(rng.below((1ull << 63) + 1), (1ull << 63) + 1);
  EXPECT_EQ(rng.below(1), 0u);
}

TEST(Rng, NormalDrawsHaveTheirMoments) {
  Rng rng(3);
  double sum = 0, squares = 0;
  constexpr int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double x = rng.normal();
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / n, 0, 0.02);
  EXPECT_NEAR(squares / n, 1, 0.03);
}

TEST(Rng, UnitFloatsStayInside) {
  EXPECT_EQ(unit_float(0), 0.0f);
  EXPECT_LT(unit_float(~0u), 1.0f);
  EXPECT_GT(open_unit_float(0), 0.0f);
  EXPECT_LT(open_unit_float(~0u), 1.0f);
}

TEST(StreamOf, NamesGiveDistinctStreams) {
  static_assert(stream_of("") == 0xcbf29ce484222325u);
  static_assert(stream_of("a") == 0xaf63dc4c8601ec8cu);  // FNV-1a's own test value
  EXPECT_NE(stream_of("loader"), stream_of("sampler"));
}

}  // namespace
}  // namespace hone
