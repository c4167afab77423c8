#include "kernels/moe/dispatch.h"

#include "tests/kernels/moe/experts.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"

namespace hone::test {
namespace {

constexpr int64_t E = 7, k = 3;
constexpr int64_t token_counts[] = {0, 1, 5, 200};
constexpr int64_t capacities[] = {0, 4};

[[maybe_unused]] const bool added = op_cases().add("moe_dispatch", [] {
  for (const int64_t T : token_counts)
    for (const int64_t capacity : capacities) {
      const Ids experts = random_experts(T, k, E, 1), order({T * k}), places({T, k}), offsets({E + 1});
      expect_bodies_agree(
          moe_dispatch, {0, 0},
          {.order = order, .places = places, .offsets = offsets, .experts = experts, .capacity = capacity});
    }
}) && op_cases().add("moe_gather", [] {
  for (const int64_t T : token_counts)
    for (const int64_t capacity : capacities) {
      const Dispatched sorted(random_experts(T, k, E, 1), E, capacity);
      const Floats x = normals({T, 33}, 2, 1, 3), y = poisoned({T * k, 33}, 1);
      expect_bodies_agree(moe_gather, {0, 0}, {.y = y, .x = x, .order = sorted.order});
    }
}) && op_cases().add("moe_combine", [] {
  for (const int64_t T : token_counts)
    for (const int64_t capacity : capacities) {
      const Dispatched sorted(random_experts(T, k, E, 1), E, capacity);
      const Floats x = normals({T * k, 33}, 2, 1, 3), y = poisoned({T, 33}, 1), weights = normals({T, k}, 3),
                   residual = normals({T, 33}, 4, 1, 2);
      expect_bodies_agree(moe_combine, {0, 0},
                          {.y = y, .x = x, .places = sorted.places, .weights = weights, .residual = residual});
      expect_bodies_agree(moe_combine, {0, 0}, {.y = y, .x = x, .places = sorted.places});
    }
}) && op_cases().add("moe_weight_backward", [] {
  for (const int64_t T : token_counts)
    for (const int64_t capacity : capacities) {
      const Dispatched sorted(random_experts(T, k, E, 1), E, capacity);
      const Floats g = normals({T * k, 33}, 2, 1, 3), h = normals({T * k, 33}, 3, 1, 1), weights = normals({T, k}, 4),
                   dweights = poisoned({T, k}, 1);
      expect_bodies_agree(moe_weight_backward, {1e-5, 1e-6},
                          {.dweights = dweights, .g = g, .h = h, .weights = weights, .places = sorted.places});
    }
});

}  // namespace

TEST(MoeDispatch, SortsChoicesByExpertThenToken) {
  for (const int64_t T : token_counts) {
    const Ids experts = random_experts(T, k, E, 1);
    const Dispatched sorted(experts, E);
    EXPECT_EQ(sorted.offsets[0], 0);
    EXPECT_EQ(sorted.offsets[E], T * k);
    for (int64_t e = 0; e < E; ++e)
      for (int32_t p = sorted.offsets[e]; p < sorted.offsets[e + 1]; ++p) {
        EXPECT_EQ(experts[sorted.order[p]], e);
        EXPECT_EQ(sorted.places[sorted.order[p]], p);
        if (p == sorted.offsets[e]) continue;
        EXPECT_LT(sorted.order[p - 1], sorted.order[p]) << "not stable";
      }
  }
}

TEST(MoeDispatch, CapacityKeepsTheFirstChoicesOfAnExpert) {
  const int64_t T = 50, capacity = 4;
  const Ids experts = random_experts(T, k, E, 1);
  const Dispatched sorted(experts, E, capacity);
  std::vector<int64_t> seen(E);
  int64_t dropped = 0;
  for (int64_t i = 0; i < T * k; ++i) {
    const bool kept = seen[static_cast<size_t>(experts[i])]++ < capacity;
    EXPECT_EQ(sorted.places[i] >= 0, kept) << "choice " << i;
    dropped += !kept;
  }
  EXPECT_GT(dropped, 0);
  EXPECT_EQ(sorted.offsets[E], T * k - dropped);
  for (int64_t p = sorted.offsets[E]; p < T * k; ++p) EXPECT_EQ(sorted.order[p], -1);
}

TEST(MoeDispatch, RefusesExpertsThatDoNotExist) {
  Ids experts = random_experts(4, 2, E, 1);
  experts[3] = static_cast<int32_t>(E);
  EXPECT_THROW(Dispatched(experts, E), Error);
  experts[3] = -1;
  EXPECT_THROW(Dispatched(experts, E), Error);
}

// Every expert the identity: the result is the token times the sum of its weights.
TEST(MoeCombine, UndoesTheDispatch) {
  const int64_t T = 9, D = 5;
  const Dispatched sorted(random_experts(T, k, E, 1), E);
  const Floats x = normals({T, D}, 2), weights({T, k}, 0.5f);
  Floats rows = poisoned({T * k, D}), y = poisoned({T, D});
  moe_gather(cpu(), {.y = rows, .x = x, .order = sorted.order});
  moe_combine(cpu(), {.y = y, .x = rows, .places = sorted.places, .weights = weights});
  for (int64_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], 1.5f * x[i], 1e-6);
}

TEST(MoeGather, GradientIsCombineWithoutWeights) {
  const int64_t T = 4, D = 3;
  const Dispatched sorted(random_experts(T, k, E, 1), E, 2);
  Floats x = normals({T, D}, 2);
  const Floats dy = normals({T * k, D}, 3);
  const auto loss = [&] {
    Floats y = poisoned({T * k, D});
    moe_gather(cpu(), {.y = y, .x = x, .order = sorted.order});
    double sum = 0;
    for (int64_t i = 0; i < y.size(); ++i) sum += double{y[i]} * double{dy[i]};
    return sum;
  };
  Floats dx = poisoned({T, D});
  moe_combine(cpu(), {.y = dx, .x = dy, .places = sorted.places});
  expect_gradient(loss, x, dx);
}

// y[t] = sum_c w_c h_c . W^T with one W for all experts, whose loss is <y, dout>.
TEST(MoeWeightBackward, IsTheGradientOfCombineAfterAProduct) {
  const int64_t T = 4, F = 6;
  const Dispatched sorted(random_experts(T, k, E, 1), E, 2);
  Floats weights = normals({T, k}, 2), h = normals({T * k, F}, 3);
  const Floats dout = normals({T, F}, 4);  // W is the identity
  const auto loss = [&] {
    Floats y = poisoned({T, F});
    moe_combine(cpu(), {.y = y, .x = h, .places = sorted.places, .weights = weights});
    double sum = 0;
    for (int64_t i = 0; i < y.size(); ++i) sum += double{y[i]} * double{dout[i]};
    return sum;
  };
  Floats g = poisoned({T * k, F}), weighted = h, dweights = poisoned({T, k});
  moe_gather(cpu(), {.y = g, .x = dout, .order = sorted.order});
  moe_weight_backward(cpu(),
                      {.dweights = dweights, .g = g, .h = weighted, .weights = weights, .places = sorted.places});
  expect_gradient(loss, weights, dweights);
  for (int64_t p = sorted.offsets[E]; p < T * k; ++p)
    for (int64_t i = 0; i < F; ++i) h[p * F + i] = g[p * F + i] = 0;  // of no choice
  expect_gradient(loss, h, g);
}

}  // namespace hone::test
