// Log-probs with shared prefixes on a GPU: the bits of packed sequences without a cache, in passes of any size.
#include "rollout/shared_prefix_logprobs.h"

#include "tests/gpu/gpu_model.h"

namespace hone::test {
namespace {

struct Text {
  std::vector<int32_t> ids;
  size_t first = 0;
};

// Questions behind common examples, with choices of one and of several tokens.
std::vector<Text> questions() {
  std::vector<Text> out;
  const std::vector<int32_t> examples = random_tokens(sized(170, 50), 211, 1);
  for (uint32_t question = 0; question < 6; ++question) {
    std::vector<int32_t> prompt = examples;
    for (const int32_t id : random_tokens(9 + 17 * question, 211, 10 + question)) prompt.push_back(id);
    for (size_t choice = 0; choice < 6; ++choice) {
      Text& text = out.emplace_back(Text{prompt, prompt.size()});
      const auto length = choice < 4 ? 1 : 5 * choice;
      for (const int32_t id : random_tokens(length, 211, static_cast<uint32_t>(20 + choice))) text.ids.push_back(id);
    }
  }
  return out;
}

TEST(SharedPrefixLogprobsOnGpu, HaveTheBitsOfPackedSequences) {
  HONE_GPU_OR_SKIP();
  const std::vector<Text> texts = questions();
  std::vector<std::vector<int32_t>> sequences;
  for (const Text& text : texts) sequences.push_back(text.ids);
  for (const std::string& family : families().names())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (!chosen()) continue;
      const ::testing::ScopedTrace trace(__FILE__, __LINE__, concat(family, " ", name_of(dtype)));
      const Json config = gpu_config(family, 64);
      const auto model = gpu_model(config, *cpu_model(config, dtype), dtype);
      const auto expected = compute_logprobs(*gpu(), *model, sequences, {});
      for (const int64_t batch_tokens : sized(std::vector<int64_t>{7, 256, 8192}, {256})) {
        size_t count = 0;
        SharedPrefixLogprobs logprobs(
            *gpu(), *model, {.batch_tokens = batch_tokens, .greedy = true}, [&](size_t i, ContinuationLogprobs found) {
              const std::vector<float>& all = expected[i].logp;
              EXPECT_TRUE(std::equal(found.logp.begin(), found.logp.end(),
                                     all.begin() + static_cast<std::ptrdiff_t>(texts[i].first), all.end()))
                  << "text " << i << ", " << batch_tokens << " tokens a pass";
              ++count;
            });
        for (const Text& text : texts) logprobs.add(text.ids, text.first);
        logprobs.flush();
        EXPECT_EQ(count, texts.size());
        EXPECT_LT(2 * logprobs.stats().computed_tokens, logprobs.stats().tokens);
      }
    }
}

}  // namespace
}  // namespace hone::test
