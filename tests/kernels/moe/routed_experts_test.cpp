#include "kernels/moe/routed_experts.h"

#include "core/base/parallel_for.h"
#include "tests/kernels/moe/routed.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"

namespace hone::test {
namespace {

[[maybe_unused]] const bool added = op_cases().add("routed_experts", [] {
  for (const RoutedCase& c : {RoutedCase{0, 4, 2, 8, 5}, {1, 4, 2, 9, 5}, {7, 6, 3, 16, 12}, {33, 5, 1, 24, 8}})
    for (const auto& format : routed_formats) {
      const RoutedInputs inputs(c, format);
      Floats y = poisoned({c.tokens, c.width}, 2);
      const auto close_bits = Tolerance{0, 0};
      expect_bodies_agree(routed_experts, close_bits, inputs.arguments(y));
      RoutedExperts args = inputs.arguments(y);
      args.residual = {};
      args.bias = {};
      args.rule = {.scores = RouterScores::softmax, .normalize = true};
      args.activation = Activation::gelu_tanh;
      expect_bodies_agree(routed_experts, close_bits, args);
      args.clamped = ClampedGlu{.limit = 1};
      args.gate_up.bias = inputs.gate_up_bias;
      args.down.bias = inputs.down_bias;
      expect_bodies_agree(routed_experts, close_bits, args);
    }
});

}  // namespace

// The definition, in f64: the weighted sum of the chosen gated MLPs.
TEST(RoutedExperts, AreTheWeightedSumOfTheChosenMlps) {
  const RoutedCase c{9, 6, 2, 14, 10};
  const RoutedInputs inputs(c, std::nullopt);
  Floats y = poisoned({c.tokens, c.width});
  RoutedExperts args = inputs.arguments(y);
  args.bias = {};
  args.rule = {.scores = RouterScores::softmax_of_top};
  routed_experts(cpu(), args);
  const int64_t F = c.inner, D = c.width;
  for (int64_t t = 0; t < c.tokens; ++t) {
    const float* logits = inputs.logits.tensor().row<float>(t);
    std::vector<int64_t> order(static_cast<size_t>(c.experts));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
    double sum = 0;
    for (int64_t i = 0; i < c.choices; ++i) sum += std::exp(double{logits[order[static_cast<size_t>(i)]]});
    for (int64_t d = 0; d < D; ++d) {
      double expected = inputs.residual[t * D + d];
      for (int64_t i = 0; i < c.choices; ++i) {
        const int64_t e = order[static_cast<size_t>(i)];
        double out = 0;
        for (int64_t f = 0; f < F; ++f) {
          double gate = 0, up = 0;
          for (int64_t j = 0; j < D; ++j) {
            const double x = inputs.x.tensor().row<float>(t)[j];
            gate += x * inputs.gate_up[(e * 2 * F + f) * D + j];
            up += x * inputs.gate_up[(e * 2 * F + F + f) * D + j];
          }
          out += gate / (1 + std::exp(-gate)) * up * inputs.down[(e * D + d) * F + f];
        }
        expected += std::exp(double{logits[e]}) / sum * out;
      }
      EXPECT_NEAR(y[t * D + d], expected, 1e-4 + 1e-4 * std::fabs(expected)) << "token " << t << ", column " << d;
    }
  }
}

// A token's bits are those that it has alone, at batch sizes 1 to 256 and with other threads.
TEST(RoutedExperts, ATokensBitsDoNotDependOnTheBatch) {
  for (const auto& format : routed_formats) {
    const RoutedCase c{256, 16, 4, 24, 16};
    const RoutedInputs inputs(c, format);
    Floats whole = poisoned({c.tokens, c.width});
    set_num_threads(1);
    routed_experts(cpu(), inputs.arguments(whole));
    for (const int threads : {1, 2}) {
      set_num_threads(threads);
      for (const int64_t tokens : {1, 2, 3, 8, 9, 64, 255}) {
        const int64_t first = tokens * 31 % (c.tokens - tokens + 1);
        Floats part = poisoned({tokens, c.width});
        routed_experts(cpu(), inputs.arguments(part, first));
        for (int64_t i = 0; i < part.size(); ++i)
          ASSERT_TRUE(same_bits(part[i], whole[first * c.width + i])) << tokens << " tokens, element " << i;
      }
    }
  }
}

TEST(RoutedExperts, ReadOnlyTheChosenExperts) {
  const RoutedCase c{1, 8, 2, 12, 9};
  RoutedInputs inputs(c, std::nullopt);
  Floats expected = poisoned({1, c.width}), y = poisoned({1, c.width});
  routed_experts(cpu(), inputs.arguments(expected));
  int64_t unread = 0;
  for (int64_t e = 0; e < c.experts; ++e) {
    const Floats gate_up = inputs.gate_up, down = inputs.down;
    for (int64_t i = 0; i < 2 * c.inner * c.width; ++i) inputs.gate_up[e * 2 * c.inner * c.width + i] = nan_f32;
    for (int64_t i = 0; i < c.inner * c.width; ++i) inputs.down[e * c.inner * c.width + i] = nan_f32;
    routed_experts(cpu(), inputs.arguments(y));
    bool same = true;
    for (int64_t i = 0; i < c.width; ++i) same = same && same_bits(y[i], expected[i]);
    unread += same;
    inputs.gate_up = gate_up;
    inputs.down = down;
  }
  EXPECT_EQ(unread, c.experts - c.choices);
}

TEST(RoutedExperts, ResidualMayBeTheOutput) {
  const RoutedCase c{5, 6, 2, 12, 9};
  const RoutedInputs inputs(c, QuantFormat::int8);
  Floats apart = poisoned({c.tokens, c.width}), in_place = inputs.residual;
  routed_experts(cpu(), inputs.arguments(apart));
  RoutedExperts args = inputs.arguments(in_place);
  args.residual = in_place;
  routed_experts(cpu(), args);
  EXPECT_TRUE(close(in_place, apart, {0, 0}));
}

TEST(RoutedExperts, RefuseMatricesThatDoNotFit) {
  const RoutedCase c{2, 4, 2, 12, 9};
  const RoutedInputs inputs(c, std::nullopt);
  Floats y = poisoned({2, 12});
  RoutedExperts args = inputs.arguments(y);
  std::swap(args.gate_up, args.down);
  EXPECT_THROW(routed_experts(cpu(), args), Error);
  args = inputs.arguments(y);
  args.num_choices = 5;
  EXPECT_THROW(routed_experts(cpu(), args), Error);
}

}  // namespace hone::test
