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

// Some tokens do not count.
Floats token_weights(int64_t tokens) {
  Floats out({tokens});
  for (int64_t t = 0; t < tokens; ++t) out[t] = t % 4 == 2 ? 0 : 0.02f * static_cast<float>(1 + t % 3);
  return out;
}

struct Loaded {
  Floats load, probs, rest;
  Loaded(const Floats& logits, const Ids& experts, const Floats& weights, const Ids& offsets, RouterScores scores)
      : load({offsets.size() - 1, logits.tensor().dim(1)}), probs(load), rest({offsets.size() - 1, 2}) {
    router_load(cpu(), {.load = load,
                        .probs = probs,
                        .rest = rest,
                        .logits = logits,
                        .experts = experts,
                        .weights = weights,
                        .offsets = offsets,
                        .scores = scores});
  }
  Floats sums(int64_t num_choices) const {
    Floats out({3 + load.tensor().dim(1)});
    router_sums(cpu(), {.sums = out, .load = load, .probs = probs, .rest = rest, .num_choices = num_choices});
    return out;
  }
};

[[maybe_unused]] const bool added = op_cases().add("router_load", [] {
  for (const RouterScores scores : kinds)
    for (const int64_t T : {0, 1, 40}) {
      const Floats logits = normals({T, E}, 1, 2, 3), load = normals({3, E}, 2, 1, 1), probs = normals({3, E}, 3, 1, 2),
                   rest = normals({3, 2}, 4, 1, 1), weights = token_weights(T);
      const Ids experts = random_experts(T, k, E, 5), offsets = sequences(T);
      const Dispatched sorted(experts, E, 3);
      RouterLoad args{.load = load,
                      .probs = probs,
                      .rest = rest,
                      .logits = logits,
                      .experts = experts,
                      .weights = weights,
                      .offsets = offsets,
                      .scores = scores};
      expect_bodies_agree(router_load, {1e-5, 1e-5}, args);
      args.places = sorted.places;
      expect_bodies_agree(router_load, {1e-5, 1e-5}, args);
    }
}) && op_cases().add("router_sums", [] {
  for (const int64_t T : {0, 40}) {
    const Loaded of(normals({T, E}, 1), random_experts(T, k, E, 5), token_weights(T), sequences(T),
                    RouterScores::softmax);
    const Floats sums = normals({3 + E}, 6);
    expect_bodies_agree(router_sums, {1e-5, 1e-5},
                        {.sums = sums, .load = of.load, .probs = of.probs, .rest = of.rest, .num_choices = k});
  }
}) && op_cases().add("router_losses_backward", [] {
  for (const RouterScores scores : kinds)
    for (const int64_t T : {0, 1, 40}) {
      const Floats logits = normals({T, E}, 1, 2, 3), dlogits = normals({T, E}, 2, 1, 1), weights = token_weights(T);
      const Ids offsets = sequences(T);
      const Loaded of(logits, random_experts(T, k, E, 5), weights, offsets, scores);
      expect_bodies_agree(router_losses_backward, {1e-5, 1e-6},
                          {.dlogits = dlogits,
                           .logits = logits,
                           .load = of.load,
                           .weights = weights,
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

Ids one_sequence(int64_t tokens) {
  Ids out({2});
  out[1] = static_cast<int32_t>(tokens);
  return out;
}

}  // namespace

TEST(RouterLosses, EvenLoadGivesK) {
  const int64_t T = 12;
  const Floats logits({T, E}), weights({T}, 1.0f / static_cast<float>(T));
  Ids experts({T, k});
  for (int64_t i = 0; i < T * k; ++i) experts[i] = static_cast<int32_t>(i % E);
  const Floats sums = Loaded(logits, experts, weights, one_sequence(T), RouterScores::softmax).sums(k);
  EXPECT_NEAR(sums[0], k, 1e-5);
  EXPECT_NEAR(sums[1], std::pow(std::log(6.0), 2), 1e-5);
  EXPECT_EQ(sums[2], 0);
  for (int64_t e = 0; e < E; ++e) EXPECT_NEAR(sums[3 + e], static_cast<double>(k) / E, 1e-6);
}

TEST(RouterLosses, OneExpertForAllGivesE) {
  const int64_t T = 8;
  Floats logits({T, E}, -50.0f);
  for (int64_t t = 0; t < T; ++t) logits[t * E + 2] = 50;
  const Loaded of(logits, Ids({T, 1}, 2), Floats({T}, 1.0f / T), one_sequence(T), RouterScores::softmax);
  EXPECT_NEAR(of.sums(1)[0], E, 1e-5);
}

TEST(RouterLosses, TokensOfWeightZeroDoNotCount) {
  const int64_t T = 6;
  Floats logits = normals({T, E}, 1), other = logits;
  Floats weights({T}, 0.25f);
  weights[1] = weights[4] = 0;
  for (int64_t e = 0; e < E; ++e) {
    other[1 * E + e] = 9.0f * static_cast<float>(e);
    other[4 * E + e] = -3.0f;
  }
  Ids experts = random_experts(T, k, E, 2), moved = experts;
  moved[2] = static_cast<int32_t>((experts[2] + 1) % E);
  const Floats expected = Loaded(logits, experts, weights, one_sequence(T), RouterScores::softmax).sums(k),
               actual = Loaded(other, moved, weights, one_sequence(T), RouterScores::softmax).sums(k);
  EXPECT_TRUE(close(actual, expected, {0, 0}));
}

// The losses of packed sequences are the sums of their own.
TEST(RouterLosses, DoNotDependOnPacking) {
  const int64_t T = 11;
  const Floats logits = normals({T, E}, 1), weights = token_weights(T);
  const Ids experts = random_experts(T, k, E, 2);
  const Floats together = Loaded(logits, experts, weights, sequences(T), RouterScores::softmax).sums(k);
  std::vector<double> sums(static_cast<size_t>(3 + E));
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 3}, {3, T - 3}}) {
    Floats part({count, E}), part_weights({count});
    Ids part_experts({count, k});
    for (int64_t i = 0; i < part.size(); ++i) part[i] = logits[first * E + i];
    for (int64_t i = 0; i < count; ++i) part_weights[i] = weights[first + i];
    for (int64_t i = 0; i < part_experts.size(); ++i) part_experts[i] = experts[first * k + i];
    const Floats alone = Loaded(part, part_experts, part_weights, one_sequence(count), RouterScores::softmax).sums(k);
    for (int64_t i = 0; i < alone.size(); ++i) sums[static_cast<size_t>(i)] += double{alone[i]};
  }
  EXPECT_TRUE(close(together, sums, {1e-5, 1e-6}));
}

TEST(RouterLosses, GradientIsFiniteDifferences) {
  const int64_t T = 7;
  const float balance = 7, z = 3;
  for (const RouterScores scores : kinds) {
    Floats logits = normals({T, E}, 1);
    const Floats weights = token_weights(T);
    const Ids experts = random_experts(T, k, E, 2), offsets = sequences(T);
    const auto loss = [&] {
      const Floats sums = Loaded(logits, experts, weights, offsets, scores).sums(k);
      return double{balance} * double{sums[0]} + double{z} * double{sums[1]};
    };
    Floats dlogits({T, E});
    router_losses_backward(cpu(), {.dlogits = dlogits,
                                   .logits = logits,
                                   .load = Loaded(logits, experts, weights, offsets, scores).load,
                                   .weights = weights,
                                   .offsets = offsets,
                                   .scores = scores,
                                   .num_choices = k,
                                   .balance = balance,
                                   .z = z});
    expect_gradient(loss, logits, dlogits, {2e-2, 2e-3});
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
