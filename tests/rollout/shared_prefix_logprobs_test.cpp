// SharedPrefixLogprobs: the bits of one pass a text for every family, quantized models and adapters, whatever is
// packed, shared and split; what is computed, counted; bounded memory.
#include "rollout/shared_prefix_logprobs.h"

#include <gtest/gtest.h>

#include "core/base/parallel_for.h"
#include "kernels/quant/quant_format.h"
#include "model/quantized_model.h"
#include "model/token_logprobs.h"
#include "rollout/engine.h"
#include "tests/model/tiny_model.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

constexpr int64_t vocab_size = 19, max_positions = 40;

struct Text {
  std::vector<int32_t> ids;
  size_t first = 0;
};

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Questions behind common examples, with choices of one and of several tokens, one of them twice; choices that begin
// alike; one continuation behind several choices; single tokens; texts as long as the model allows.
std::vector<Text> mixed_texts() {
  std::vector<Text> out;
  const std::vector<int32_t> examples = random_tokens(17, vocab_size, 1);
  for (uint32_t question = 0; question < 4; ++question) {
    const auto prompt = joined(examples, random_tokens(3 + question, vocab_size, 10 + question));
    for (int32_t letter = 0; letter < 4; ++letter) out.push_back({joined(prompt, {letter}), prompt.size()});
    for (const size_t length : {4, 1, 7, 7})
      out.push_back({joined(prompt, random_tokens(length, vocab_size, 20)), prompt.size()});
    const std::vector<int32_t> ending = random_tokens(5, vocab_size, 30 + question);
    for (int32_t choice = 0; choice < 3; ++choice)
      out.push_back({joined(joined(prompt, {choice, 3}), ending), prompt.size() + 2});
    out.push_back({joined(prompt, ending), 1});
  }
  for (int32_t id = 0; id < 3; ++id) out.push_back({{5, id}, 1});
  const std::vector<int32_t> longest = random_tokens(max_positions + 1, vocab_size, 2);
  for (const size_t first : {size_t{40}, size_t{39}, size_t{12}, size_t{1}}) out.push_back({longest, first});
  return out;
}

struct Outcome {
  std::vector<std::vector<float>> logp;
  std::vector<bool> greedy;
  SharedPrefixLogprobs::Stats stats;
  size_t cache_bytes = 0;
};

Outcome compute(Context& context, Model& model, const std::vector<Text>& texts,
                const SharedPrefixLogprobs::Options& options) {
  Outcome out;
  SharedPrefixLogprobs logprobs(context, model, options, [&](size_t index, ContinuationLogprobs text) {
    EXPECT_EQ(index, out.logp.size());
    out.logp.push_back(std::move(text.logp));
    out.greedy.push_back(text.greedy);
  });
  for (const Text& text : texts) logprobs.add(text.ids, text.first);
  logprobs.flush();
  EXPECT_EQ(out.logp.size(), texts.size());
  out.stats = logprobs.stats();
  out.cache_bytes = logprobs.cache_bytes();
  return out;
}

// Each text in a pass of its own, without a cache.
std::vector<std::vector<float>> one_by_one(Context& context, Model& model, const std::vector<Text>& texts) {
  std::vector<std::vector<float>> out;
  for (const Text& text : texts) {
    const auto logp = compute_logprobs(context, model, std::vector<std::vector<int32_t>>{text.ids}, {})[0].logp;
    out.emplace_back(logp.begin() + static_cast<std::ptrdiff_t>(text.first), logp.end());
  }
  return out;
}

class SharedPrefixLogprobsTest : public testing::TestWithParam<std::string> {
 protected:
  void expect_equal_bits(Model& model) {
    const std::vector<Text> texts = mixed_texts();
    const auto expected = one_by_one(context_, model, texts);
    for (const int64_t batch_tokens : {1, 6, 33, 4096})
      for (const int64_t block_size : {1, 4, 16}) {
        const testing::ScopedTrace trace(__FILE__, __LINE__, concat("batch ", batch_tokens, " block ", block_size));
        EXPECT_EQ(compute(context_, model, texts, {.batch_tokens = batch_tokens, .block_size = block_size}).logp,
                  expected);
      }
  }
  std::unique_ptr<Model> llama() { return make_tiny(context_, tiny_config("llama"), false); }

  std::unique_ptr<Device> device_ = cpu_device();
  Context context_{*device_};
};

using SharedPrefixFamilyTest = SharedPrefixLogprobsTest;

TEST_P(SharedPrefixFamilyTest, HasTheBitsOfOnePassAText) {
  for (const bool tied : {false, true})
    expect_equal_bits(*make_tiny(context_, with(tiny_config(GetParam()), {{"tie_word_embeddings", tied}}), false));
}

TEST_P(SharedPrefixFamilyTest, HasTheBitsOfOnePassATextWithAdapters) {
  const auto model =
      make_tiny(context_, tiny_config(GetParam()), false, {.r = 3, .lora_alpha = 5, .target_modules = {"all-linear"}});
  expect_equal_bits(*model);
}

TEST_P(SharedPrefixFamilyTest, HasTheBitsOfOnePassATextWithQuantizedMatrices) {
  const auto source = make_tiny(context_, tiny_config(GetParam()), false);
  for (const std::string& format : quant_formats().names()) {
    QuantizedModel quantized(context_, *source, quant_formats().at(format));
    expect_equal_bits(quantized.model());
  }
}

INSTANTIATE_TEST_SUITE_P(Families, SharedPrefixFamilyTest, testing::ValuesIn(families().names()),
                         [](const auto& family) { return family.param; });

TEST_F(SharedPrefixLogprobsTest, ThreadsDoNotChangeTheBits) {
  const auto model = llama();
  const int threads = num_threads();
  std::vector<std::vector<std::vector<float>>> results;
  for (const int count : {1, 2, 3}) {
    set_num_threads(count);
    results.push_back(compute(context_, *model, mixed_texts(), {.batch_tokens = 64, .block_size = 4}).logp);
  }
  set_num_threads(threads);
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

TEST_F(SharedPrefixLogprobsTest, ChoicesOfOneTokenCostOnePassOfTheirPrompt) {
  const auto model = llama();
  const std::vector<int32_t> prompt = random_tokens(21, vocab_size, 1);
  std::vector<Text> texts;
  for (int32_t letter = 0; letter < 4; ++letter) texts.push_back({joined(prompt, {letter}), prompt.size()});
  const Outcome out = compute(context_, *model, texts, {.batch_tokens = 21});
  EXPECT_EQ(out.stats.computed_tokens, 21);
  EXPECT_EQ(out.stats.passes, 1);
  EXPECT_EQ(out.stats.tokens, 4 * 21);
  EXPECT_EQ(out.stats.predicted_tokens, 4);
}

// A choice computes its own tokens, and those of the prompt's last, partial block again.
TEST_F(SharedPrefixLogprobsTest, LongerChoicesComputeTheirOwnTokens) {
  const auto model = llama();
  const std::vector<int32_t> prompt = random_tokens(22, vocab_size, 1);
  const std::vector<Text> texts{{joined(prompt, {1, 2, 3, 4}), 22}, {joined(prompt, {2, 2, 3}), 22}};
  EXPECT_EQ(compute(context_, *model, texts, {.block_size = 4}).stats.computed_tokens, (22 + 3) + (2 + 2));
}

// Questions in different passes find the blocks of their common examples in the cache.
TEST_F(SharedPrefixLogprobsTest, CommonExamplesAreReadFromTheCache) {
  const auto model = llama();
  const std::vector<int32_t> examples = random_tokens(26, vocab_size, 1);
  std::vector<Text> texts;
  for (uint32_t question = 0; question < 5; ++question) {
    const auto prompt = joined(examples, {static_cast<int32_t>(question), 7, 8});
    for (int32_t letter = 0; letter < 3; ++letter) texts.push_back({joined(prompt, {letter}), prompt.size()});
  }
  for (const auto& [batch_tokens, passes] : {std::pair<int64_t, int64_t>{29, 2}, {4096, 1}}) {
    const Outcome out = compute(context_, *model, texts, {.batch_tokens = batch_tokens, .block_size = 4});
    EXPECT_EQ(out.stats.computed_tokens, 29 + 4 * (2 + 3));  // 26 = 6 blocks of 4 and 2 tokens
    EXPECT_EQ(out.stats.passes, passes);
  }
}

TEST_F(SharedPrefixLogprobsTest, APromptLongerThanAPassIsComputedOnceInParts) {
  const auto model = llama();
  const std::vector<Text> texts{{random_tokens(max_positions + 1, vocab_size, 3), 40}};
  const Outcome out = compute(context_, *model, texts, {.batch_tokens = 12, .block_size = 4});
  EXPECT_EQ(out.stats.computed_tokens, max_positions);
  EXPECT_EQ(out.stats.passes, 4);
}

// The cache and the scratch memory depend on the pass and the longest text, not on the number of texts.
TEST_F(SharedPrefixLogprobsTest, MemoryDoesNotGrowWithTheTexts) {
  const auto model = llama();
  std::vector<Text> texts;
  std::vector<size_t> bytes;
  for (uint32_t i = 0; i < 600; ++i) {
    texts.push_back({random_tokens(20 + i % 15, vocab_size, i), 15});
    if (texts.size() != 60 && texts.size() != 600) continue;
    Context context(*device_);
    const Outcome out = compute(context, *model, texts, {.batch_tokens = 64, .block_size = 4});
    bytes.push_back(out.cache_bytes + context.scratch().capacity_bytes());
    const int64_t slots = 2 * 64 + max_positions + 3 * 4;  // rounded up, and the pad block
    EXPECT_LE(out.cache_bytes, static_cast<size_t>(2 * 2 * slots * 2 * 6) * sizeof(float));  // 2 layers, 2 heads of 6
  }
  EXPECT_EQ(bytes[0], bytes[1]);
}

// The same text without end adds no tokens to a pass, but it adds rows of lm_head.
TEST_F(SharedPrefixLogprobsTest, EqualTextsFillPassesToo) {
  const auto model = llama();
  const std::vector<Text> texts(50, {random_tokens(9, vocab_size, 1), 5});
  const Outcome out = compute(context_, *model, texts, {.batch_tokens = 16, .block_size = 4});
  EXPECT_EQ(out.logp, one_by_one(context_, *model, texts));
  EXPECT_EQ(out.stats.passes, 13);  // four predictions a text, four texts a pass
}

TEST_F(SharedPrefixLogprobsTest, GreedyIsWhatTheEngineGenerates) {
  const auto model = llama();
  Engine engine(context_, *model, nullptr, {});
  std::vector<Text> texts;
  std::vector<bool> expected;
  for (uint32_t i = 0; i < 24; ++i) {
    GenerationRequest request;
    request.prompt = random_tokens(3 + i % 5, vocab_size, i);
    request.sampling.temperature = 0;
    request.sampling.max_tokens = 1 + i % 4;
    const size_t first = request.prompt.size();
    Text& text = texts.emplace_back(Text{request.prompt, first});
    const std::vector<int32_t> ids = engine.generate({std::move(request)})[0][0].ids;
    text.ids = joined(text.ids, ids);
    if (i % 3 == 0) text.ids.back() = (text.ids.back() + 1) % vocab_size;
    expected.push_back(i % 3 != 0);
  }
  for (const int64_t batch_tokens : {1, 16, 4096})
    EXPECT_EQ(compute(context_, *model, texts, {.batch_tokens = batch_tokens, .greedy = true}).greedy, expected);
  EXPECT_EQ(compute(context_, *model, texts, {}).greedy, std::vector<bool>(24, false));
}

TEST_F(SharedPrefixLogprobsTest, WhatCannotBeComputed) {
  const auto model = llama();
  const auto refusal = [&](std::vector<int32_t> ids, size_t first) {
    SharedPrefixLogprobs logprobs(context_, *model, {}, [](size_t, ContinuationLogprobs) {});
    logprobs.add({1, 2}, 1);
    return error_of([&] { logprobs.add(std::move(ids), first); });
  };
  const std::string empty = "; a continuation needs a token, and one before it";
  EXPECT_EQ(refusal({1, 2, 3}, 3), "log-probs: text 1 has 3 tokens and its continuation begins at token 3" + empty);
  EXPECT_EQ(refusal({1, 2}, 0), "log-probs: text 1 has 2 tokens and its continuation begins at token 0" + empty);
  EXPECT_EQ(refusal({}, 1), "log-probs: text 1 has 0 tokens and its continuation begins at token 1" + empty);
  EXPECT_EQ(refusal({1, 19}, 1), "text 1: token 1 has id 19, the model's ids are 0 to 18");
  EXPECT_EQ(refusal(std::vector<int32_t>(42), 1),
            "log-probs: text 1 has 42 tokens; the model has 40 positions, and one more token can be predicted");
  EXPECT_EQ(error_of([&] { SharedPrefixLogprobs(context_, *model, {.batch_tokens = 0}, {}); }),
            "log-probs: batch_tokens is 0 and block_size 16; both must be positive");
}

}  // namespace
}  // namespace hone::test
