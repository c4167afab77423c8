// thinking_budget: what is forced, and that nothing else changes.
#include <gtest/gtest.h>

#include "core/base/parallel_for.h"
#include "model/token_logprobs.h"
#include "rollout/engine.h"
#include "tests/model/characters.h"
#include "tests/rollout/tiny_engine.h"

namespace hone::test {
namespace {

class ThinkingTest : public ::testing::Test {
 protected:
  static constexpr int64_t budget = 6;

  // Prompts of several lengths with one to three completions each. Requests whose number is in `with` have a budget.
  std::vector<GenerationRequest> requests(const std::function<bool(uint64_t)>& with) const {
    std::vector<GenerationRequest> out;
    for (uint64_t i = 0; i < 8; ++i) {
      GenerationRequest& request = out.emplace_back();
      request.prompt = tokenizer.encode(std::string("ab 12. c0 345 b9b").substr(0, 1 + 2 * i));
      request.n = 1 + static_cast<int64_t>(i % 3);
      request.id = i;
      request.sampling.temperature = i == 4 ? 0 : 0.8;
      request.sampling.max_tokens = 18;
      request.sampling.seed = 3;
      request.sampling.ignore_eos = true;
      request.sampling.thinking_end = "b9b";
      if (with(i)) request.sampling.thinking_budget = budget;
    }
    return out;
  }
  static bool all(uint64_t) { return true; }
  static bool none(uint64_t) { return false; }
  std::vector<std::vector<CompletionOutput>> run(std::vector<GenerationRequest> submitted,
                                                 const EngineConfig& config = {}) {
    return Engine(context, *model, &tokenizer, config).generate(std::move(submitted));
  }
  CompletionOutput one(const SamplingParams& sampling) {
    return run({{tokenizer.encode("ab 1"), 1, 5, sampling}})[0][0];
  }

  static std::vector<int32_t> slice(const CompletionOutput& completion, std::ptrdiff_t begin, std::ptrdiff_t count) {
    return {completion.ids.begin() + begin, completion.ids.begin() + begin + count};
  }

  TemporaryFolder folder;
  Tokenizer tokenizer = character_tokenizer(folder.path());
  std::unique_ptr<Device> device = cpu_device();
  Context context{*device};
  std::unique_ptr<Model> model = character_model(context, tokenizer);
};

TEST_F(ThinkingTest, TheEndIsForcedAfterTheBudgetAndSamplingContinues) {
  const auto with = run(requests(all)), without = run(requests(none));
  for (size_t i = 0; i < with.size(); ++i)
    for (size_t j = 0; j < with[i].size(); ++j) {
      const CompletionOutput &completion = with[i][j], &plain = without[i][j];
      EXPECT_TRUE(plain.forced.empty());
      ASSERT_EQ(completion.ids.size(), 18u);
      EXPECT_TRUE(std::equal(plain.ids.begin(), plain.ids.begin() + budget, completion.ids.begin()));
      EXPECT_EQ(slice(completion, budget, 3), tokenizer.encode("b9b"));
      for (size_t t = 0; t < completion.ids.size(); ++t) {
        const bool forced = t >= budget && t < budget + 3;
        EXPECT_EQ(completion.forced.at(t), forced) << t;
        EXPECT_EQ(completion.logp[t] == 0 && completion.truncated_logp[t] == 0 && completion.raw_logp[t] == 0, forced)
            << t;
      }
    }
}

TEST_F(ThinkingTest, SampledTokensHaveTheLearnersLogProbsBitForBit) {
  const std::vector<GenerationRequest> submitted = requests(all);
  const auto completions = run(submitted);
  for (size_t i = 0; i < submitted.size(); ++i)
    for (const CompletionOutput& completion : completions[i]) {
      std::vector<int32_t> ids = submitted[i].prompt;
      ids.insert(ids.end(), completion.ids.begin(), completion.ids.end());
      const double temperature = submitted[i].sampling.temperature > 0 ? submitted[i].sampling.temperature : 1;
      const TokenLogprobs scores =
          compute_logprobs(context, *model, std::vector<std::vector<int32_t>>{ids}, {.temperature = temperature})
              .front();
      for (size_t t = 0; t < completion.ids.size(); ++t)
        ASSERT_EQ(completion.logp[t], completion.forced[t] ? 0 : scores.logp[submitted[i].prompt.size() + t])
            << i << " token " << t;
    }
}

TEST_F(ThinkingTest, DoesNotDependOnBatchingChunkingPreemptionOrThreads) {
  const auto odd = [](uint64_t i) { return i % 2 == 1; };
  for (const auto& with : {std::function<bool(uint64_t)>(all), std::function<bool(uint64_t)>(odd)}) {
    const auto reference = run(requests(with));
    expect_same(reference, run(requests(with), {.max_batch_tokens = 1}));
    expect_same(reference, run(requests(with), {.max_batch_tokens = 5, .max_sequences = 2}));
    expect_same(reference, run(requests(with), {.kv_block_size = 3}));
    Engine small(context, *model, &tokenizer, {.kv_block_size = 2, .kv_cache_tokens = 40});
    expect_same(reference, small.generate(requests(with)));
    EXPECT_GT(small.stats().preemptions, 0);
    set_num_threads(1);
    expect_same(reference, run(requests(with)));
    set_num_threads(2);
  }
}

TEST_F(ThinkingTest, OtherRequestsWithoutABudgetAreNotAffected) {
  const auto mixed = run(requests([](uint64_t i) { return i % 2 == 1; })), with = run(requests(all)),
             without = run(requests(none));
  for (size_t i = 0; i < mixed.size(); ++i) expect_same({mixed[i]}, {(i % 2 == 1 ? with : without)[i]});
}

TEST_F(ThinkingTest, ASampledEndIsNotForced) {
  const SamplingParams plain{.max_tokens = 20, .seed = 9, .ignore_eos = true, .stop = {}, .stop_ids = {}};
  const CompletionOutput reference = one(plain);
  SamplingParams sampling = plain;
  sampling.thinking_budget = 6;
  const std::vector<int32_t> end = slice(reference, 4, 2);  // complete with the sixth token
  sampling.thinking_end = tokenizer.decode(end);
  const CompletionOutput completion = one(sampling);
  EXPECT_EQ(completion.ids, reference.ids);
  EXPECT_TRUE(completion.forced.empty());
  ASSERT_EQ(tokenizer.decode(slice(reference, 0, 5)).find(sampling.thinking_end), std::string::npos);
  sampling.thinking_budget = 5;  // a token too few
  EXPECT_EQ(slice(one(sampling), 5, 2), end);
}

TEST_F(ThinkingTest, ForcedTokensCountTowardsMaxTokensAndStopStrings) {
  SamplingParams sampling{.max_tokens = 6, .seed = 9, .ignore_eos = true, .stop = {}, .stop_ids = {}};
  sampling.thinking_budget = 4;
  sampling.thinking_end = "b9b.";
  const CompletionOutput cut = one(sampling);
  ASSERT_EQ(cut.ids.size(), 6u);
  EXPECT_EQ(slice(cut, 4, 2), tokenizer.encode("b9"));
  EXPECT_EQ(cut.finish_reason, "length");
  sampling.stop = {"b9b"};
  sampling.max_tokens = 20;
  const CompletionOutput stopped = one(sampling);
  ASSERT_EQ(stopped.ids.size(), 7u);
  EXPECT_EQ(slice(stopped, 4, 3), tokenizer.encode("b9b"));
  EXPECT_EQ(stopped.finish_reason, "stop");
  EXPECT_EQ(stopped.text.find("b9b"), std::string::npos);
}

TEST_F(ThinkingTest, ABudgetOfOneForcesAfterTheFirstTokenOfEveryCompletion) {
  SamplingParams sampling{.max_tokens = 8, .ignore_eos = true, .stop = {}, .stop_ids = {}};
  sampling.thinking_budget = 1;
  sampling.thinking_end = "9";
  const auto completions = run({{tokenizer.encode("ab 1"), 4, 0, sampling}});
  for (const CompletionOutput& completion : completions[0]) {
    ASSERT_EQ(completion.ids.size(), 8u);
    EXPECT_EQ(slice(completion, 1, 1), tokenizer.encode("9"));
  }
}

TEST_F(ThinkingTest, ABudgetThatCannotBeKeptFailsTheRequest) {
  SamplingParams sampling{.max_tokens = 8, .stop = {}, .stop_ids = {}};
  sampling.thinking_budget = 2;
  const std::vector<GenerationRequest> submitted{{{1, 2}, 1, 0, sampling}};
  EXPECT_NE(Engine(context, *model, nullptr, {}).generate(submitted)[0][0].finish_reason.find("tokenizer"),
            std::string::npos);
  sampling.thinking_end = "";
  EXPECT_TRUE(one(sampling).failed);
}

}  // namespace
}  // namespace hone::test
