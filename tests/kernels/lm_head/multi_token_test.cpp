#include "kernels/lm_head/multi_token.h"

#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"

namespace hone::test {
namespace {

// Positions of sequences of these lengths.
Ids positions_of(std::initializer_list<int64_t> lengths) {
  int64_t total = 0, at = 0;
  for (const int64_t length : lengths) total += length;
  Ids out({total});
  for (const int64_t length : lengths)
    for (int64_t i = 0; i < length; ++i) out[at++] = static_cast<int32_t>(i);
  return out;
}

struct Shifted {
  Ids next, from, targets;
  Floats next_weights, target_weights, dlogp;
  Shifted(int64_t T, int64_t R)
      : next({T}), from({R}), targets({R}), next_weights({T}), target_weights({R}), dlogp({R}) {}
  MultiTokenShift args(const Ids& tokens, const Ids& positions, const Floats& weights, const Ids& rows,
                       int64_t distance, float factor) {
    return {.next = next,
            .next_weights = next_weights,
            .from = from,
            .targets = targets,
            .target_weights = target_weights,
            .dlogp = dlogp,
            .tokens = tokens,
            .positions = positions,
            .weights = weights,
            .rows = rows,
            .distance = distance,
            .factor = factor};
  }
};

[[maybe_unused]] const bool added = op_cases().add("multi_token_shift", [] {
  const Ids positions = positions_of({5, 1, 300, 2});
  const int64_t T = positions.size();
  const Ids tokens = random_ids(T, 50, 1);
  const Floats weights = normals({T}, 2);
  for (const int64_t R : {0, 7, 150})
    for (const int64_t distance : {1, 3}) {
      Ids rows({R});
      for (int64_t r = 0; r < R; ++r) rows[r] = static_cast<int32_t>(2 * r);
      Shifted out(T, R);
      expect_bodies_agree(multi_token_shift, {0, 0}, out.args(tokens, positions, weights, rows, distance, 0.3f));
    }
}) && op_cases().add("multi_token_sums", [] {
  for (const int64_t R : {0, 1, 700}) {
    const Floats sums = normals({3}, 1), logp = normals({R}, 2), hit = normals({R}, 3), weights = normals({R}, 4);
    expect_bodies_agree(multi_token_sums, {1e-5, 1e-5}, {.sums = sums, .logp = logp, .hit = hit, .weights = weights});
  }
});

std::vector<int32_t> list(const Ids& ids) {
  const std::span<int32_t> all = ids.tensor().as<int32_t>();
  return {all.begin(), all.end()};
}
std::vector<float> list(const Floats& numbers) {
  const std::span<float> all = numbers.tensor().as<float>();
  return {all.begin(), all.end()};
}

}  // namespace

// Sequences of 4 and 3 tokens; all but the first of each are trained on.
TEST(MultiTokenShift, StaysWithinASequence) {
  const Ids positions = positions_of({4, 3});
  Ids tokens({7}), rows({5});
  Floats weights({7});
  for (int64_t t = 0; t < 7; ++t) {
    tokens[t] = static_cast<int32_t>(10 + t);
    weights[t] = positions[t] == 0 ? 0 : static_cast<float>(t);
  }
  for (int64_t r = 0; r < 5; ++r) rows[r] = static_cast<int32_t>(r < 3 ? r : r + 1);
  Shifted out(7, 5);
  multi_token_shift(cpu(), out.args(tokens, positions, weights, rows, 1, 0.5f));
  EXPECT_EQ(list(out.next), (std::vector<int32_t>{11, 12, 13, 13, 15, 16, 16}));
  EXPECT_EQ(list(out.next_weights), (std::vector<float>{2, 3, 0, 0, 6, 0, 0}));
  // Rows 0 and 4 would need the token before their sequence.
  EXPECT_EQ(list(out.from), (std::vector<int32_t>{6, 0, 1, 3, 4}));
  EXPECT_EQ(list(out.targets), (std::vector<int32_t>{0, 12, 13, 0, 16}));
  EXPECT_EQ(list(out.target_weights), (std::vector<float>{0, 2, 3, 0, 6}));
  EXPECT_EQ(list(out.dlogp), (std::vector<float>{0, -1, -1.5f, 0, -3}));
}

TEST(MultiTokenShift, ADistanceBeyondAllTokensPredictsNothing) {
  const Ids positions = positions_of({2, 2});
  const Ids tokens = random_ids(4, 9, 1), rows = random_ids(1, 1, 1);
  const Floats weights({4}, 1.0f);
  Shifted out(4, 1);
  multi_token_shift(cpu(), out.args(tokens, positions, weights, rows, 9, 1));
  EXPECT_EQ(list(out.next), list(tokens));
  EXPECT_EQ(list(out.next_weights), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(list(out.target_weights), std::vector<float>{0});
  EXPECT_THROW(multi_token_shift(cpu(), out.args(tokens, positions, weights, rows, 0, 1)), Error);
}

}  // namespace hone::test
