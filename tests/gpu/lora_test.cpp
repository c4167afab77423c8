// Adapters on a GPU compared with the CPU, with ranks that the fast bodies support and with others.
#include "model/lora.h"

#include "kernels/gemm/gemm.h"
#include "model/io/adapter.h"
#include "rollout/engine.h"
#include "tests/gpu/gpu_model.h"
#include "tests/model/golden.h"
#include "train/trainer.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

// The same strength for each rank: the rounding error of bf16 grows with alpha / r.
LoraConfig all_linear(int64_t r, double dropout = 0) {
  return {
      .r = r, .lora_alpha = 1.5 * static_cast<double>(r), .lora_dropout = dropout, .target_modules = {"all-linear"}};
}

// Adapters that are not zero.
std::unique_ptr<Model> cpu_adapted(const Json& config, DType dtype, const LoraConfig& lora) {
  std::unique_ptr<Model> model = cpu_model(config, dtype, lora);
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 0.1f);
  for (const Param* param : model->adapter_params())
    for (float& value : param->value.as<float>())
      value = dtype == DType::bf16 ? to_float(to_bf16(normal(random))) : normal(random);
  return model;
}

std::vector<Sample> samples_of(std::initializer_list<size_t> lengths) {
  std::vector<Sample> out;
  for (const auto& tokens : gpu_sequences(lengths)) {
    Sample& sample = out.emplace_back();
    sample.tokens = tokens;
    sample.columns.assign(columns::mask, tokens.size(), 1);
    sample.columns[columns::mask][0] = 0;
  }
  return out;
}

// The gradient after a step.
std::vector<float> gradients(Context& context, Model& model) {
  Trainer trainer(context, model, {});
  const std::vector<Sample> samples = samples_of({70, 1, 133, 64});
  std::vector<const Sample*> batch;
  for (const Sample& sample : samples) batch.push_back(&sample);
  trainer.step(batch, *make_objective("sft"), 0);
  return on_host(context, model.flat_grads());
}

TEST(NarrowProductsOnGpu, AgreeWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const int64_t r : {1, 3, 8, 16, 24, 64})
    for (const int64_t rows : {1, 5, 64, 300, 2000})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        if (!chosen()) continue;
        SCOPED_TRACE(concat("r ", r, ", ", rows, " rows, ", name_of(dtype)));
        const Floats x = rounded(normals({rows, 192}, 1), dtype), a = rounded(normals({r, 192}, 2), dtype),
                     u = rounded(normals({rows, r}, 3), dtype), b = rounded(normals({320, r}, 4), dtype),
                     start = rounded(normals({rows, 320}, 5), dtype);
        Floats down = poisoned({rows, r}), up = start;
        gemm_forward(cpu(), {.y = down, .x = x, .w = a});
        gemm_forward(cpu(), {.y = up, .x = u, .w = b, .residual = up});
        OnGpu down_gpu = OnGpu::poisoned({rows, r}, dtype), up_gpu(start, dtype);
        gemm_forward(*gpu(), {.y = down_gpu, .x = OnGpu(x, dtype), .w = OnGpu(a, dtype)});
        gemm_forward(*gpu(), {.y = up_gpu, .x = OnGpu(u, dtype), .w = OnGpu(b, dtype), .residual = up_gpu});
        EXPECT_TRUE(agrees(down_gpu.read(), down, dtype));
        EXPECT_TRUE(agrees(up_gpu.read(), up, dtype));
      }
}

TEST(LoraOnGpu, GradientsAgreeWithTheCpu) {
  HONE_GPU_OR_SKIP();
  for (const std::string& family : families().names())
    for (const int64_t r : {3, 8, 16})
      for (const double dropout : {0.0, 0.3})
        for (const DType dtype : {DType::f32, DType::bf16}) {
          if (!chosen()) continue;
          SCOPED_TRACE(concat(family, ", r ", r, ", dropout ", dropout, ", ", name_of(dtype)));
          const Json config = gpu_config(family, 64);
          const auto there = cpu_adapted(config, dtype, all_linear(r, dropout));
          const auto here = gpu_model(config, *there, dtype, all_linear(r, dropout));
          const std::vector<float> expected = gradients(cpu(), *there);
          const double error = distance(gradients(*gpu(), *here), expected);
          if (dtype == DType::f32) {
            EXPECT_LE(error, 1e-4);
          } else {  // twice the error of cuBLASLt's GEMMs on the same numbers
            EXPECT_LE(error, 6e-2);
            gpu()->set_numerics(Numerics::fast);
            EXPECT_LE(error, 2 * distance(gradients(*gpu(), *here), expected));
            gpu()->set_numerics(Numerics::exact);
          }
        }
}

TEST(LoraOnGpu, LogitsAndGradientsAreThoseOfPeft) {
  HONE_GPU_OR_SKIP();
  const fs::path golden = source_folder() / "tests" / "golden";
  for (const char* name : {"lora_llama", "lora_qwen3", "lora_gpt2"}) {
    const TemporaryFolder folder;
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
      fs::copy_file(golden / name / file, folder.path() / file);
    const SafetensorsReader results(golden / name / "results.safetensors");
    save_model(*gpu(), *golden_model(*gpu(), parse_json(results.metadata().at("config"), name), DType::f32),
               folder.path() / "base", DType::f32);
    Golden compared(*gpu(), std::string(name) + "/results", DType::f32,
                    load_model(*gpu(), folder.path(), {.gradients = true}));
    const Golden::Errors errors = compared.errors();
    EXPECT_LE(errors.logits, 1e-4) << name;
    EXPECT_LE(errors.gradients, 1e-4) << name << ": " << errors.worst;
  }
}

// With adapters the sampler's log-probs have the learner's bits as well, for any chunking.
TEST(LoraOnGpu, TheSamplersLogProbsAreTheLearnersBitForBit) {
  HONE_GPU_OR_SKIP();
  for (const int64_t r : {3, 8, 16})
    for (const DType dtype : {DType::bf16, DType::f32}) {
      SCOPED_TRACE(concat("r ", r, ", ", name_of(dtype)));
      const Json config = gpu_config("qwen2", 64);
      const auto model = gpu_model(config, *cpu_adapted(config, dtype, all_linear(r)), dtype, all_linear(r));
      for (const int64_t batch_tokens : {2048, 7}) {
        if (!chosen()) continue;
        std::vector<GenerationRequest> requests;
        for (const auto& prompt : gpu_sequences({5, 40, 17, 90}))
          requests.push_back(
              {prompt,
               sized(3, 1),
               requests.size(),
               {.temperature = 0.9, .max_tokens = sized(40, 5), .ignore_eos = true, .stop = {}, .stop_ids = {}}});
        std::vector<std::vector<int32_t>> texts;
        std::vector<std::pair<size_t, CompletionOutput>> replies;
        Engine engine(*gpu(), *model, nullptr, {.kv_cache_tokens = 8192, .max_batch_tokens = batch_tokens});
        const auto asked = requests;
        const auto all = engine.generate(std::move(requests));
        for (size_t i = 0; i < all.size(); ++i)
          for (const CompletionOutput& reply : all[i]) {
            ASSERT_FALSE(reply.failed) << reply.finish_reason;
            texts.push_back(asked[i].prompt);
            texts.back().insert(texts.back().end(), reply.ids.begin(), reply.ids.end());
            replies.emplace_back(asked[i].prompt.size(), reply);
          }
        const std::vector<TokenLogprobs> scores = compute_logprobs(*gpu(), *model, texts, {.temperature = 0.9});
        for (size_t i = 0; i < texts.size(); ++i)
          for (size_t t = 0; t < replies[i].second.logp.size(); ++t)
            ASSERT_EQ(scores[i].logp[replies[i].first + t], replies[i].second.logp[t])
                << "reply " << i << ", token " << t;
      }
    }
}

TEST(LoraOnGpu, SwitchedOffTheModelIsItsBaseAndMergedItIsTheSame) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const Json config = gpu_config("llama", 64);
    const auto base = cpu_model(config, dtype);
    const auto model = gpu_model(config, *cpu_adapted(config, dtype, all_linear(8)), dtype, all_linear(8)),
               plain = gpu_model(config, *base, dtype);
    const auto sequences = gpu_sequences({70, 33});
    const auto logp = [&](Model& of) {
      std::vector<float> out;
      for (const TokenLogprobs& scores : compute_logprobs(*gpu(), of, sequences, {}))
        out.insert(out.end(), scores.logp.begin(), scores.logp.end());
      return out;
    };
    const std::vector<float> adapted = logp(*model);
    {
      const AdapterScope off(*model);
      EXPECT_EQ(logp(*model), logp(*plain));
    }
    EXPECT_EQ(logp(*model), adapted);
    merge_lora(*gpu(), *model);
    EXPECT_LE(distance(logp(*model), adapted), dtype == DType::f32 ? 1e-5 : 2e-2);
  }
}

}  // namespace
}  // namespace hone::test
