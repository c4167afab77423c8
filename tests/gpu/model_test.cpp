// Models on a GPU compared with the CPU.
#include "kernels/lm_head/logprob.h"
#include "rollout/engine.h"
#include "tests/gpu/gpu_model.h"
#include "tests/model/golden.h"

namespace hone::test {
namespace {

// Log-probs, entropies and gradients of a loss that weights each of them differently.
struct Outcome {
  std::vector<float> logp, entropy, gradients;
};
Outcome outcome(Context& context, Model& model, const std::vector<std::vector<int32_t>>& sequences,
                Recompute recompute = Recompute::none) {
  const ScratchScope scope(context);
  Arena arena(context.device());
  const Batch batch = pack_batch(context, arena, std::vector<BatchPart>(sequences.begin(), sequences.end()));
  const int64_t R = batch.num_tokens;
  const std::vector<int32_t> all = all_rows(R), next = random_tokens(all.size(), model.shape().vocab_size, 11);
  std::vector<float> weights, entropy_weights;
  for (int64_t t = 0; t < R; ++t) {
    weights.push_back(std::sin(static_cast<float>(t) + 1) / static_cast<float>(R));
    entropy_weights.push_back(0.5f * std::cos(static_cast<float>(t)) / static_cast<float>(R));
  }
  const auto column = [&] { return arena.take(DType::f32, {R}); };
  const Tensor rows = upload(context, arena, std::span<const int32_t>(all)),
               targets = upload(context, arena, std::span<const int32_t>(next)), logp = column(), lse = column(),
               entropy = column();
  TrainingPass pass(context, model, recompute);
  const Tensor hidden = pass.forward(batch, rows), dhidden = arena.take(hidden.dtype, hidden.dims());
  Param& head = model.lm_head();
  logprob_forward(context, {.logp = logp,
                            .lse = lse,
                            .entropy = entropy,
                            .hidden = hidden,
                            .w = head.value,
                            .targets = targets,
                            .inv_temperature = 0.8f,
                            .softcap = model.shape().logit_softcap});
  model.zero_grad(context);
  const LogprobGrad grad{upload(context, arena, std::span<const float>(weights)),
                         upload(context, arena, std::span<const float>(entropy_weights))};
  logprob_backward(context, {.dhidden = dhidden,
                             .dw = head.grad,
                             .grad = grad,
                             .lse = lse,
                             .entropy = entropy,
                             .hidden = hidden,
                             .w = head.value,
                             .targets = targets,
                             .inv_temperature = 0.8f,
                             .softcap = model.shape().logit_softcap});
  pass.backward(dhidden);
  return {on_host(context, logp), on_host(context, entropy), on_host(context, model.flat_grads())};
}

void expect_agreement_with_cpu(const Json& config, DType dtype) {
  const auto sequences = gpu_sequences({70, 1, 133, 64});
  const auto there = cpu_model(config, dtype);
  const auto here = gpu_model(config, *there, dtype);
  const Outcome expected = outcome(cpu(), *there, sequences), actual = outcome(*gpu(), *here, sequences);
  const double tolerance = dtype == DType::f32 ? 1e-4 : 2e-2;
  EXPECT_LE(distance(actual.logp, expected.logp), tolerance);
  EXPECT_LE(distance(actual.entropy, expected.entropy), tolerance);
  EXPECT_LE(distance(actual.gradients, expected.gradients), tolerance);
  // Each parameter is compared on its own scale, within the bound of its rounding errors.
  for (const Param* param : here->params()) {
    const auto begin = static_cast<size_t>(static_cast<const float*>(param->grad.data) -
                                           static_cast<const float*>(here->flat_grads().data));
    const auto part = [&](const Outcome& from) {
      return std::span(from.gradients).subspan(begin, static_cast<size_t>(param->grad.size()));
    };
    EXPECT_LE(distance(part(actual), part(expected)), 3 * tolerance) << param->slices.front().name;
  }
}

void expect_recomputation_keeps_bits(const Json& config) {
  const auto sequences = gpu_sequences({70, 133});
  const auto model = gpu_model(config, *cpu_model(config, DType::bf16), DType::bf16);
  const Outcome kept = outcome(*gpu(), *model, sequences);
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    const Outcome again = outcome(*gpu(), *model, sequences, recompute);
    EXPECT_EQ(again.logp, kept.logp);
    EXPECT_EQ(again.gradients, kept.gradients) << static_cast<int>(recompute);
  }
}

TEST(FamiliesOnGpu, AgreeWithTheCpu) {
  HONE_GPU_OR_SKIP();
  for (const std::string& family : families().names())
    for (const int64_t dim : {16, 64, 128})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        if (!chosen()) continue;
        SCOPED_TRACE(concat(family, ", heads of ", dim, ", ", name_of(dtype)));
        expect_agreement_with_cpu(gpu_config(family, dim), dtype);
      }
}

TEST(FamiliesOnGpu, RecomputationHasTheSameBits) {
  HONE_GPU_OR_SKIP();
  for (const std::string& family : families().names()) {
    if (!chosen()) continue;
    SCOPED_TRACE(family);
    expect_recomputation_keeps_bits(gpu_config(family, 64));
  }
}

// A decoder with latent attention beside grouped-query attention with a window, and with experts in some layers.
Json composed_config() {
  return with(
      gpu_config("hone_decoder", 64),
      {{"num_hidden_layers", 4},
       {"attn_logit_softcapping", Json()},
       {"attention", JsonArray{"grouped", "latent", "latent", "grouped"}},
       {"kv_lora_rank", 128},
       {"mlp", JsonArray{"gated", "experts", "plain", "experts"}},
       {"num_experts", 4},
       {"norm_placement", JsonArray{"pre", "pre", "both", "pre"}},
       {"layer_types", JsonArray{"sliding_attention", "sliding_attention", "full_attention", "full_attention"}}});
}

TEST(ComposedOnGpu, LayersOfAllKindsAgreeWithTheCpuAndKeepTheirBits) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(name_of(dtype));
    expect_agreement_with_cpu(composed_config(), dtype);
  }
  expect_recomputation_keeps_bits(composed_config());
}

TEST(FamiliesOnGpu, LogitsAndGradientsAreThoseOfTransformers) {
  HONE_GPU_OR_SKIP();
  for (const char* family : golden_families)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Golden golden(*gpu(), family, dtype);
      const Golden::Errors errors = golden.errors();
      const auto tolerance = [&](const char* of) {
        return dtype == DType::f32 ? 1e-4 : std::max(2e-2, 2 * golden.bf16_error(of));
      };
      EXPECT_LE(errors.logits, tolerance("logits")) << family << " " << name_of(dtype);
      EXPECT_LE(errors.gradients, tolerance("gradients")) << family << " " << name_of(dtype) << ": " << errors.worst;
    }
}

std::vector<GenerationRequest> requests() {
  std::vector<GenerationRequest> out;
  for (const auto& prompt : gpu_sequences({5, 40, 17, 90, 1, 33}))
    out.push_back({prompt,
                   3,
                   out.size(),
                   {.temperature = 0.9, .max_tokens = sized(40, 5), .ignore_eos = true, .stop = {}, .stop_ids = {}}});
  return out;
}

// Also at the end of 32,000 tokens.
TEST(GenerationBackendOnGpu, RecordsTheLearnersLogProbsBitForBitInALongContext) {
  HONE_GPU_OR_SKIP();
  for (const auto& [family, dim] : {std::pair{"qwen2", 64}, {"llama", 128}}) {
    if (!chosen()) continue;
    Json config = gpu_config(family, dim);
    config.set("max_position_embeddings", 32768);
    const auto model = gpu_model(config, *cpu_model(config, DType::bf16), DType::bf16);
    Engine engine(*gpu(), *model, nullptr, {.kv_cache_tokens = 40000, .max_batch_tokens = 2048});
    const int64_t length = sized(32000, 2100), max_tokens = sized(100, 4);
    const GenerationRequest asked{
        random_tokens(static_cast<size_t>(length), 211, 1),
        3,
        0,
        {.temperature = 0.9, .max_tokens = max_tokens, .ignore_eos = true, .stop = {}, .stop_ids = {}}};
    const std::vector<CompletionOutput> replies = engine.generate({asked}).front();
    for (const CompletionOutput& reply : replies) {
      ASSERT_EQ(std::ssize(reply.ids), max_tokens) << reply.finish_reason;
      std::vector<int32_t> text = asked.prompt;
      text.insert(text.end(), reply.ids.begin(), reply.ids.end());
      const TokenLogprobs scores =
          compute_logprobs(*gpu(), *model, std::vector<std::vector<int32_t>>{text}, {.temperature = 0.9}).front();
      for (size_t t = 0; t < reply.ids.size(); ++t)
        ASSERT_EQ(reply.logp[t], scores.logp[asked.prompt.size() + t]) << family << " " << t;
    }
  }
}

// The sampler's log-probs of a completion have the learner's bits, for any batch and any chunking.
TEST(GenerationBackendOnGpu, RecordsTheLearnersLogProbsBitForBit) {
  HONE_GPU_OR_SKIP();
  for (const auto& [name, config] : {std::pair{"qwen2", gpu_config("qwen2", 64)},
                                     {"llama", gpu_config("llama", 128)},
                                     {"gpt2", gpu_config("gpt2", 16)},
                                     {"mistral", gpu_config("mistral", 64)},
                                     {"qwen3", gpu_config("qwen3", 128)},
                                     {"composed", composed_config()}})
    for (const DType dtype : {DType::bf16, DType::f32}) {
      if (!chosen()) continue;
      SCOPED_TRACE(concat(name, ", ", name_of(dtype)));
      const auto model = gpu_model(config, *cpu_model(config, dtype), dtype);
      std::vector<std::vector<CompletionOutput>> first;
      for (const auto& [batch_tokens, sequences] : {std::pair{2048, 256}, {7, 256}, {64, 3}, {2048, 1}}) {
        if (one_case_of() > 1 && sequences < 256) continue;
        Engine engine(*gpu(), *model, nullptr,
                      {.kv_cache_tokens = 8192, .max_batch_tokens = batch_tokens, .max_sequences = sequences});
        const auto replies = engine.generate(requests());
        if (first.empty()) first = replies;
        for (size_t i = 0; i < replies.size(); ++i)
          for (size_t n = 0; n < replies[i].size(); ++n) {
            ASSERT_FALSE(replies[i][n].failed) << replies[i][n].finish_reason;
            ASSERT_EQ(replies[i][n].ids, first[i][n].ids) << batch_tokens << " tokens, " << sequences << " sequences";
            ASSERT_EQ(replies[i][n].logp, first[i][n].logp) << batch_tokens << " tokens, " << sequences << " sequences";
          }
      }
      std::vector<std::vector<int32_t>> texts;
      std::vector<size_t> prompts;
      const auto asked = requests();
      for (size_t i = 0; i < first.size(); ++i)
        for (const CompletionOutput& reply : first[i]) {
          texts.push_back(asked[i].prompt);
          prompts.push_back(texts.back().size());
          texts.back().insert(texts.back().end(), reply.ids.begin(), reply.ids.end());
        }
      for (const int64_t batch_tokens : sized(std::vector{1, 300, 100000}, {300})) {
        const auto scores = compute_logprobs(*gpu(), *model, texts, {.temperature = 0.9, .batch_tokens = batch_tokens});
        for (size_t i = 0; i < texts.size(); ++i) {
          const std::vector<float> learner(scores[i].logp.begin() + static_cast<std::ptrdiff_t>(prompts[i]),
                                           scores[i].logp.end());
          ASSERT_EQ(learner, first[i / 3][i % 3].logp) << "reply " << i << ", " << batch_tokens << " tokens a pass";
        }
      }
    }
}

}  // namespace
}  // namespace hone::test
