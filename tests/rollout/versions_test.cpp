// Weights that change while sequences run.

#include <gtest/gtest.h>

#include "model/token_logprobs.h"
#include "tests/rollout/tiny_engine.h"

namespace hone {
namespace {

class EngineVersions : public test::TinyEngineTest {
 protected:
  // Four completions of 12 tokens; the weights change after a few tokens of each.
  std::vector<CompletionOutput> drawn_across_a_change(bool recompute) {
    Engine engine(context, *model, nullptr, {.kv_block_size = 4, .max_batch_tokens = 24});
    std::vector<CompletionOutput> out;
    size_t written = 0;
    engine.set_policy_version(5);
    engine.submit(
        {prompt(1, 42), 4, 0, {.max_tokens = 12, .ignore_eos = true, .stop = {}, .stop_ids = {}}, 0, false},
        [&](uint64_t, std::vector<CompletionOutput> completions) { out = std::move(completions); },
        [&](uint64_t, int64_t, const CompletionOutput&) {
          if (++written == 20) engine.cancel(0);  // an unknown ticket: ends the current decode passes
        });
    while (written < 20) engine.step();
    model->initialize(context, 6);
    engine.set_policy_version(7, recompute);
    while (engine.step()) {}
    return out;
  }
};

TEST_F(EngineVersions, EveryTokenHasTheVersionThatSampledIt) {
  for (const bool recompute : {false, true}) {
    model->initialize(context, 5);
    const std::vector<CompletionOutput> completions = drawn_across_a_change(recompute);
    ASSERT_EQ(completions.size(), 4u);
    for (const CompletionOutput& completion : completions) {
      std::vector<int64_t> expected(5, 5);
      expected.resize(12, 7);
      EXPECT_EQ(completion.versions, expected);
    }
  }
}

TEST_F(EngineVersions, RecomputedSequencesContinueUnderTheNewWeights) {
  const std::vector<CompletionOutput> completions = drawn_across_a_change(true);
  for (const CompletionOutput& completion : completions) {
    std::vector<int32_t> ids = prompt(1, 42);
    ids.insert(ids.end(), completion.ids.begin(), completion.ids.end());
    const TokenLogprobs scores =
        compute_logprobs(context, *model, std::vector<std::vector<int32_t>>{ids}, {.temperature = 1}).front();
    for (size_t t = 0; t < 5; ++t) EXPECT_NE(completion.logp[t], scores.logp[42 + t]) << t;
    for (size_t t = 5; t < 12; ++t) EXPECT_EQ(completion.logp[t], scores.logp[42 + t]) << t;
  }
}

TEST_F(EngineVersions, KeptKvBlocksAreOfTheOldWeights) {
  const std::vector<CompletionOutput> kept = drawn_across_a_change(false);
  model->initialize(context, 5);
  EXPECT_NE(kept[0].logp, drawn_across_a_change(true)[0].logp);
}

}  // namespace
}  // namespace hone
