// Rollouts with quantized weights, in addition to the model's weights and instead of them.
#include "model/modules.h"
#include "rollout/engine.h"
#include "tests/gpu/gpu_model.h"
#include "tests/rollout/tiny_engine.h"

namespace hone::test {
namespace {

TEST(QuantizedEngineOnGpu, BytesInTheWeightsPlaceReplyTheSame) {
  HONE_GPU_OR_SKIP();
  for (const char* family : {"qwen2", "gpt2"})
    for (const char* format : {"int8", "fp8"}) {
      if (!chosen()) continue;
      const ::testing::ScopedTrace trace(__FILE__, __LINE__, concat(family, " ", format));
      const Json config = gpu_config(family, 64);
      const auto model = make_model(config, "test");
      model->allocate(*gpu(), DType::bf16, false);
      model->initialize(*gpu(), 7);
      std::vector<GenerationRequest> asked;
      for (const auto& prompt : gpu_sequences({5, 40, 17, 90}))
        asked.push_back(
            {prompt,
             2,
             asked.size(),
             {.temperature = 0.9, .max_tokens = sized(40, 5), .ignore_eos = true, .stop = {}, .stop_ids = {}}});
      EngineConfig engine{.kv_cache_tokens = 4096, .quantization = format};
      const auto expected = Engine(*gpu(), *model, nullptr, engine).generate(asked);
      size_t matrices = 0;
      for (const Linear* linear : model->linear_modules()) matrices += linear->weight.value.bytes();
      const size_t before = model->flat_values().bytes();
      engine.owns_model = true;
      expect_same(Engine(*gpu(), *model, nullptr, engine).generate(asked), expected);
      EXPECT_LE(model->flat_values().bytes(), before - matrices);
    }
}

}  // namespace
}  // namespace hone::test
