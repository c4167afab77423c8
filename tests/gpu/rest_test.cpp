// An engine that rests on a GPU: its memory is free, graphs are captured anew, and completions stay the same, also with
// weights that have moved meanwhile.
#include "rollout/engine.h"
#include "tests/gpu/gpu_model.h"
#include "tests/rollout/tiny_engine.h"

namespace hone::test {
namespace {

TEST(EngineRestOnGpu, CompletionsAreThoseOfAnEngineThatNeverRests) {
  HONE_GPU_OR_SKIP();
  const auto model = make_model(gpu_config("qwen2", 64), "test");
  model->allocate(*gpu(), DType::bf16, false);
  Device& device = gpu()->device();
  std::vector<GenerationRequest> asked;
  for (const auto& prompt : gpu_sequences({5, 40, 17, 90}))
    asked.push_back({prompt,
                     2,
                     asked.size(),
                     {.temperature = 0.9, .max_tokens = sized(40, 5), .ignore_eos = true, .stop = {}, .stop_ids = {}}});
  for (const char* quantization : {"none", "int8"}) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, quantization);
    const EngineConfig config{.kv_cache_tokens = 1 << 16, .quantization = quantization};
    model->initialize(*gpu(), 7);
    Engine resting(*gpu(), *model, nullptr, config);
    const size_t cache = static_cast<size_t>(config.kv_cache_tokens * resting.stats().kv_bytes_per_token);
    for (uint64_t seed = 8; seed < 11; ++seed) {
      expect_same(resting.generate(asked), Engine(*gpu(), *model, nullptr, config).generate(asked));
      const size_t awake = device.used_bytes(), free = device.free_bytes();
      resting.rest();
      EXPECT_LE(device.used_bytes(), awake - cache);
      EXPECT_GT(device.free_bytes(), free);
      model->drop_values(*gpu());
      const Buffer in_the_way(device, 1 << 22);
      model->restore_values(*gpu());
      model->initialize(*gpu(), seed);
      resting.set_policy_version(static_cast<int64_t>(seed));
    }
  }
}

}  // namespace
}  // namespace hone::test
