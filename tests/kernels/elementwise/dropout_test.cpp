#include "kernels/elementwise/dropout.h"

#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_check.h"

namespace hone::test {
namespace {

[[maybe_unused]] const bool added = op_cases().add("dropout", [] {
  const Floats x = normals({7, 13}, 1, 1, 3);
  Floats y = poisoned({7, 13}, 2);
  expect_bodies_agree(dropout, {&y}, {0, 0}, y, x, 2.5f, Dropout{.rate = 0.3f, .seed = 5, .stream = 9, .first_row = 4});
});

// The contract as a loop.
TEST(Dropout, KeepsWhatTheDrawsSay) {
  const Floats x = normals({3, 6}, 2);
  Floats y = poisoned({3, 6});
  dropout(cpu(), y, x, 2, {.rate = 0.5f, .seed = 11, .stream = 3, .first_row = 10});
  for (int64_t r = 0; r < 3; ++r)
    for (int64_t c = 0; c < 6; ++c) {
      const uint32_t word = philox(11, 3, static_cast<uint64_t>((10 + r) * 2 + c / 4)).word[c % 4];
      EXPECT_EQ(y[r * 6 + c], static_cast<double>(word >> 8) / (1 << 24) >= 0.5 ? 2 * x[r * 6 + c] : 0);
    }
}

TEST(Dropout, RowsDoNotDependOnHowTheyAreCut) {
  const Floats x = normals({9, 5}, 3);
  Floats whole = poisoned({9, 5}), cut = poisoned({9, 5});
  const auto which = [](int64_t first_row) {
    return Dropout{.rate = 0.4f, .seed = 1, .stream = 2, .first_row = first_row};
  };
  dropout(cpu(), whole, x, 1, which(0));
  dropout(cpu(), cut.tensor().rows(0, 4), x.tensor().rows(0, 4), 1, which(0));
  dropout(cpu(), cut.tensor().rows(4, 5), x.tensor().rows(4, 5), 1, which(4));
  EXPECT_TRUE(close(cut, whole, {0, 0}));
}

TEST(Dropout, DropsItsShareAndScalesInPlace) {
  Floats x({200, 500}, 1.0f);
  dropout(cpu(), x, x, 1 / 0.75f, {.rate = 0.25f, .seed = 8, .stream = 1});
  int64_t kept = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    ASSERT_TRUE(x[i] == 0 || x[i] == 1 / 0.75f);
    kept += x[i] != 0;
  }
  EXPECT_NEAR(static_cast<double>(kept) / 1e5, 0.75, 0.005);  // more than three standard deviations
  Floats plain({2, 3}, 4.0f);
  dropout(cpu(), plain, plain, 0.5f, {});
  for (int64_t i = 0; i < plain.size(); ++i) EXPECT_EQ(plain[i], 2);
}

}  // namespace
}  // namespace hone::test
