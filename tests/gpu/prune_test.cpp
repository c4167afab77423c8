// A pruned model on a GPU has the bits of the full one with zeros if what is kept keeps its place in the steps and
// chunks of the tensor cores (keeps_gpu_sums).
#include "model/prune/pruned_model.h"
#include "tests/gpu/gpu_model.h"

namespace hone::test {
namespace {

Json wide_config(const char* family) {
  return with(
      gpu_config(family, 64),
      {{"num_hidden_layers", 4}, {"num_attention_heads", 16}, {"num_key_value_heads", 4}, {"intermediate_size", 2048}});
}

std::vector<int64_t> ranges(std::initializer_list<std::pair<int64_t, int64_t>> parts) {
  std::vector<int64_t> out;
  for (const auto& [begin, end] : parts)
    for (int64_t i = begin; i < end; ++i) out.push_back(i);
  return out;
}

// Of 16 heads of 64 channels, 8 are a chunk of 512.
PrunePlan chunk_plan() {
  return {.layers = {0, 2, 3},
          .parts = {{ranges({{0, 8}}), ranges({{0, 2}}), ranges({{0, 1024}})},
                    {ranges({{8, 16}}), ranges({{2, 4}}), ranges({{0, 512}, {1024, 1536}})},
                    {ranges({{0, 8}}), ranges({{0, 2}}), ranges({{512, 1024}, {1536, 2048}})}}};
}

std::vector<float> logprobs_of(const Model& weights) {
  const std::unique_ptr<Model> model = gpu_model(weights.config(), weights, DType::bf16);
  std::vector<float> out;
  for (const auto& lengths : {std::vector<size_t>{5}, {200, 31, 2, 77}}) {
    std::vector<std::vector<int32_t>> sequences;
    for (const size_t length : lengths) sequences.push_back(random_tokens(length, 211, static_cast<uint32_t>(length)));
    for (const TokenLogprobs& row : compute_logprobs(*gpu(), *model, sequences, {.entropy = true})) {
      out.insert(out.end(), row.logp.begin(), row.logp.end());
      out.insert(out.end(), row.entropy.begin(), row.entropy.end());
    }
  }
  return out;
}

TEST(PruneOnGpu, ChunksKeepTheBits) {
  HONE_GPU_OR_SKIP();
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    const std::unique_ptr<Model> full = cpu_model(wide_config(family), DType::bf16);
    const PrunePlan plan = chunk_plan();
    ASSERT_TRUE(keeps_gpu_sums(full->shape(), plan));
    const std::unique_ptr<Model> pruned = make_pruned(cpu(), *full, plan);
    const std::vector<float> whole = logprobs_of(*full);
    zero_removed(*full, plan);
    const std::vector<float> zeroed = logprobs_of(*full);
    EXPECT_EQ(logprobs_of(*pruned), zeroed) << family;
    EXPECT_NE(whole, zeroed) << family;
  }
}

// Steps of 16 channels are enough if all of them are in one chunk.
TEST(PruneOnGpu, StepsOfOneChunkKeepTheBits) {
  HONE_GPU_OR_SKIP();
  const Json config = with(wide_config("llama"), {{"intermediate_size", 512}, {"num_attention_heads", 8}});
  const std::unique_ptr<Model> full = cpu_model(config, DType::bf16);
  const KeptParts parts{ranges({{0, 2}, {4, 6}}), ranges({{0, 1}, {2, 3}}), ranges({{16, 64}, {96, 112}, {128, 512}})};
  const PrunePlan plan{.layers = {0, 1, 2, 3}, .parts = {parts, parts, parts, parts}};
  ASSERT_TRUE(keeps_gpu_sums(full->shape(), plan));
  const std::unique_ptr<Model> pruned = make_pruned(cpu(), *full, plan);
  zero_removed(*full, plan);
  EXPECT_EQ(logprobs_of(*pruned), logprobs_of(*full));
}

}  // namespace
}  // namespace hone::test
