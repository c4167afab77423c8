// The ops of a mixture of experts on a GPU: agreement with the specification, equal bits of the grouped and the dense
// product, equal bits of repeated calls.
#include "kernels/cuda/limits.h"
#include "kernels/gemm/gemm.h"
#include "kernels/moe/balance.h"
#include "kernels/moe/dispatch.h"
#include "kernels/moe/grouped_gemm.h"
#include "kernels/moe/router.h"
#include "tests/gpu/gpu_check.h"
#include "tests/kernels/moe/experts.h"

namespace hone::test {
namespace {

constexpr DType dtypes[] = {DType::f32, DType::bf16};

bool same_ids(const Ids& actual, const Ids& expected) {
  for (int64_t i = 0; i < expected.size(); ++i)
    if (actual[i] != expected[i]) return false;
  return true;
}

const RouterRule rules[] = {{},
                            {.normalize = true},
                            {.scores = RouterScores::softmax_of_top},
                            {.scores = RouterScores::sigmoid, .normalize = true, .scale = 2.5f},
                            {.scores = RouterScores::sigmoid, .num_groups = 8, .top_groups = 4},
                            {.scores = RouterScores::softmax, .scale = 16, .num_groups = 8, .top_groups = 3}};

OnGpu ids_on_gpu(std::initializer_list<int64_t> dims) { return OnGpu(Ids(dims, -7)); }

}  // namespace

TEST(RouterOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const RouterRule& rule : rules)
    for (const auto& [T, E, k] : {std::array<int64_t, 3>{1, 8, 2}, {300, 64, 8}, {70, 256, 8}, {33, 40, 6}})
      for (const bool biased : {false, true}) {
        if (!chosen()) continue;
        SCOPED_TRACE(concat(T, " tokens, ", E, " experts, bias ", biased));
        const Floats logits = normals({T, E}, 1, 2, 3), bias = normals({E}, 2), dweights = normals({T, k}, 3);
        const Ids experts({T, k});
        const Floats weights = poisoned({T, k});
        Floats dlogits = poisoned({T, E});
        router_forward(cpu(), {.experts = experts,
                               .weights = weights,
                               .logits = logits,
                               .bias = biased ? bias.tensor() : Tensor(),
                               .rule = rule});
        router_backward(cpu(),
                        {.dlogits = dlogits, .dweights = dweights, .experts = experts, .logits = logits, .rule = rule});
        OnGpu experts_gpu = ids_on_gpu({T, k}), weights_gpu = OnGpu::poisoned({T, k}),
              dlogits_gpu = OnGpu::poisoned({T, E});
        const OnGpu logits_gpu(logits), bias_gpu(bias), dweights_gpu(dweights);
        router_forward(*gpu(), {.experts = experts_gpu,
                                .weights = weights_gpu,
                                .logits = logits_gpu,
                                .bias = biased ? bias_gpu.tensor() : Tensor(),
                                .rule = rule});
        EXPECT_TRUE(same_ids(experts_gpu.read_ids(), experts));
        EXPECT_TRUE(close(weights_gpu.read(), weights, {1e-5, 1e-6}));
        router_backward(*gpu(), {.dlogits = dlogits_gpu,
                                 .dweights = dweights_gpu,
                                 .experts = OnGpu(experts),
                                 .logits = logits_gpu,
                                 .rule = rule});
        EXPECT_TRUE(close(dlogits_gpu.read(), dlogits, {1e-4, 1e-5}));
      }
}

TEST(RouterOnGpu, TheLowerExpertWinsTiesAndNanIsLast) {
  HONE_GPU_OR_SKIP();
  Floats logits({2, 64}, 0.5f);
  logits[64 + 1] = nan_f32;
  logits[64 + 3] = -0.0f;
  for (int64_t e = 4; e < 64; ++e) logits[64 + e] = -INFINITY;
  logits[64 + 60] = 0.0f;
  OnGpu experts = ids_on_gpu({2, 8}), weights = OnGpu::poisoned({2, 8});
  router_forward(*gpu(), {.experts = experts, .weights = weights, .logits = OnGpu(logits)});
  const Ids out = experts.read_ids();
  for (int64_t c = 0; c < 8; ++c) EXPECT_EQ(out[c], c);
  const int32_t expected[] = {0, 2, 3, 60, 4, 5, 6, 7};
  for (int64_t c = 0; c < 8; ++c) EXPECT_EQ(out[8 + c], expected[c]);
}

TEST(DispatchOnGpu, HasTheSpecificationsOrder) {
  HONE_GPU_OR_SKIP();
  for (const auto& [T, k, E] : {std::array<int64_t, 3>{0, 2, 4}, {1, 1, 1}, {5, 8, 128}, {3000, 8, 64}, {900, 4, 700}})
    for (const int64_t capacity : {0, 3, 200}) {
      const Ids experts = random_experts(T, k, E, 1);
      const Dispatched expected(experts, E, capacity);
      OnGpu order = ids_on_gpu({T * k}), places = ids_on_gpu({T, k}), offsets = ids_on_gpu({E + 1});
      moe_dispatch(
          *gpu(),
          {.order = order, .places = places, .offsets = offsets, .experts = OnGpu(experts), .capacity = capacity});
      EXPECT_TRUE(same_ids(order.read_ids(), expected.order)) << T << " tokens, capacity " << capacity;
      EXPECT_TRUE(same_ids(places.read_ids(), expected.places)) << T << " tokens, capacity " << capacity;
      EXPECT_TRUE(same_ids(offsets.read_ids(), expected.offsets)) << T << " tokens, capacity " << capacity;
    }
}

TEST(DispatchOnGpu, ExpertsThatDoNotExistAreDropped) {
  HONE_GPU_OR_SKIP();
  Ids experts({3, 1});
  experts[0] = -1;
  experts[1] = 2;
  experts[2] = 4;
  OnGpu order = ids_on_gpu({3}), places = ids_on_gpu({3, 1}), offsets = ids_on_gpu({5});
  moe_dispatch(*gpu(), {.order = order, .places = places, .offsets = offsets, .experts = OnGpu(experts)});
  const Ids found = order.read_ids(), where = places.read_ids(), ends = offsets.read_ids();
  EXPECT_EQ(found[0], 1);
  EXPECT_EQ(found[1], -1);
  EXPECT_EQ(where[0], -1);
  EXPECT_EQ(where[1], 0);
  EXPECT_EQ(where[2], -1);
  EXPECT_EQ(ends[4], 1);
}

TEST(GatherAndCombineOnGpu, AgreeWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  const int64_t E = 6, k = 3;
  for (const int64_t T : {1, 4, 333})
    for (const int64_t D : {7, 64, 2048})
      for (const DType dtype : dtypes)
        for (const int64_t gap : {0, 3, 8}) {
          if (!chosen()) continue;
          const Dispatched sorted(random_experts(T, k, E, 1), E, T > 4 ? 40 : 0);
          const Floats x = rounded(normals({T, D}, 2, 1, gap), dtype), rows = rounded(normals({T * k, D}, 3), dtype),
                       weights = normals({T, k}, 4), residual = rounded(normals({T, D}, 5), dtype);
          Floats gathered = poisoned({T * k, D}), y = poisoned({T, D}), sum = poisoned({T, D});
          moe_gather(cpu(), {.y = gathered, .x = x, .order = sorted.order});
          moe_combine(cpu(), {.y = y, .x = rows, .places = sorted.places, .weights = weights, .residual = residual});
          moe_combine(cpu(), {.y = sum, .x = rows, .places = sorted.places});
          OnGpu gathered_gpu = OnGpu::poisoned({T * k, D}, dtype), y_gpu = OnGpu::poisoned({T, D}, dtype, gap),
                sum_gpu = OnGpu::poisoned({T, D}, dtype);
          const OnGpu rows_gpu(rows, dtype), places(sorted.places);
          moe_gather(*gpu(), {.y = gathered_gpu, .x = OnGpu(x, dtype), .order = OnGpu(sorted.order)});
          EXPECT_TRUE(close(gathered_gpu.read(), gathered, {0, 0}));
          moe_combine(*gpu(), {.y = y_gpu,
                               .x = rows_gpu,
                               .places = places,
                               .weights = OnGpu(weights),
                               .residual = OnGpu(residual, dtype)});
          EXPECT_TRUE(agrees(y_gpu.read(), y, dtype));
          moe_combine(*gpu(), {.y = sum_gpu, .x = rows_gpu, .places = places});
          EXPECT_TRUE(agrees(sum_gpu.read(), sum, dtype));
        }
}

TEST(WeightBackwardOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  const int64_t E = 6, k = 3, T = 50;
  for (const int64_t F : {5, 768})
    for (const DType dtype : dtypes) {
      const Dispatched sorted(random_experts(T, k, E, 1), E, 20);
      const Floats weights = normals({T, k}, 2);
      Floats g = rounded(normals({T * k, F}, 3), dtype), h = rounded(normals({T * k, F}, 4), dtype),
             dweights = poisoned({T, k});
      OnGpu g_gpu(g, dtype), h_gpu(h, dtype), dweights_gpu = OnGpu::poisoned({T, k});
      moe_weight_backward(cpu(), {.dweights = dweights, .g = g, .h = h, .weights = weights, .places = sorted.places});
      moe_weight_backward(*gpu(), {.dweights = dweights_gpu,
                                   .g = g_gpu,
                                   .h = h_gpu,
                                   .weights = OnGpu(weights),
                                   .places = OnGpu(sorted.places)});
      EXPECT_TRUE(close(dweights_gpu.read(), dweights, {1e-4, 1e-3}));
      EXPECT_TRUE(close(g_gpu.read(), rounded(g, dtype), {0, 0}));
      EXPECT_TRUE(close(h_gpu.read(), rounded(h, dtype), {0, 0}));
    }
}

namespace {

struct GroupedCase {
  int64_t tokens, k, E, capacity, N, K, gap;
};
// Few and many rows per expert (each tile), experts without rows, dropped rows, unaligned rows, several K chunks.
constexpr GroupedCase grouped_cases[] = {
    {1, 8, 64, 0, 200, 1040, 0}, {5, 2, 4, 0, 64, 64, 8},      {40, 2, 7, 0, 72, 513, 3},
    {300, 2, 5, 0, 136, 520, 0}, {1200, 2, 4, 0, 264, 72, 8},  {300, 2, 5, 60, 136, 96, 0},
    {33, 2, 3, 5, 31, 65, 1},    {777, 2, 6, 0, 136, 1160, 0}, {1100, 1, 3, 0, 584, 200, 8}};

}  // namespace

// A row has the bits of gemm_forward on the same device, whatever the other rows are and whichever tile is used.
TEST(GroupedGemmOnGpu, RowsHaveTheBitsOfTheDenseProduct) {
  HONE_GPU_OR_SKIP();
  for (const GroupedCase& c : grouped_cases)
    for (const DType dtype : dtypes) {
      if (!chosen()) continue;
      SCOPED_TRACE(concat(c.tokens, " tokens, N ", c.N, ", K ", c.K, ", ", name_of(dtype)));
      const int64_t P = c.tokens * c.k;
      const Dispatched sorted(random_experts(c.tokens, c.k, c.E, 1), c.E, c.capacity);
      const OnGpu x(normals({P, c.K}, 2, 1, c.gap), dtype), w(normals({c.E, c.N, c.K}, 3, 1, c.gap), dtype),
          offsets(sorted.offsets);
      for (size_t body = 0; body < grouped_gemm_forward.bodies().size(); ++body) {
        if (grouped_gemm_forward.bodies()[body].device != DeviceKind::cuda) continue;
        OnGpu y = OnGpu::poisoned({P, c.N}, dtype, c.gap);
        const GroupedGemmForward args{.y = y, .x = x, .w = w, .offsets = offsets};
        if (!grouped_gemm_forward.supported(body, args)) continue;
        grouped_gemm_forward.run_body(body, *gpu(), args);
        const Floats out = y.read();
        for (int64_t e = 0; e < c.E; ++e) {
          const int64_t first = sorted.offsets[e], rows = sorted.offsets[e + 1] - first;
          if (rows == 0) continue;
          OnGpu dense = OnGpu::poisoned({rows, c.N}, dtype);
          gemm_forward(*gpu(), {.y = dense, .x = x.tensor().rows(first, rows), .w = expert_matrix(w, e)});
          const Floats expected = dense.read();
          for (int64_t i = 0; i < expected.size(); ++i)
            ASSERT_TRUE(same_bits(out[first * c.N + i], expected[i]))
                << grouped_gemm_forward.bodies()[body].name << ", expert " << e << ", element " << i;
        }
        for (int64_t i = sorted.offsets[c.E] * c.N; i < out.size(); ++i) ASSERT_EQ(out[i], 0);
      }
    }
}

namespace {

// The CUDA bodies of an op that take these arguments.
template <class Args>
std::vector<size_t> gpu_bodies(const Op<Args>& op, const Args& args) {
  std::vector<size_t> out;
  for (size_t body = 0; body < op.bodies().size(); ++body)
    if (op.bodies()[body].device == DeviceKind::cuda && op.supported(body, args)) out.push_back(body);
  return out;
}

}  // namespace

TEST(GroupedGemmOnGpu, AccumulatedRowsHaveTheBitsOfAResidual) {
  HONE_GPU_OR_SKIP();
  for (const GroupedCase& c : grouped_cases) {
    if (!chosen()) continue;
    const int64_t P = c.tokens * c.k;
    const Dispatched sorted(random_experts(c.tokens, c.k, c.E, 1), c.E, c.capacity);
    const OnGpu x(normals({P, c.K}, 2, 1, c.gap), DType::bf16), w(normals({c.E, c.N, c.K}, 3), DType::bf16),
        offsets(sorted.offsets);
    const Floats before = rounded(normals({P, c.N}, 6, 3), DType::bf16);
    OnGpu any(before, DType::bf16);
    for (const size_t body :
         gpu_bodies(grouped_gemm_forward, {.y = any, .x = x, .w = w, .offsets = offsets, .accumulate = true})) {
      SCOPED_TRACE(concat(grouped_gemm_forward.bodies()[body].name, ", N ", c.N, ", K ", c.K));
      OnGpu y(before, DType::bf16);
      grouped_gemm_forward.run_body(body, *gpu(), {.y = y, .x = x, .w = w, .offsets = offsets, .accumulate = true});
      const Floats out = y.read();
      for (int64_t e = 0; e < c.E; ++e) {
        const int64_t first = sorted.offsets[e], rows = sorted.offsets[e + 1] - first;
        if (rows == 0) continue;
        OnGpu dense = OnGpu::poisoned({rows, c.N}, DType::bf16);
        const OnGpu residual(before, DType::bf16);
        gemm_forward(*gpu(), {.y = dense,
                              .x = x.tensor().rows(first, rows),
                              .w = expert_matrix(w, e),
                              .residual = residual.tensor().rows(first, rows)});
        const Floats expected = dense.read();
        for (int64_t i = 0; i < expected.size(); ++i)
          ASSERT_TRUE(same_bits(out[first * c.N + i], expected[i])) << "expert " << e << ", element " << i;
      }
      for (int64_t i = sorted.offsets[c.E] * c.N; i < out.size(); ++i) ASSERT_TRUE(same_bits(out[i], before[i]));
    }
  }
}

TEST(GroupedGemmOnGpu, GradientsAgreeWithTheSpecificationAndRepeat) {
  HONE_GPU_OR_SKIP();
  for (const GroupedCase& c : grouped_cases)
    for (const DType dtype : dtypes) {
      if (!chosen()) continue;
      SCOPED_TRACE(concat(c.tokens, " tokens, N ", c.N, ", K ", c.K, ", ", name_of(dtype)));
      const int64_t P = c.tokens * c.k;
      const Dispatched sorted(random_experts(c.tokens, c.k, c.E, 1), c.E, c.capacity);
      Floats x = rounded(normals({P, c.K}, 2, 1, c.gap), dtype);
      const Floats w = rounded(normals({c.E, c.N, c.K}, 3, 1, c.gap), dtype),
                   dy = rounded(normals({P, c.N}, 4, 1, c.gap), dtype), before = normals({c.E, c.N, c.K}, 5);
      for (int64_t i = sorted.offsets[c.E] * c.K; i < P * c.K; ++i) x[i] = NAN;  // rows that do not count
      Floats dx = poisoned({P, c.K}), dw = before;
      grouped_gemm_backward_input(cpu(), {.dx = dx, .dy = dy, .w = w, .offsets = sorted.offsets});
      grouped_gemm_backward_weight(cpu(), {.dw = dw, .dy = dy, .x = x, .offsets = sorted.offsets});
      const OnGpu x_gpu(x, dtype), w_gpu(w, dtype), dy_gpu(dy, dtype), offsets(sorted.offsets);
      OnGpu dx_gpu = OnGpu::poisoned({P, c.K}, dtype, c.gap);
      const GroupedGemmBackwardInput input{.dx = dx_gpu, .dy = dy_gpu, .w = w_gpu, .offsets = offsets};
      for (const size_t body : gpu_bodies(grouped_gemm_backward_input, input)) {
        SCOPED_TRACE(grouped_gemm_backward_input.bodies()[body].name);
        std::vector<Floats> runs;
        for (int repeat = 0; repeat < 2; ++repeat) {
          OnGpu out = OnGpu::poisoned({P, c.K}, dtype, c.gap);
          grouped_gemm_backward_input.run_body(body, *gpu(), {.dx = out, .dy = dy_gpu, .w = w_gpu, .offsets = offsets});
          runs.push_back(out.read());
        }
        EXPECT_TRUE(agrees(runs[0], dx, dtype, 2));
        EXPECT_TRUE(close(runs[1], runs[0], {0, 0}));
      }
      OnGpu dw_gpu(before);
      const GroupedGemmBackwardWeight weight{.dw = dw_gpu, .dy = dy_gpu, .x = x_gpu, .offsets = offsets};
      for (const size_t body : gpu_bodies(grouped_gemm_backward_weight, weight)) {
        SCOPED_TRACE(grouped_gemm_backward_weight.bodies()[body].name);
        std::vector<Floats> runs;
        for (int repeat = 0; repeat < 2; ++repeat) {
          OnGpu out(before);
          grouped_gemm_backward_weight.run_body(body, *gpu(),
                                                {.dw = out, .dy = dy_gpu, .x = x_gpu, .offsets = offsets});
          runs.push_back(out.read());
        }
        EXPECT_TRUE(close(runs[0], dw, {1e-4, 1e-4 * rms(dw)}));
        EXPECT_TRUE(close(runs[1], runs[0], {0, 0}));
        // Written instead of added; experts without rows get zeros.
        OnGpu out = OnGpu::poisoned({c.E, c.N, c.K});
        grouped_gemm_backward_weight.run_body(body, *gpu(),
                                              {.dw = {out, false}, .dy = dy_gpu, .x = x_gpu, .offsets = offsets});
        Floats sum = out.read();
        for (int64_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
        EXPECT_TRUE(close(sum, runs[0], {0, 0}));
      }
    }
}

namespace {

// Runs every CUDA body of the op that supports the arguments into an output of its own; all must have equal bits.
// make(args) poisons or copies the output and returns it.
template <class Args, class Output, class Make>
size_t expect_equal_bodies(const Op<Args>& op, Args args, Output Args::*output, Make make) {
  std::vector<Floats> results;
  for (size_t body = 0; body < op.bodies().size(); ++body) {
    if (op.bodies()[body].device != DeviceKind::cuda || std::string_view(op.bodies()[body].name) == "tiles") continue;
    OnGpu out = make();
    args.*output = out;
    if (!op.supported(body, args)) continue;
    op.run_body(body, *gpu(), args);
    results.push_back(out.read());
    for (int64_t i = 0; i < results[0].size(); ++i)
      if (!same_bits(results.back()[i], results[0][i])) {
        ADD_FAILURE() << op.name() << ", body " << op.bodies()[body].name << ", element " << i;
        break;
      }
  }
  return results.size();
}

}  // namespace

// wgmma and mma.sync give the same bits. The rows of the next expert and those without one must not count.
TEST(GroupedGemmOnGpu, HopperAndPortableBodiesHaveEqualBits) {
  HONE_GPU_OR_SKIP();
  if (!runs_hopper_bodies()) GTEST_SKIP() << "no Hopper bodies on this GPU";
  struct Case {
    std::vector<int32_t> ends;
    int64_t rows, N, K;
  };
  const Case cases[] = {{{0, 100, 100, 131, 400, 600}, 600, 136, 520},
                        {{0, 1, 129, 385, 385, 700}, 750, 264, 1032},
                        {{0, 500, 500, 1000}, 1100, 200, 2048},
                        {{0, 0, 63, 64, 2000, 2000, 2500}, 2500, 1536, 768},
                        {{0, 0, 0, 0}, 400, 64, 72}};
  for (const Case& c : cases)
    for (const int64_t gap : {0, 8}) {
      if (!chosen()) continue;
      SCOPED_TRACE(concat(c.rows, " rows, N ", c.N, ", K ", c.K, ", gap ", gap));
      const auto E = static_cast<int64_t>(c.ends.size()) - 1;
      Ids ends({E + 1});
      for (int64_t e = 0; e <= E; ++e) ends[e] = c.ends[static_cast<size_t>(e)];
      Floats x = normals({c.rows, c.K}, 1, 1, gap), dy = normals({c.rows, c.N}, 2, 1, gap);
      for (int64_t r = ends[E]; r < c.rows; ++r) {
        std::fill_n(x.tensor().row<float>(r), c.K, nan_f32);
        std::fill_n(dy.tensor().row<float>(r), c.N, nan_f32);
      }
      const OnGpu x_gpu(x, DType::bf16), dy_gpu(dy, DType::bf16), offsets(ends),
          w(normals({E, c.N, c.K}, 3, 1, gap), DType::bf16);
      const Floats dw = normals({E, c.N, c.K}, 4), y = normals({c.rows, c.N}, 5, 1, gap);
      for (const bool accumulate : {false, true})
        EXPECT_EQ(expect_equal_bodies(
                      grouped_gemm_forward,
                      GroupedGemmForward{.y = {}, .x = x_gpu, .w = w, .offsets = offsets, .accumulate = accumulate},
                      &GroupedGemmForward::y,
                      [&] {
                        return accumulate ? OnGpu(y, DType::bf16) : OnGpu::poisoned({c.rows, c.N}, DType::bf16, gap);
                      }),
                  2u);
      EXPECT_EQ(expect_equal_bodies(grouped_gemm_backward_input,
                                    GroupedGemmBackwardInput{.dx = {}, .dy = dy_gpu, .w = w, .offsets = offsets},
                                    &GroupedGemmBackwardInput::dx,
                                    [&] {
                                      return OnGpu::poisoned({c.rows, c.K}, DType::bf16, gap);
                                    }),
                2u);
      EXPECT_EQ(expect_equal_bodies(grouped_gemm_backward_weight,
                                    GroupedGemmBackwardWeight{.dw = {}, .dy = dy_gpu, .x = x_gpu, .offsets = offsets},
                                    &GroupedGemmBackwardWeight::dw, [&] { return OnGpu(dw); }),
                2u);
    }
}

TEST(BalanceOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  const int64_t k = 4;
  for (const int64_t E : {8, 64, 200})
    for (const RouterScores scores : {RouterScores::softmax, RouterScores::sigmoid}) {
      const int64_t T = 700, S = 4;
      const Floats logits = normals({T, E}, 1, 2, 3), before = normals({S, E}, 2);
      const Ids experts = random_experts(T, k, E, 3);
      Ids ends({S + 1});
      ends[1] = 0;
      ends[2] = 300;
      ends[3] = 301;
      ends[4] = static_cast<int32_t>(T);
      Floats load = before, probs = before, rest = normals({S, 2}, 6), sums({3 + E}, 1.0f),
             dlogits = normals({T, E}, 4, 1, 1), bias = normals({E}, 5), weights({T}, 0.01f);
      for (int64_t t = 0; t < T; t += 3) weights[t] = 0;
      const Dispatched sorted(experts, E, 100);
      OnGpu load_gpu(load), probs_gpu(probs), rest_gpu(rest), sums_gpu(sums), dlogits_gpu(dlogits), bias_gpu(bias);
      const OnGpu logits_gpu(logits), experts_gpu(experts), ends_gpu(ends), weights_gpu(weights),
          places_gpu(sorted.places);
      router_load(cpu(), {.load = load,
                          .probs = probs,
                          .rest = rest,
                          .logits = logits,
                          .experts = experts,
                          .places = sorted.places,
                          .weights = weights,
                          .offsets = ends,
                          .scores = scores});
      router_load(*gpu(), {.load = load_gpu,
                           .probs = probs_gpu,
                           .rest = rest_gpu,
                           .logits = logits_gpu,
                           .experts = experts_gpu,
                           .places = places_gpu,
                           .weights = weights_gpu,
                           .offsets = ends_gpu,
                           .scores = scores});
      EXPECT_TRUE(close(load_gpu.read(), load, {1e-5, 1e-5}));
      EXPECT_TRUE(close(probs_gpu.read(), probs, {1e-4, 1e-4}));
      EXPECT_TRUE(close(rest_gpu.read(), rest, {1e-4, 1e-4}));
      router_sums(cpu(), {.sums = sums, .load = load, .probs = probs, .rest = rest, .num_choices = k});
      router_sums(
          *gpu(),
          {.sums = sums_gpu, .load = OnGpu(load), .probs = OnGpu(probs), .rest = OnGpu(rest), .num_choices = k});
      EXPECT_TRUE(close(sums_gpu.read(), sums, {1e-4, 1e-4}));
      const auto gradient = [&](Tensor to, Tensor from, Tensor counts, Tensor of_tokens, Tensor offsets) {
        return RouterLossesBackward{.dlogits = to,
                                    .logits = from,
                                    .load = counts,
                                    .weights = of_tokens,
                                    .offsets = offsets,
                                    .scores = scores,
                                    .num_choices = k,
                                    .balance = 7,
                                    .z = 3};
      };
      router_losses_backward(cpu(), gradient(dlogits, logits, load, weights, ends));
      const OnGpu counts(load);
      router_losses_backward(*gpu(), gradient(dlogits_gpu, logits_gpu, counts, weights_gpu, ends_gpu));
      EXPECT_TRUE(close(dlogits_gpu.read(), dlogits, {1e-4, 1e-4}));
      router_bias_update(cpu(), {.bias = bias, .load = load.tensor().rows(2, 1).view({E}), .rate = 0.01f});
      const OnGpu loads(load);
      router_bias_update(*gpu(), {.bias = bias_gpu, .load = loads.tensor().rows(2, 1).view({E}), .rate = 0.01f});
      EXPECT_TRUE(close(bias_gpu.read(), bias, {0, 0}));
    }
}

}  // namespace hone::test
