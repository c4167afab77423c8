// A thinking budget with CUDA graphs that are queued ahead: a forced token ends the queued passes in time.
#include "rollout/engine.h"
#include "tests/gpu/gpu_model.h"
#include "tests/model/characters.h"

namespace hone::test {
namespace {

TEST(ThinkingOnGpu, RepliesAreTheSameInAnyBatchAndTheLearnersBitForBit) {
  HONE_GPU_OR_SKIP();
  const TemporaryFolder folder;
  const Tokenizer tokenizer = character_tokenizer(folder.path());
  const Json config = with(gpu_config("llama", 64), {{"vocab_size", int64_t{tokenizer.vocab_size()}}});
  const auto model = gpu_model(config, *cpu_model(config, DType::bf16), DType::bf16);
  std::vector<GenerationRequest> asked;
  for (const auto& prompt : gpu_sequences({5, 40, 17, 90, 1, 33}, tokenizer.vocab_size())) {
    GenerationRequest& request = asked.emplace_back();
    request.prompt = prompt, request.n = 3, request.id = asked.size();
    request.sampling.temperature = 0.9;
    request.sampling.max_tokens = sized(60, 12);
    request.sampling.ignore_eos = true;
    request.sampling.thinking_end = "b9b0";
    if (asked.size() != 2) request.sampling.thinking_budget = sized(7, 1) * static_cast<int64_t>(asked.size());
  }
  std::vector<std::vector<CompletionOutput>> first;
  for (const auto& [batch_tokens, sequences] : {std::pair{2048, 256}, {7, 256}, {64, 3}, {2048, 1}}) {
    if (!chosen()) continue;
    Engine engine(*gpu(), *model, &tokenizer,
                  {.kv_cache_tokens = 8192, .max_batch_tokens = batch_tokens, .max_sequences = sequences});
    const auto replies = engine.generate(asked);
    if (first.empty()) first = replies;
    for (size_t i = 0; i < replies.size(); ++i)
      for (size_t n = 0; n < 3; ++n) {
        ASSERT_FALSE(replies[i][n].failed) << replies[i][n].finish_reason;
        ASSERT_EQ(replies[i][n].ids, first[i][n].ids) << batch_tokens << " tokens, " << sequences << " sequences";
        ASSERT_EQ(replies[i][n].logp, first[i][n].logp) << batch_tokens << " tokens, " << sequences << " sequences";
      }
  }
  for (size_t i = 0; i < asked.size(); ++i)
    for (const CompletionOutput& reply : first[i]) {
      std::vector<int32_t> text = asked[i].prompt;
      text.insert(text.end(), reply.ids.begin(), reply.ids.end());
      const auto budget = static_cast<size_t>(asked[i].sampling.thinking_budget);
      ASSERT_EQ(reply.forced.empty(), budget == 0) << i;
      const auto scores =
          compute_logprobs(*gpu(), *model, std::vector<std::vector<int32_t>>{text}, {.temperature = 0.9});
      for (size_t t = 0; t < reply.ids.size(); ++t) {
        const bool forced = budget > 0 && t >= budget && t < budget + 4;
        ASSERT_EQ(!reply.forced.empty() && reply.forced[t], forced) << i << " token " << t;
        ASSERT_EQ(reply.logp[t], forced ? 0 : scores[0].logp[asked[i].prompt.size() + t]) << i << " token " << t;
      }
    }
}

}  // namespace
}  // namespace hone::test
