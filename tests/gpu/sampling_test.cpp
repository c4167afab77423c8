// Requests with logit processors and top log-probs in one batch with plain ones.
#include "rollout/engine.h"
#include "tests/gpu/gpu_model.h"

namespace hone::test {
namespace {

TEST(SamplingOnGpu, RepliesAreTheSameInAnyBatchAndTheLearnersBitForBit) {
  HONE_GPU_OR_SKIP();
  const Json config = gpu_config("llama", 64);
  const auto model = gpu_model(config, *cpu_model(config, DType::bf16), DType::bf16);
  std::vector<GenerationRequest> asked;
  for (const auto& prompt : gpu_sequences({5, 40, 17, 90, 1, 33}, model->shape().vocab_size)) {
    GenerationRequest& request = asked.emplace_back();
    request.prompt = prompt, request.n = 3, request.id = asked.size();
    request.sampling.temperature = 1.1;
    request.sampling.max_tokens = sized(40, 6);
    for (int64_t id = 0; id < model->shape().vocab_size / 4; ++id) request.sampling.stop_ids.push_back(id);
    if (asked.size() % 2 == 0) request.sampling.repetition_penalty = 1.2, request.sampling.frequency_penalty = 0.3;
    if (asked.size() % 3 != 0) request.sampling.min_tokens = sized(20, 3);
    if (asked.size() % 3 == 0) request.top_logprobs = 5, request.prompt_logprobs = true;
  }
  std::vector<std::vector<CompletionOutput>> first;
  for (const auto& [batch_tokens, sequences] : {std::pair{2048, 256}, {7, 256}, {64, 3}, {2048, 1}}) {
    if (!chosen()) continue;
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, concat(batch_tokens, " tokens, ", sequences, " sequences"));
    Engine engine(*gpu(), *model, nullptr,
                  {.kv_cache_tokens = 8192, .max_batch_tokens = batch_tokens, .max_sequences = sequences});
    const auto replies = engine.generate(asked);
    if (first.empty()) first = replies;
    for (size_t i = 0; i < replies.size(); ++i)
      for (size_t n = 0; n < 3; ++n) {
        const CompletionOutput &reply = replies[i][n], &same = first[i][n];
        ASSERT_FALSE(reply.failed) << reply.finish_reason;
        ASSERT_EQ(reply.ids, same.ids);
        ASSERT_EQ(reply.logp, same.logp);
        ASSERT_EQ(reply.truncated_logp, same.truncated_logp);
        ASSERT_EQ(reply.prompt_logp, same.prompt_logp);
        ASSERT_EQ(reply.top_logprobs.size(), same.top_logprobs.size());
        for (size_t t = 0; t < reply.top_logprobs.size(); ++t)
          for (size_t j = 0; j < 5; ++j) {
            ASSERT_EQ(reply.top_logprobs[t][j].id, same.top_logprobs[t][j].id);
            ASSERT_EQ(reply.top_logprobs[t][j].logp, same.top_logprobs[t][j].logp);
          }
      }
  }
  for (size_t i = 0; i < asked.size(); ++i)
    for (const CompletionOutput& reply : first[i]) {
      std::vector<int32_t> text = asked[i].prompt;
      text.insert(text.end(), reply.ids.begin(), reply.ids.end());
      ASSERT_GT(std::ssize(reply.ids), asked[i].sampling.min_tokens);
      const auto scores =
          compute_logprobs(*gpu(), *model, std::vector<std::vector<int32_t>>{text}, {.temperature = 1.1});
      const auto raw = compute_logprobs(*gpu(), *model, std::vector<std::vector<int32_t>>{text}, {});
      for (size_t t = 0; t < reply.ids.size(); ++t)
        ASSERT_EQ(reply.logp[t], scores[0].logp[asked[i].prompt.size() + t]) << i << " token " << t;
      for (size_t t = 0; t < reply.prompt_logp.size(); ++t)
        ASSERT_EQ(reply.prompt_logp[t], raw[0].logp[t]) << i << " prompt token " << t;
    }
}

}  // namespace
}  // namespace hone::test
