#include "kernels/moe/balance.h"

#include "tests/kernels/moe/experts.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"

namespace hone::test {
namespace {

constexpr int64_t E = 6, k = 2;
constexpr RouterScores kinds[] = {RouterScores::softmax, RouterScores::sigmoid};

// Sequences of 0, 3 and the other tokens.
Ids sequences(int64_t tokens) {
  Ids out({4});
  out[2] = static_cast<int32_t>(std::min<int64_t>(3, tokens));
  out[1] = 0;
  out[3] = static_cast<int32_t>(tokens);
  return out;
}

struct Loaded {
  Floats load, probs, z;
  Loaded(const Floats& logits, const Ids& experts, const Ids& offsets, RouterScores scores)
      : load({offsets.size() - 1, logits.tensor().dim(1)}), probs(load), z({offsets.size() - 1}) {
    router_load(cpu(), {.load = load,
                        .probs = probs,
                        .z = z,
                        .logits = logits,
                        .experts = experts,
                        .offsets = offsets,
                        .scores = scores});
  }
};

[[maybe_unused]] const bool added = op_cases().add("router_load", [] {
  for (const RouterScores scores : kinds)
    for (const int64_t T : {0, 1, 40}) {
      const Floats logits = normals({T, E}, 1, 2, 3), load = normals({3, E}, 2, 1, 1), probs = normals({3, E}, 3, 1, 2),
                   z = normals({3}, 4);
      const Ids experts = random_experts(T, k, E, 5), offsets = sequences(T);
      expect_bodies_agree(router_load, {1e-5, 1e-5},
                          {.load = load,
                           .probs = probs,
                           .z = z,
                           .logits = logits,
                           .experts = experts,
                           .offsets = offsets,
                           .scores = scores});
    }
}) && op_cases().add("router_losses", [] {
  for (const int64_t T : {0, 40}) {
    const Loaded of(normals({T, E}, 1), random_experts(T, k, E, 5), sequences(T), RouterScores::softmax);
    const Floats losses = normals({2}, 6);
    expect_bodies_agree(router_losses, {1e-5, 1e-5},
                        {.losses = losses, .load = of.load, .probs = of.probs, .z = of.z, .num_choices = k});
  }
}) && op_cases().add("router_losses_backward", [] {
  for (const RouterScores scores : kinds)
    for (const int64_t T : {0, 1, 40}) {
      const Floats logits = normals({T, E}, 1, 2, 3), dlogits = normals({T, E}, 2, 1, 1);
      const Ids offsets = sequences(T);
      const Loaded of(logits, random_experts(T, k, E, 5), offsets, scores);
      expect_bodies_agree(router_losses_backward, {1e-5, 1e-6},
                          {.dlogits = dlogits,
                           .logits = logits,
                           .load = of.load,
                           .offsets = offsets,
                           .scores = scores,
                           .num_choices = k,
                           .balance = 0.7f,
                           .z = 0.3f});
    }
}) && op_cases().add("router_bias_update", [] {
  const Floats bias = normals({E}, 1), load = normals({E}, 2);
  expect_bodies_agree(router_bias_update, {0, 0}, {.bias = bias, .load = load, .rate = 0.001f});
});

}  // namespace

TEST(RouterLosses, EvenLoadGivesKPerToken) {
  const int64_t T = 12;
  const Floats logits({T, E});
  Ids experts({T, k}), offsets({2});
  offsets[1] = static_cast<int32_t>(T);
  for (int64_t i = 0; i < T * k; ++i) experts[i] = static_cast<int32_t>(i % E);
  const Loaded of(logits, experts, offsets, RouterScores::softmax);
  Floats losses({2});
  router_losses(cpu(), {.losses = losses, .load = of.load, .probs = of.probs, .z = of.z, .num_choices = k});
  EXPECT_NEAR(losses[0] / T, k, 1e-5);
  EXPECT_NEAR(losses[1] / T, std::pow(std::log(6.0), 2), 1e-5);
}

TEST(RouterLosses, OneExpertForAllGivesKTimesE) {
  const int64_t T = 8;
  Floats logits({T, E}, -50.0f);
  for (int64_t t = 0; t < T; ++t) logits[t * E + 2] = 50;
  Ids experts({T, 1}, 2), offsets({2});
  offsets[1] = static_cast<int32_t>(T);
  const Loaded of(logits, experts, offsets, RouterScores::softmax);
  Floats losses({2});
  router_losses(cpu(), {.losses = losses, .load = of.load, .probs = of.probs, .z = of.z, .num_choices = 1});
  EXPECT_NEAR(losses[0] / T, E, 1e-5);
}

// The losses of packed sequences are the sums of their own.
TEST(RouterLosses, DoNotDependOnPacking) {
  const int64_t T = 11;
  const Floats logits = normals({T, E}, 1);
  const Ids experts = random_experts(T, k, E, 2), packed = sequences(T);
  const auto losses_of = [](const Loaded& of) {
    Floats out({2});
    router_losses(cpu(), {.losses = out, .load = of.load, .probs = of.probs, .z = of.z, .num_choices = k});
    return out;
  };
  const Floats together = losses_of(Loaded(logits, experts, packed, RouterScores::softmax));
  double balance = 0, z = 0;
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 3}, {3, T - 3}}) {
    Floats part({count, E});
    Ids part_experts({count, k}), offsets({2});
    for (int64_t i = 0; i < part.size(); ++i) part[i] = logits[first * E + i];
    for (int64_t i = 0; i < part_experts.size(); ++i) part_experts[i] = experts[first * k + i];
    offsets[1] = static_cast<int32_t>(count);
    const Floats alone = losses_of(Loaded(part, part_experts, offsets, RouterScores::softmax));
    balance += double{alone[0]};
    z += double{alone[1]};
  }
  EXPECT_NEAR(together[0], balance, 1e-4);
  EXPECT_NEAR(together[1], z, 1e-4);
}

TEST(RouterLosses, GradientIsFiniteDifferences) {
  const int64_t T = 7;
  const float balance = 0.7f, z = 0.3f;
  for (const RouterScores scores : kinds) {
    Floats logits = normals({T, E}, 1);
    const Ids experts = random_experts(T, k, E, 2), offsets = sequences(T);
    const auto loss = [&] {
      const Loaded of(logits, experts, offsets, scores);
      Floats losses({2});
      router_losses(cpu(), {.losses = losses, .load = of.load, .probs = of.probs, .z = of.z, .num_choices = k});
      return double{balance} * double{losses[0]} + double{z} * double{losses[1]};
    };
    const Loaded of(logits, experts, offsets, scores);
    Floats dlogits({T, E});
    router_losses_backward(cpu(), {.dlogits = dlogits,
                                   .logits = logits,
                                   .load = of.load,
                                   .offsets = offsets,
                                   .scores = scores,
                                   .num_choices = k,
                                   .balance = balance,
                                   .z = z});
    expect_gradient(loss, logits, dlogits, {2e-2, 5e-3});
  }
}

TEST(RouterBiasUpdate, MovesTowardsTheMeanLoad) {
  Floats bias({4}, 1.0f), load({4});
  load[0] = 5, load[1] = 1, load[2] = 3, load[3] = 3;
  router_bias_update(cpu(), {.bias = bias, .load = load, .rate = 0.25f});
  EXPECT_EQ(bias[0], 0.75f);
  EXPECT_EQ(bias[1], 1.25f);
  EXPECT_EQ(bias[2], 1);
  EXPECT_EQ(bias[3], 1);
}

}  // namespace hone::test
