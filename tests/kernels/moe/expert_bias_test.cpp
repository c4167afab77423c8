#include "kernels/moe/expert_bias.h"

#include "core/base/parallel_for.h"
#include "tests/kernels/adds_once_check.h"
#include "tests/kernels/moe/experts.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"

namespace hone::test {
namespace {

constexpr int64_t E = 7, k = 3;
constexpr int64_t token_counts[] = {0, 1, 5, 200};
constexpr int64_t capacities[] = {0, 4};

[[maybe_unused]] const bool added = op_cases().add("expert_bias_forward", [] {
  for (const int64_t T : token_counts)
    for (const int64_t capacity : capacities) {
      const Dispatched sorted(random_experts(T, k, E, 1), E, capacity);
      const Floats y = poisoned({T * k, 33}, 3), bias = normals({E, 33}, 2, 1, 1);
      expect_bodies_agree(expert_bias_forward, {0, 0}, {.y = y, .bias = bias, .offsets = sorted.offsets});
    }
}) && op_cases().add("expert_bias_backward", [] {
  for (const int64_t T : token_counts)
    for (const int64_t capacity : capacities) {
      const Dispatched sorted(random_experts(T, k, E, 1), E, capacity);
      const Floats dbias = normals({E, 33}, 2, 1, 1), dy = normals({T * k, 33}, 3, 1, 2), weights = normals({T, k}, 4);
      expect_bodies_agree(expert_bias_backward, {1e-5, 1e-6}, {.dbias = dbias, .dy = dy, .offsets = sorted.offsets});
      expect_bodies_agree(
          expert_bias_backward, {1e-5, 1e-6},
          {.dbias = dbias, .dy = dy, .offsets = sorted.offsets, .weights = weights, .order = sorted.order});
    }
}) && op_cases().add("expert_bias_weights", [] {
  for (const int64_t T : token_counts)
    for (const int64_t capacity : capacities) {
      const Ids experts = random_experts(T, k, E, 1);
      const Dispatched sorted(experts, E, capacity);
      const Floats dweights = normals({T, k}, 2, 1, 1), dy = normals({T * k, 33}, 3, 1, 2),
                   bias = normals({E, 33}, 4, 1, 1);
      expect_bodies_agree(expert_bias_weights, {1e-5, 1e-6},
                          {.dweights = dweights, .dy = dy, .bias = bias, .experts = experts, .places = sorted.places});
    }
});

}  // namespace

TEST(ExpertBias, EachRowGetsTheBiasOfItsExpert) {
  const int64_t T = 9;
  const Ids experts = random_experts(T, k, E, 1);
  const Dispatched sorted(experts, E, 4);
  const Floats bias = normals({E, 5}, 2);
  Floats y = poisoned({T * k, 5});
  expert_bias_forward(cpu(), {.y = y, .bias = bias, .offsets = sorted.offsets});
  for (int64_t p = 0; p < T * k; ++p)
    for (int64_t i = 0; i < 5; ++i)
      EXPECT_EQ(y[p * 5 + i], sorted.order[p] < 0 ? 0 : bias[experts[sorted.order[p]] * 5 + i]);
}

// out[t] = sum over c of weights[t, c] * bias[experts[t, c]]: the gradients of both operands.
TEST(ExpertBias, GradientsAreFiniteDifferences) {
  const int64_t T = 6, N = 4;
  const Ids experts = random_experts(T, k, E, 1);
  for (const int64_t capacity : capacities) {
    const Dispatched sorted(experts, E, capacity);
    Floats bias = normals({E, N}, 2), weights = normals({T, k}, 3);
    const Floats dout = normals({T, N}, 4);
    const auto loss = [&] {
      Floats y = poisoned({T * k, N}), out = poisoned({T, N});
      expert_bias_forward(cpu(), {.y = y, .bias = bias, .offsets = sorted.offsets});
      moe_combine(cpu(), {.y = out, .x = y, .places = sorted.places, .weights = weights});
      double sum = 0;
      for (int64_t i = 0; i < out.size(); ++i) sum += double{out[i]} * dout[i];
      return sum;
    };
    Floats dy = poisoned({T * k, N}), dbias({E, N}), dweights({T, k});
    moe_gather(cpu(), {.y = dy, .x = dout, .order = sorted.order});
    expert_bias_weights(cpu(),
                        {.dweights = dweights, .dy = dy, .bias = bias, .experts = experts, .places = sorted.places});
    expert_bias_backward(
        cpu(), {.dbias = dbias, .dy = dy, .offsets = sorted.offsets, .weights = weights, .order = sorted.order});
    expect_gradient(loss, bias, dbias);
    expect_gradient(loss, weights, dweights);
  }
}

TEST(ExpertBias, GradientIsAddedOnce) {
  const int64_t T = 60, N = 9;
  const Dispatched sorted(random_experts(T, k, E, 1), E);
  const Floats dy = normals({T * k, N}, 3), weights = normals({T, k}, 4);
  each_cpu_body(expert_bias_backward, [&](auto run, const std::string&) {
    expect_adds_once({Floats({E, N})}, [&](std::vector<Floats>& grads) {
      run({.dbias = grads[0], .dy = dy, .offsets = sorted.offsets, .weights = weights, .order = sorted.order});
    });
  });
}

TEST(ExpertBias, RefusesRowsAndChoicesThatDoNotExist) {
  const int64_t T = 4, N = 3;
  Ids experts = random_experts(T, k, E, 1);
  Dispatched sorted(experts, E);
  Floats y = poisoned({T * k, N}), dweights({T, k});
  const Floats bias = normals({E, N}, 2), weights = normals({T, k}, 3);
  sorted.order[0] = static_cast<int32_t>(T * k);
  EXPECT_THROW(
      expert_bias_backward(
          cpu(), {.dbias = bias, .dy = y, .offsets = sorted.offsets, .weights = weights, .order = sorted.order}),
      Error);
  sorted.places[0] = static_cast<int32_t>(T * k);
  EXPECT_THROW(expert_bias_weights(
                   cpu(), {.dweights = dweights, .dy = y, .bias = bias, .experts = experts, .places = sorted.places}),
               Error);
  sorted.offsets[E] = static_cast<int32_t>(T * k + 1);
  EXPECT_THROW(expert_bias_forward(cpu(), {.y = y, .bias = bias, .offsets = sorted.offsets}), Error);
}

}  // namespace hone::test
