#include "kernels/decoder_layer/decoder_layer.h"

#include "kernels/decoder_layer/moe_layer_tail.h"
#include "kernels/decoder_layer/rmsnorm_gemm.h"
#include "kernels/elementwise/activation.h"
#include "kernels/gemm/gemm.h"
#include "kernels/norm/rmsnorm.h"
#include "kernels/rope/rope.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"

namespace hone::test {
namespace {

// A layer with 4 experts of which a row chooses 2, and the projection of the next layer.
struct MoeTailCase {
  static constexpr int64_t width = 10, columns = 12, experts = 4, choices = 2, inner = 7;
  const QkvShape shape{.num_heads = 2, .num_kv_heads = 1, .head_dim = 6, .rotary_dim = 6, .norm_eps = 1e-6f};
  int64_t rows;
  Floats before, mixed, w_out, router, gate_up, down, w_qkv, norm, next_norm, q_norm, cos_sin;
  Ids positions, places;
  explicit MoeTailCase(int64_t num_rows)
      : rows(num_rows),
        before(normals({rows, width}, 7)),
        mixed(normals({rows, columns}, 1)),
        w_out(normals({width, columns}, 2)),
        router(normals({experts, width}, 3)),
        gate_up(normals({experts * 2 * inner, width}, 4)),
        down(normals({experts * width, inner}, 5)),
        w_qkv(normals({24, width}, 6)),
        norm(normals({width}, 8)),
        next_norm(normals({width}, 9)),
        q_norm(normals({6}, 10)),
        cos_sin({8, 6}),
        positions(random_ids(rows, 8, 11)),
        places({rows}) {
    rope_table(cos_sin, {.dim = 6, .theta = 100});
    for (int64_t t = 0; t < rows; ++t) places[t] = static_cast<int32_t>(t);
  }
  template <class Result>
  MoeLayerTail arguments(const Result& to, bool with_next) const {
    MoeLayerTail out{.x = to.x,
                     .mixed = mixed,
                     .output = {w_out, {}},
                     .norm = {norm, 1e-6f},
                     .router = {router, {}},
                     .gate_up = {.w = gate_up.tensor().view({experts, 2 * inner, width})},
                     .down = {.w = down.tensor().view({experts, width, inner})},
                     .rule = {.normalize = true},
                     .num_choices = choices};
    if (with_next)
      out.next = {to.q,  {next_norm, 1e-6f},  {w_qkv, {}}, positions, cos_sin, q_norm, q_norm,
                  shape, {to.k, to.v, places}};
    return out;
  }
};
struct MoeTailResult {
  Floats x, q, k, v;
  explicit MoeTailResult(const MoeTailCase& of)
      : x(of.before), q(poisoned({of.rows, 2, 6})), k(poisoned({of.rows, 1, 6})), v(poisoned({of.rows, 1, 6})) {}
};

[[maybe_unused]] const bool added = op_cases().add("gate_up_swiglu", [] {
  for (const bool normed : {false, true}) {
    const Floats x = normals({5, 24}, 1, 1, 3), w = normals({14, 24}, 2), bias = normals({14}, 3),
                 weight = normals({24}, 4);
    Floats y = poisoned({5, 7}, 2);
    expect_bodies_agree(
        gate_up_swiglu, {},
        {.y = y, .x = x, .norm = RmsNormWeights{normed ? weight.tensor() : Tensor(), 1e-6f}, .gate_up = {w, bias}});
  }
}) && op_cases().add("gemm_rmsnorm", [] {
  const Floats x = normals({5, 11}, 1, 1, 3), w = normals({9, 11}, 2), bias = normals({9}, 3), weight = normals({9}, 4),
               residual = normals({5, 9}, 5);
  Floats y = poisoned({5, 9}, 2), normed = poisoned({5, 9});
  expect_bodies_agree(gemm_rmsnorm, {},
                      {.y = y,
                       .normed = normed,
                       .x = x,
                       .product = {w, bias},
                       .residual = residual,
                       .norm = RmsNormWeights{weight, 1e-6f}});
}) && op_cases().add("rmsnorm_gemm", [] {
  const Floats x = normals({5, 11}, 1, 1, 3), w = normals({9, 11}, 2), bias = normals({9}, 3),
               weight = normals({11}, 4);
  Floats y = poisoned({5, 9}, 2), normed = poisoned({5, 11});
  expect_bodies_agree(rmsnorm_gemm, {},
                      {.y = y, .normed = normed, .x = x, .norm = RmsNormWeights{weight, 1e-6f}, .product = {w, bias}});
}) && op_cases().add("qkv_rope_cache", [] {
  const QkvShape shape{.num_heads = 4, .num_kv_heads = 2, .head_dim = 6, .rotary_dim = 4, .norm_eps = 1e-6f};
  const Floats x = normals({3, 10}, 1), w = normals({48, 10}, 2), bias = normals({48}, 3), weight = normals({10}, 4),
               q_norm = normals({6}, 5), k_norm = normals({6}, 6);
  Floats cos_sin({8, 4}), q = poisoned({3, 4, 6}), k = poisoned({5, 2, 6}), v = poisoned({5, 2, 6});
  rope_table(cos_sin, {.dim = 4, .theta = 100});
  const Ids positions = random_ids(3, 8, 7);
  Ids slots({3});
  for (int64_t t = 0; t < 3; ++t) slots[t] = static_cast<int32_t>(4 - t);
  expect_bodies_agree(
      qkv_rope_cache, {},
      {.x = x,
       .to = QkvProjection{q, {weight, 1e-6f}, {w, bias}, positions, cos_sin, q_norm, k_norm, shape, {k, v, slots}}});
}) && op_cases().add("decoder_layer_tail", [] {
  const QkvShape shape{.num_heads = 2, .num_kv_heads = 1, .head_dim = 6, .rotary_dim = 6, .norm_eps = 1e-6f};
  const Floats mixed = normals({3, 12}, 1), w_out = normals({10, 12}, 2), w_up = normals({14, 10}, 3),
               w_down = normals({10, 7}, 4), w_qkv = normals({24, 10}, 5), norm = normals({10}, 6);
  Floats x = normals({3, 10}, 7), cos_sin({8, 6}), q = poisoned({3, 2, 6}), k = poisoned({3, 1, 6}),
         v = poisoned({3, 1, 6});
  rope_table(cos_sin, {.dim = 6, .theta = 100});
  const Ids positions = random_ids(3, 8, 8);
  Ids places({3});
  for (int64_t t = 0; t < 3; ++t) places[t] = static_cast<int32_t>(t);
  expect_bodies_agree(
      decoder_layer_tail, {},
      {.x = x,
       .mixed = mixed,
       .output = GemmWeights{w_out, {}},
       .mlp = GatedMlpWeights{{norm, 1e-6f}, {w_up, {}}, {w_down, {}}},
       .next = QkvProjection{q, {norm, 1e-6f}, {w_qkv, {}}, positions, cos_sin, {}, {}, shape, {k, v, places}}});
}) && op_cases().add("moe_layer_tail", [] {
  const MoeTailCase inputs(3);
  MoeTailResult result(inputs);
  expect_bodies_agree(moe_layer_tail, {}, inputs.arguments(result, true));
});

}  // namespace

TEST(ProjectGated, IsTheNormThenTheProductThenTheGate) {
  const int64_t M = 7, K = 33, F = 19;
  const Floats x = normals({M, K}, 1, 1, 5), w = normals({2 * F, K}, 2), bias = normals({2 * F}, 3),
               weight = normals({K}, 4);
  for (const bool with_norm : {true, false})
    for (const bool with_bias : {true, false}) {
      Floats in({M, K}), gate_up({M, 2 * F}), expected({M, F}), y = poisoned({M, F}, 1);
      rmsnorm_forward(cpu(), in, {}, x, weight, 1e-5f, 0.0f);
      const Tensor added_bias = with_bias ? bias.tensor() : Tensor();
      gemm_forward(cpu(), {.y = gate_up, .x = with_norm ? in.tensor() : x.tensor(), .w = w, .bias = added_bias});
      glu_forward(cpu(), expected, gate_up, Activation::silu);
      gate_up_swiglu(
          cpu(), {.y = y, .x = x, .norm = {with_norm ? weight.tensor() : Tensor(), 1e-5f}, .gate_up = {w, added_bias}});
      EXPECT_TRUE(close(y, expected, {0, 0}));
    }
}

TEST(GemmNormForward, IsTheProductThenTheNorm) {
  const Floats x = normals({4, 30}, 1), w = normals({12, 30}, 2), residual = normals({4, 12}, 3),
               weight = normals({12}, 4);
  Floats expected({4, 12}), expected_normed({4, 12}), y = poisoned({4, 12}), normed = poisoned({4, 12});
  gemm_forward(cpu(), {.y = expected, .x = x, .w = w, .residual = residual});
  rmsnorm_forward(cpu(), expected_normed, {}, expected, weight, 1e-5f, 0.0f);
  gemm_rmsnorm(cpu(),
               {.y = y, .normed = normed, .x = x, .product = {w, {}}, .residual = residual, .norm = {weight, 1e-5f}});
  EXPECT_TRUE(close(y, expected, {0, 0}));
  EXPECT_TRUE(close(normed, expected_normed, {0, 0}));
}

TEST(NormedProduct, IsTheNormThenTheProduct) {
  const Floats x = normals({4, 20}, 1), w = normals({12, 20}, 2), weight = normals({20}, 3), bias = normals({12}, 4);
  Floats expected({4, 12}), expected_normed({4, 20}), y = poisoned({4, 12}), normed = poisoned({4, 20});
  rmsnorm_forward(cpu(), expected_normed, {}, x, weight, 1e-5f, 0.0f);
  gemm_forward(cpu(), {.y = expected, .x = expected_normed, .w = w, .bias = bias});
  rmsnorm_gemm(cpu(), {.y = y, .normed = normed, .x = x, .norm = {weight, 1e-5f}, .product = {w, bias}});
  EXPECT_TRUE(close(y, expected, {0, 0}));
  EXPECT_TRUE(close(normed, expected_normed, {0, 0}));
}

TEST(ProjectHeads, IsTheNormThenTheProductThenTheTurnIntoTheCache) {
  const int64_t M = 5, K = 20, slots_there = 9;
  const QkvShape shape{.num_heads = 6, .num_kv_heads = 2, .head_dim = 8, .rotary_dim = 8, .norm_eps = 1e-6f};
  const int64_t N = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
  const Floats x = normals({M, K}, 1), w = normals({N, K}, 2), bias = normals({N}, 3), weight = normals({K}, 4);
  Floats cos_sin({16, 8}), in({M, K}), qkv({M, N}), k({M, 2, 8}), q_expected({M, 6, 8}),
      k_expected = poisoned({slots_there, 2, 8}), v_expected = k_expected, q = poisoned({M, 6, 8}),
      k_cache = k_expected, v_cache = k_expected;
  rope_table(cos_sin, {.dim = 8, .theta = 100});
  const Ids positions = random_ids(M, 16, 5);
  Ids slots({M});
  for (int64_t t = 0; t < M; ++t) slots[t] = static_cast<int32_t>(2 * t % slots_there);
  rmsnorm_forward(cpu(), in, {}, x, weight, 1e-6f, 0.0f);
  gemm_forward(cpu(), {.y = qkv, .x = in, .w = w, .bias = bias});
  qkv_forward(cpu(), {.q = q_expected,
                      .k = k,
                      .qkv = qkv,
                      .positions = positions,
                      .cos_sin = cos_sin,
                      .shape = shape,
                      .cache = {k_expected, v_expected, slots}});
  QkvProjection to{q, {weight, 1e-6f}, {w, bias}, positions, cos_sin, {}, {}, shape, {k_cache, v_cache, slots}};
  qkv_rope_cache(cpu(), {.x = x, .to = to});
  EXPECT_TRUE(close(q, q_expected, {0, 0}));
  EXPECT_TRUE(close(k_cache, k_expected, {0, 0}));
  EXPECT_TRUE(close(v_cache, v_expected, {0, 0}));
  to.cache = {};
  EXPECT_THROW(qkv_rope_cache(cpu(), {.x = x, .to = to}), Error);
}

// Above max_rows_norm_in_gemm rows other ops run, with the same bits.
TEST(ProjectBetween, IsWhatABlockDoesAfterItsAttentionThenTheHeadsOfTheNext) {
  const QkvShape shape{.num_heads = 3, .num_kv_heads = 1, .head_dim = 4, .rotary_dim = 4, .norm_eps = 1e-6f};
  const int64_t C = 20, D = 12, F = 9, N = 20;
  const Floats w_out = normals({C, D}, 1), b_out = normals({C}, 2), w_up = normals({2 * F, C}, 3),
               w_down = normals({C, F}, 4), w_qkv = normals({N, C}, 5), norm = normals({C}, 6),
               norm_next = normals({C}, 7);
  Floats cos_sin({16, 4});
  rope_table(cos_sin, {.dim = 4, .theta = 100});
  for (const int64_t M : {1, 5, 8, 9, 30}) {
    const Floats before = normals({M, C}, 8), mixed = normals({M, D}, 9);
    const Ids positions = random_ids(M, 16, 10);
    Ids slots({M});
    for (int64_t t = 0; t < M; ++t) slots[t] = static_cast<int32_t>(t);
    const auto heads = [&](const Floats& q, const Floats& k, const Floats& v) {
      return QkvProjection{q, {norm_next, 1e-5f}, {w_qkv, {}}, positions, cos_sin, {}, {}, shape, {k, v, slots}};
    };
    const Floats like_q = poisoned({M, 3, 4}), like_k = poisoned({M, 1, 4});
    Floats mid({M, C}), activated({M, F}), x_expected({M, C}), q_expected = like_q, k_expected = like_k,
                                                               v_expected = like_k;
    gemm_forward(cpu(), {.y = mid, .x = mixed, .w = w_out, .bias = b_out, .residual = before});
    gate_up_swiglu(cpu(), {.y = activated, .x = mid, .norm = {norm, 1e-6f}, .gate_up = {w_up, {}}});
    gemm_forward(cpu(), {.y = x_expected, .x = activated, .w = w_down, .residual = mid});
    qkv_rope_cache(cpu(), {.x = x_expected, .to = heads(q_expected, k_expected, v_expected)});
    for (const bool last : {false, true}) {
      Floats x = before, q = like_q, k = like_k, v = like_k;
      decoder_layer_tail(cpu(), {.x = x,
                                 .mixed = mixed,
                                 .output = {w_out, b_out},
                                 .mlp = {{norm, 1e-6f}, {w_up, {}}, {w_down, {}}},
                                 .next = last ? QkvProjection{} : heads(q, k, v)});
      EXPECT_TRUE(close(x, x_expected, {0, 0}));
      EXPECT_TRUE(close(q, last ? like_q : q_expected, {0, 0}));
      EXPECT_TRUE(close(k, last ? like_k : k_expected, {0, 0}));
      EXPECT_TRUE(close(v, last ? like_k : v_expected, {0, 0}));
    }
  }
}

TEST(MoeLayerTail, IsTheOutputThenTheExpertsThenTheHeadsOfTheNextLayer) {
  for (const int64_t rows : {1, 5, 8}) {
    const MoeTailCase in(rows);
    MoeTailResult expected(in);
    Floats normed({rows, in.width}), logits({rows, in.experts}), after({rows, in.width});
    const MoeLayerTail args = in.arguments(expected, true);
    gemm_forward(cpu(), {.y = after, .x = in.mixed, .w = in.w_out, .residual = in.before});
    rmsnorm_forward(cpu(), normed, {}, after, in.norm, 1e-6f, 0.0f);
    gemm_forward(cpu(), {.y = logits, .x = normed, .w = in.router});
    routed_experts(cpu(), {.y = expected.x,
                           .x = normed,
                           .logits = logits,
                           .gate_up = args.gate_up,
                           .down = args.down,
                           .residual = after,
                           .rule = args.rule,
                           .num_choices = in.choices});
    qkv_rope_cache(cpu(), {.x = expected.x, .to = args.next});
    for (const bool with_next : {true, false}) {
      MoeTailResult actual(in);
      const MoeTailResult untouched(in);
      moe_layer_tail(cpu(), in.arguments(actual, with_next));
      EXPECT_TRUE(close(actual.x, expected.x, {0, 0}));
      EXPECT_TRUE(close(actual.q, with_next ? expected.q : untouched.q, {0, 0}));
      EXPECT_TRUE(close(actual.k, with_next ? expected.k : untouched.k, {0, 0}));
      EXPECT_TRUE(close(actual.v, with_next ? expected.v : untouched.v, {0, 0}));
    }
  }
}

}  // namespace hone::test
