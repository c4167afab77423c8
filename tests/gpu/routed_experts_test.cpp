// Mixtures of experts in decode passes on a GPU, with weights in bf16 and in 8 bits: equal bits of the fused body, of
// the separate ops and of the dense products, at every number of tokens.
#include "kernels/moe/routed_experts.h"

#include "kernels/gemm/gemm.h"
#include "kernels/quant/gemm_quantized.h"
#include "rollout/engine.h"
#include "tests/gpu/gpu_model.h"
#include "tests/gpu/quantized_on_gpu.h"
#include "tests/kernels/moe/routed.h"
#include "tests/rollout/tiny_engine.h"

namespace hone::test {
namespace {

// RoutedInputs on the GPU, in bf16.
struct RoutedOnGpu {
  RoutedCase sizes;
  OnGpu x, logits, bias, residual, gate_up, down, gate_up_bias, down_bias;
  std::unique_ptr<QuantizedOnGpu> gate_up_bytes{}, down_bytes{};

  RoutedOnGpu(const RoutedInputs& from, std::optional<QuantFormat> format)
      : sizes(from.sizes),
        x(from.x, DType::bf16),
        logits(from.logits),
        bias(from.bias),
        residual(from.residual, DType::bf16),
        gate_up(from.gate_up, DType::bf16),
        down(from.down, DType::bf16),
        gate_up_bias(from.gate_up_bias, DType::bf16),
        down_bias(from.down_bias, DType::bf16) {
    if (!format) return;
    gate_up_bytes = std::make_unique<QuantizedOnGpu>(*format, gate_up);
    down_bytes = std::make_unique<QuantizedOnGpu>(*format, down);
  }
  RoutedExperts arguments(const OnGpu& y, int64_t first = 0) const {
    const int64_t count = y.tensor().dim(0), E = sizes.experts;
    const auto matrices = [&](const OnGpu& numbers, const std::unique_ptr<QuantizedOnGpu>& bytes) {
      const Tensor w = numbers.tensor();
      if (bytes) return ExpertMatrices{.quantized = as_experts(*bytes, E)};
      return ExpertMatrices{.w = w.view({E, w.dim(0) / E, w.dim(1)})};
    };
    return {.y = y,
            .x = x.tensor().rows(first, count),
            .logits = logits.tensor().rows(first, count),
            .bias = bias,
            .gate_up = matrices(gate_up, gate_up_bytes),
            .down = matrices(down, down_bytes),
            .residual = residual.tensor().rows(first, count),
            .rule = {.scores = RouterScores::sigmoid, .normalize = true, .scale = 2.5f},
            .num_choices = sizes.choices};
  }
};

// Small normals, so that sums stay near the size of their terms.
RoutedInputs routed_inputs(const RoutedCase& c) {
  RoutedInputs out({c.tokens, c.experts, c.choices, c.width, c.inner}, std::nullopt);
  out.x = normals({c.tokens, c.width}, 1, 1, 8);
  for (Floats* w : {&out.gate_up, &out.down})
    for (int64_t i = 0; i < w->size(); ++i) (*w)[i] *= 0.1f;
  return out;
}

size_t body_named(const OpBase& op, std::string_view name) {
  for (size_t i = 0; i < op.bodies().size(); ++i)
    if (op.bodies()[i].device == DeviceKind::cuda && op.bodies()[i].name == name) return i;
  fail("no body ", name);
}

// gpt_oss: with biases, and the clamped activation.
Floats run(const char* body, const RoutedOnGpu& inputs, int64_t tokens, int64_t first, bool gpt_oss = false) {
  OnGpu y = OnGpu::poisoned({tokens, inputs.sizes.width}, DType::bf16, 3);
  RoutedExperts args = inputs.arguments(y, first);
  if (gpt_oss) {
    args.gate_up.bias = inputs.gate_up_bias;
    args.down.bias = inputs.down_bias;
    args.clamped = ClampedGlu{.limit = 1};
  }
  const size_t i = body_named(routed_experts, body);
  EXPECT_TRUE(routed_experts.supported(i, args)) << body;
  routed_experts.run_body(i, *gpu(), args);
  return y.read();
}

// Several K chunks, sizes that are no multiple of a strip, many experts without rows, few experts with many rows,
// the numbers of experts of Qwen3-30B-A3B and of Mixtral.
constexpr RoutedCase routed_cases[] = {{256, 16, 4, 64, 48},    {200, 40, 6, 1040, 80}, {130, 64, 8, 144, 1168},
                                       {256, 128, 8, 512, 192}, {64, 8, 2, 256, 528},   {9, 300, 3, 16, 16}};

}  // namespace

TEST(RoutedExpertsOnGpu, FewRowsHaveTheBitsOfTheSteps) {
  HONE_GPU_OR_SKIP();
  for (const RoutedCase& c : routed_cases)
    for (const auto& format : routed_formats) {
      if (!chosen()) continue;
      const RoutedOnGpu inputs(routed_inputs(c), format);
      for (const int64_t tokens : {1, 2, 3, 7, 8, 9, 16, 17, 64, 100, 128, 256}) {
        if (tokens > c.tokens) continue;
        SCOPED_TRACE(concat(tokens, " tokens, ", c.experts, " experts, width ", c.width, ", inner ", c.inner, ", ",
                            format ? (*format == QuantFormat::int8 ? "int8" : "fp8") : "bf16"));
        const int64_t first = tokens * 31 % (c.tokens - tokens + 1);
        for (const bool gpt_oss : {false, true}) {
          const Floats expected = run("steps", inputs, tokens, first, gpt_oss);
          for (int repeat = 0; repeat < 2; ++repeat)
            ASSERT_TRUE(close(run("few_rows", inputs, tokens, first, gpt_oss), expected, {0, 0})) << gpt_oss;
        }
      }
    }
}

TEST(RoutedExpertsOnGpu, ATokensBitsDoNotDependOnTheBatch) {
  HONE_GPU_OR_SKIP();
  const RoutedCase c{256, 32, 4, 128, 96};
  for (const auto& format : routed_formats) {
    const RoutedOnGpu inputs(routed_inputs(c), format);
    const auto run_op = [&](int64_t tokens, int64_t first) {
      OnGpu y = OnGpu::poisoned({tokens, c.width}, DType::bf16);
      routed_experts(*gpu(), inputs.arguments(y, first));
      return y.read();
    };
    const Floats whole = run_op(c.tokens, 0);
    for (const int64_t tokens : {1, 2, 5, 8, 9, 31, 64, 128, 200}) {
      const int64_t first = tokens * 31 % (c.tokens - tokens + 1);
      const Floats part = run_op(tokens, first);
      for (int64_t i = 0; i < part.size(); ++i)
        ASSERT_TRUE(same_bits(part[i], whole[first * c.width + i])) << tokens << " tokens, element " << i;
    }
  }
}

TEST(RoutedExpertsOnGpu, AgreeWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  const RoutedCase c{40, 16, 4, 96, 64};
  const RoutedInputs inputs = routed_inputs(c);
  for (const int64_t tokens : {1, 7, 40}) {
    Floats expected = poisoned({tokens, c.width});
    RoutedInputs same = inputs;
    for (Floats* numbers : {&same.x, &same.residual, &same.gate_up, &same.down})
      *numbers = rounded(*numbers, DType::bf16);
    routed_experts(cpu(), same.arguments(expected));
    EXPECT_TRUE(agrees(run("few_rows", RoutedOnGpu(inputs, std::nullopt), tokens, 0), expected, DType::bf16, 2));
  }
}

// y may be the residual, and the weights of experts that no token chose may hold anything.
TEST(RoutedExpertsOnGpu, ReadOnlyTheChosenExpertsAndAddInPlace) {
  HONE_GPU_OR_SKIP();
  const RoutedCase c{2, 16, 3, 64, 32};
  RoutedInputs inputs = routed_inputs(c);
  const Floats expected = run("few_rows", RoutedOnGpu(inputs, std::nullopt), c.tokens, 0);
  Ids experts({c.tokens, c.choices});
  router_forward(cpu(), {.experts = experts,
                         .weights = Floats({c.tokens, c.choices}),
                         .logits = inputs.logits,
                         .bias = inputs.bias,
                         .rule = inputs.arguments(inputs.residual).rule});
  for (int32_t e = 0; e < c.experts; ++e) {
    bool chosen_by_some = false;
    for (int64_t i = 0; i < experts.size(); ++i) chosen_by_some = chosen_by_some || experts[i] == e;
    if (chosen_by_some) continue;
    for (int64_t i = 0; i < 2 * c.inner * c.width; ++i) inputs.gate_up[e * 2 * c.inner * c.width + i] = nan_f32;
    for (int64_t i = 0; i < c.inner * c.width; ++i) inputs.down[e * c.inner * c.width + i] = nan_f32;
  }
  const RoutedOnGpu poisoned_inputs(inputs, std::nullopt);
  EXPECT_TRUE(close(run("few_rows", poisoned_inputs, c.tokens, 0), expected, {0, 0}));
  OnGpu in_place(inputs.residual, DType::bf16);
  RoutedExperts args = poisoned_inputs.arguments(in_place);
  args.residual = in_place;
  routed_experts(*gpu(), args);
  EXPECT_TRUE(close(in_place.read(), expected, {0, 0}));
}

// Each body, with dropped rows and unaligned sizes: the bits of gemm_quantized.
TEST(GroupedGemmQuantizedOnGpu, RowsHaveTheBitsOfTheDenseProduct) {
  HONE_GPU_OR_SKIP();
  struct Case {
    int64_t tokens, k, E, capacity, N, K;
  };
  for (const Case& c : {Case{1, 8, 64, 0, 200, 1040},
                        {5, 2, 4, 0, 64, 64},
                        {40, 2, 7, 0, 72, 513},
                        {300, 2, 5, 0, 136, 528},
                        {1200, 2, 4, 0, 264, 80},
                        {300, 2, 5, 60, 136, 96},
                        {33, 2, 3, 5, 31, 65}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const QuantFormat format : all_quant_formats) {
        if (!chosen()) continue;
        SCOPED_TRACE(concat(c.tokens, " tokens, N ", c.N, ", K ", c.K, ", ", name_of(dtype)));
        const int64_t P = c.tokens * c.k;
        const Dispatched sorted(random_experts(c.tokens, c.k, c.E, 1), c.E, c.capacity);
        const OnGpu x(normals({P, c.K}, 2), dtype), offsets(sorted.offsets);
        const QuantizedOnGpu rows(format, OnGpu(normals({c.E * c.N, c.K}, 3)));
        const QuantizedMatrix w = as_experts(rows, c.E);
        for (size_t body = 0; body < grouped_gemm_quantized.bodies().size(); ++body) {
          if (grouped_gemm_quantized.bodies()[body].device != DeviceKind::cuda) continue;
          OnGpu y = OnGpu::poisoned({P, c.N}, dtype, 3);
          const GroupedGemmQuantized args{.y = y, .x = x, .w = w, .offsets = offsets};
          if (!grouped_gemm_quantized.supported(body, args)) continue;
          grouped_gemm_quantized.run_body(body, *gpu(), args);
          const Floats out = y.read();
          for (int64_t e = 0; e < c.E; ++e) {
            const int64_t first = sorted.offsets[e], count = sorted.offsets[e + 1] - first;
            if (count == 0) continue;
            OnGpu dense = OnGpu::poisoned({count, c.N}, dtype);
            gemm_quantized(*gpu(), {.y = dense, .x = x.tensor().rows(first, count), .w = expert_matrix(w, e)});
            const Floats expected = dense.read();
            for (int64_t i = 0; i < expected.size(); ++i)
              ASSERT_TRUE(same_bits(out[first * c.N + i], expected[i]))
                  << grouped_gemm_quantized.bodies()[body].name << ", expert " << e << ", element " << i;
          }
          for (int64_t i = sorted.offsets[c.E] * c.N; i < out.size(); ++i) ASSERT_EQ(out[i], 0) << i;
          const Floats before = rounded(normals({P, c.N}, 4), dtype);
          OnGpu sum(before, dtype);
          GroupedGemmQuantized adds = args;
          adds.y = sum;
          adds.accumulate = true;
          grouped_gemm_quantized.run_body(body, *gpu(), adds);
          const Floats sums = sum.read();
          for (int64_t e = 0; e < c.E; ++e) {
            const int64_t first = sorted.offsets[e], count = sorted.offsets[e + 1] - first;
            if (count == 0) continue;
            OnGpu dense(before, dtype);
            const Tensor rows_of_expert = dense.tensor().rows(first, count);
            gemm_quantized(*gpu(), {.y = rows_of_expert,
                                    .x = x.tensor().rows(first, count),
                                    .w = expert_matrix(w, e),
                                    .residual = rows_of_expert});
            const Floats expected = dense.read();
            for (int64_t i = first * c.N; i < (first + count) * c.N; ++i)
              ASSERT_TRUE(same_bits(sums[i], expected[i])) << "added to, expert " << e << ", element " << i;
          }
          for (int64_t i = sorted.offsets[c.E] * c.N; i < sums.size(); ++i) ASSERT_EQ(sums[i], before[i]) << i;
        }
      }
}

// The decode passes run as recorded graphs; a reply has one set of bits at batch sizes 1 to 256, with speculation, and
// unquantized the learner's log-probs.
TEST(MoeEngineOnGpu, RepliesDoNotDependOnTheBatch) {
  HONE_GPU_OR_SKIP();
  const Json config = with(gpu_config("qwen3_moe", 64),
                           {{"moe_intermediate_size", 80}, {"num_experts", 16}, {"num_experts_per_tok", 4}});
  const auto model = make_model(config, "test");
  model->allocate(*gpu(), DType::bf16, false);
  model->initialize(*gpu(), 7);
  const auto sequences = gpu_sequences({5, 40, 17, 90, 3, 61, 28, 12});
  const auto request = [&](uint64_t i) {
    return GenerationRequest{
        sequences[i % sequences.size()],
        1,
        i,
        {.temperature = 0.8, .max_tokens = sized(24, 5), .seed = 3, .ignore_eos = true, .stop = {}, .stop_ids = {}}};
  };
  for (const char* format : {"none", "int8", "fp8"}) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, format);
    EngineConfig engine{.kv_cache_tokens = 65536, .quantization = format};
    std::vector<CompletionOutput> expected;
    for (const uint64_t size : {1u, 2u, 7u, 8u, 9u, 64u, 130u, 256u}) {
      std::vector<GenerationRequest> batch;
      for (uint64_t i = 1; i < size; ++i) batch.push_back(request(i));
      batch.insert(batch.begin() + static_cast<std::ptrdiff_t>(size / 2), request(0));
      const auto all = Engine(*gpu(), *model, nullptr, engine).generate(batch);
      const std::vector<CompletionOutput>& own = all[size / 2];
      if (size == 1) expected = own;
      ASSERT_EQ(own[0].ids, expected[0].ids) << size;
      ASSERT_EQ(own[0].logp, expected[0].logp) << size;
    }
    engine.speculative = {.method = "ngram", .prompt_lookup_min = 2, .prompt_lookup_max = 3};
    EXPECT_EQ(Engine(*gpu(), *model, nullptr, engine).generate({request(0)})[0][0].ids, expected[0].ids);
    if (std::string(format) != "none") continue;
    std::vector<int32_t> ids = sequences[0];
    ids.insert(ids.end(), expected[0].ids.begin(), expected[0].ids.end());
    const TokenLogprobs scores =
        compute_logprobs(*gpu(), *model, std::vector<std::vector<int32_t>>{ids}, {.temperature = 0.8}).front();
    for (size_t t = 0; t < expected[0].ids.size(); ++t)
      ASSERT_EQ(expected[0].logp[t], scores.logp[sequences[0].size() + t]) << "token " << t;
  }
}

}  // namespace hone::test
