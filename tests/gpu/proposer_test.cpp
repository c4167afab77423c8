// Completions with draft tokens equal those without, in CUDA graphs and in mixed passes.
#include "rollout/proposer.h"

#include "tests/gpu/gpu_model.h"
#include "tests/rollout/tiny_draft.h"
#include "tests/rollout/tiny_engine.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

std::vector<GenerationRequest> requests(bool special) {
  std::vector<GenerationRequest> out;
  for (const auto& prompt : gpu_sequences({5, 40, 17, 90, 1, 33})) {
    if (std::ssize(out) == sized(6, 3)) break;
    GenerationRequest& request = out.emplace_back();
    request.prompt = prompt, request.n = sized(3, 1), request.id = out.size();
    request.sampling.temperature = out.size() == 2 ? 0 : 0.9;
    request.sampling.max_tokens = sized(40, 2) + std::ssize(out);
    if (special && out.size() % 2 == 0)
      request.sampling.repetition_penalty = 1.2, request.sampling.frequency_penalty = -0.3;
    if (special && out.size() % 3 == 0) request.top_logprobs = 3;
  }
  return out;
}

TEST(ProposerOnGpu, LeavesEveryReplyAsItIs) {
  HONE_GPU_OR_SKIP();
  const TemporaryFolder folder;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    Json config = gpu_config("qwen2", 64);
    config.set("num_nextn_predict_layers", 2);
    const auto weights = cpu_model(config, dtype), model = gpu_model(config, *weights, dtype);
    const auto draft = [&](const char* name, double noise) {
      save_draft(cpu(), *weights, noise, folder.path() / name);
      return SpeculativeConfig{.method = "draft_model", .model = (folder.path() / name).string()};
    };
    const std::vector<SpeculativeConfig> all{
        draft("same", 0), draft("near", 0.01), {.method = "ngram", .prompt_lookup_min = 1}, {.method = "mtp"}};
    for (const bool special : {false, true}) {
      std::vector<std::vector<CompletionOutput>> plain;
      for (const SpeculativeConfig& guesses : all)
        for (const auto& [batch_tokens, sequences] : {std::pair{2048, 256}, {40, 256}, {2048, 1}}) {
          if (!chosen()) continue;
          if (plain.empty())
            plain = Engine(*gpu(), *model, nullptr, {.kv_cache_tokens = 8192}).generate(requests(special));
          const ::testing::ScopedTrace trace(
              __FILE__, __LINE__, concat(guesses.method, " ", guesses.model, " ", batch_tokens, " ", sequences));
          Engine engine(*gpu(), *model, nullptr,
                        {.kv_cache_tokens = 8192,
                         .max_batch_tokens = batch_tokens,
                         .max_sequences = sequences,
                         .speculative = guesses});
          expect_same(plain, engine.generate(requests(special)));
          if (guesses.method != "ngram" || sized(true, false)) {  // short completions repeat nothing
            EXPECT_GT(engine.stats().draft_tokens, 0);
          }
          if (!special && guesses.model == all[0].model) {
            EXPECT_EQ(engine.stats().accepted_tokens, engine.stats().draft_tokens);
          }
        }
    }
  }
}

}  // namespace
}  // namespace hone::test
