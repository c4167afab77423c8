#include "kernels/elementwise/noise.h"

#include "core/base/parallel_for.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_check.h"

namespace hone::test {
namespace {

Ids offsets_of(std::initializer_list<int32_t> bounds) {
  Ids out({static_cast<int64_t>(bounds.size())});
  int64_t i = 0;
  for (const int32_t bound : bounds) out[i++] = bound;
  return out;
}

[[maybe_unused]] const bool added = op_cases().add("add_embedding_noise", [] {
  for (const int64_t dim : {1, 7, 64, 130}) {
    Floats x = normals({12, dim}, 1, 1, 3);
    expect_bodies_agree(add_embedding_noise, {&x}, {0, 0}, x, offsets_of({0, 5, 5, 6, 12}),
                        EmbeddingNoise{.alpha = 5, .seed = 3, .first = 7});
  }
  Floats none({0, 4});
  expect_bodies_agree(add_embedding_noise, {&none}, {0, 0}, none, offsets_of({0}), EmbeddingNoise{.alpha = 5});
});

Floats noise_of(std::initializer_list<int32_t> bounds, int64_t dim, EmbeddingNoise noise) {
  Floats out({*(bounds.end() - 1), dim}, 0.0f);
  add_embedding_noise(cpu(), out, offsets_of(bounds), noise);
  return out;
}

}  // namespace

TEST(EmbeddingNoise, IsUniformWithinAlphaOverTheRootOfLengthTimesWidth) {
  constexpr int64_t length = 400, dim = 50;
  const Floats x = noise_of({0, length}, dim, {.alpha = 5, .seed = 11});
  const double bound = 5 / std::sqrt(double{length} * dim);
  double sum = 0, squares = 0, largest = 0;
  for (int64_t i = 0; i < x.size(); ++i)
    sum += x[i], squares += double{x[i]} * x[i], largest = std::max<double>(largest, std::abs(x[i]));
  const auto count = static_cast<double>(x.size());
  EXPECT_LE(largest, bound * (1 + 1e-6));
  EXPECT_GT(largest, 0.99 * bound);
  EXPECT_NEAR(sum / count, 0, 4 * bound / std::sqrt(3 * count));
  EXPECT_NEAR(squares / count, bound * bound / 3, 0.03 * bound * bound);
}

TEST(EmbeddingNoise, ASequencesDrawsDependOnItsNumberAloneAndNotOnItsBatch) {
  const EmbeddingNoise noise{.alpha = 5, .seed = 3, .first = 7};
  const Floats together = noise_of({0, 5, 12}, 6, noise),
               alone = noise_of({0, 7}, 6, {.alpha = 5, .seed = 3, .first = 8});
  bool other = false;
  for (int64_t i = 0; i < alone.size(); ++i) EXPECT_EQ(together[5 * 6 + i], alone[i]);
  for (int64_t i = 0; i < 30; ++i) other = other || together[i] != alone[i];
  EXPECT_TRUE(other);
  const Floats seeded = noise_of({0, 7}, 6, {.alpha = 5, .seed = 4, .first = 8});
  EXPECT_NE(seeded[0], alone[0]);
  set_num_threads(1);
  const Floats one_thread = noise_of({0, 5, 12}, 6, noise);
  set_num_threads(2);
  for (int64_t i = 0; i < together.size(); ++i) EXPECT_EQ(together[i], one_thread[i]);
}

}  // namespace hone::test
