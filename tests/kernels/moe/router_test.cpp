#include "kernels/moe/router.h"

#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"

namespace hone::test {
namespace {

Ids choices(int64_t tokens, int64_t k) { return Ids({tokens, k}, -1); }

struct Routed {
  Ids experts;
  Floats weights;
};
Routed route(const Floats& logits, int64_t k, const RouterRule& rule, const Tensor& bias = {}) {
  const int64_t T = logits.tensor().dim(0);
  Routed out{choices(T, k), poisoned({T, k})};
  router_forward(cpu(), {.experts = out.experts, .weights = out.weights, .logits = logits, .bias = bias, .rule = rule});
  return out;
}

const RouterRule rules[] = {{},
                            {.normalize = true},
                            {.scores = RouterScores::softmax_of_top},
                            {.scores = RouterScores::sigmoid, .normalize = true, .scale = 2.5f},
                            {.scores = RouterScores::sigmoid, .num_groups = 4, .top_groups = 2},
                            {.scores = RouterScores::softmax, .scale = 16, .num_groups = 4, .top_groups = 2}};

[[maybe_unused]] const bool forward_case = op_cases().add("router_forward", [] {
  for (const RouterRule& rule : rules)
    for (const int64_t tokens : {0, 1, 37}) {
      const Floats logits = normals({tokens, 16}, 1, 2, 3), bias = normals({16}, 2);
      const Ids experts = choices(tokens, 4);
      const Floats weights = poisoned({tokens, 4});
      const RouterForward args{.experts = experts, .weights = weights, .logits = logits, .rule = rule};
      expect_bodies_agree(router_forward, {1e-5, 1e-6}, args);
      RouterForward biased = args;
      biased.bias = bias;
      expect_bodies_agree(router_forward, {1e-5, 1e-6}, biased);
    }
});

[[maybe_unused]] const bool backward_case = op_cases().add("router_backward", [] {
  for (const RouterRule& rule : rules)
    for (const int64_t tokens : {0, 1, 37}) {
      const Floats logits = normals({tokens, 16}, 1, 2, 3), dweights = normals({tokens, 4}, 2);
      const Ids experts = route(logits, 4, rule).experts;
      const Floats dlogits = poisoned({tokens, 16}, 2);
      expect_bodies_agree(
          router_backward, {1e-5, 1e-6},
          {.dlogits = dlogits, .dweights = dweights, .experts = experts, .logits = logits, .rule = rule});
    }
});

Floats row(std::initializer_list<float> values) {
  Floats out({1, static_cast<int64_t>(values.size())});
  int64_t i = 0;
  for (const float value : values) out[i++] = value;
  return out;
}

}  // namespace

TEST(Router, SoftmaxWeightsAreTheProbabilitiesOfTheBest) {
  const Floats logits = row({std::log(1.0f), std::log(4.0f), std::log(2.0f), std::log(3.0f)});
  const Routed plain = route(logits, 2, {}), normalized = route(logits, 2, {.normalize = true, .scale = 2}),
               top = route(logits, 2, {.scores = RouterScores::softmax_of_top});
  EXPECT_EQ(plain.experts[0], 1);
  EXPECT_EQ(plain.experts[1], 3);
  EXPECT_NEAR(plain.weights[0], 0.4, 1e-6);
  EXPECT_NEAR(plain.weights[1], 0.3, 1e-6);
  EXPECT_NEAR(normalized.weights[0], 8.0 / 7, 1e-6);
  EXPECT_NEAR(top.weights[0], 4.0 / 7, 1e-6);
  EXPECT_NEAR(top.weights[1], 3.0 / 7, 1e-6);
}

TEST(Router, TheLowerExpertWinsTies) {
  for (const RouterRule& rule : rules) {
    const Floats logits({1, 16}, 0.5f);
    const Routed out = route(logits, 4, rule);
    for (int64_t c = 0; c < 4; ++c) EXPECT_EQ(out.experts[c], c);
  }
}

TEST(Router, BiasChangesTheChoiceAndNotTheWeights) {
  const Floats logits = row({2, 1, 0, -1}), bias = row({0, 0, 0, 5});
  const RouterRule rule{.scores = RouterScores::sigmoid};
  const Routed out = route(logits, 2, rule, bias.tensor().view({4}));
  EXPECT_EQ(out.experts[0], 3);
  EXPECT_EQ(out.experts[1], 0);
  EXPECT_NEAR(out.weights[0], 1 / (1 + std::exp(1.0)), 1e-6);
  EXPECT_NEAR(out.weights[1], 1 / (1 + std::exp(-2.0)), 1e-6);
}

// Group 0 has the best expert, groups 1 and 2 have the best pairs.
TEST(Router, ChoosesFromTheBestGroups) {
  const Floats logits = row({3, -5, 2, 2, 1.9f, 1.9f, -4, -4});
  RouterRule rule{.scores = RouterScores::sigmoid, .num_groups = 4, .top_groups = 2};
  const Routed pairs = route(logits, 2, rule);
  EXPECT_EQ(pairs.experts[0], 2);
  EXPECT_EQ(pairs.experts[1], 3);
  rule.scores = RouterScores::softmax;
  EXPECT_EQ(route(logits, 2, rule).experts[0], 0) << "softmax compares each group's best expert";
}

TEST(Router, NanGivesValidExpertsAndNanWeights) {
  Floats logits = row({1, nan_f32, 2, 0});
  const Routed out = route(logits, 4, {});
  std::vector<bool> seen(4);
  for (int64_t c = 0; c < 4; ++c) {
    ASSERT_TRUE(out.experts[c] >= 0 && out.experts[c] < 4);
    seen[static_cast<size_t>(out.experts[c])] = true;
    EXPECT_TRUE(std::isnan(out.weights[c]));
  }
  EXPECT_TRUE(seen[0] && seen[1] && seen[2] && seen[3]);
}

TEST(Router, ATokensChoiceDoesNotDependOnOthers) {
  const Floats logits = normals({50, 16}, 1);
  for (const RouterRule& rule : rules) {
    const Routed all = route(logits, 4, rule);
    for (int64_t t = 0; t < 50; t += 7) {
      Floats alone({1, 16});
      for (int64_t e = 0; e < 16; ++e) alone[e] = logits[t * 16 + e];
      const Routed one = route(alone, 4, rule);
      for (int64_t c = 0; c < 4; ++c) {
        EXPECT_EQ(one.experts[c], all.experts[t * 4 + c]);
        EXPECT_TRUE(same_bits(one.weights[c], all.weights[t * 4 + c]));
      }
    }
  }
}

TEST(Router, GradientIsFiniteDifferences) {
  for (const RouterRule& rule : rules) {
    Floats logits = normals({3, 16}, 1, 2);
    const Floats dweights = normals({3, 4}, 2);
    const Ids experts = route(logits, 4, rule).experts;
    const auto loss = [&] {
      const Routed out = route(logits, 4, rule);
      double sum = 0;
      for (int64_t i = 0; i < 12; ++i) {
        EXPECT_EQ(out.experts[i], experts[i]) << "the step of the difference changes a choice";
        sum += double{out.weights[i]} * double{dweights[i]};
      }
      return sum;
    };
    Floats dlogits = poisoned({3, 16});
    router_backward(cpu(),
                    {.dlogits = dlogits, .dweights = dweights, .experts = experts, .logits = logits, .rule = rule});
    expect_gradient(loss, logits, dlogits, {2e-2, 2e-3}, 2e-3f);
  }
}

TEST(Router, RefusesRulesThatDoNotFit) {
  const Floats logits = normals({2, 16}, 1);
  EXPECT_THROW(route(logits, 17, {}), Error);
  EXPECT_THROW(route(logits, 4, {.num_groups = 5}), Error);
  EXPECT_THROW(route(logits, 4, {.num_groups = 4, .top_groups = 5}), Error);
  EXPECT_THROW(route(logits, 5, {.num_groups = 4, .top_groups = 1}), Error);
}

}  // namespace hone::test
