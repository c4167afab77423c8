// Layers with a sliding window give KV blocks back while their sequences run. Completions have the same bits with and
// without that, however the cache is used: chunks, preemption, forks, cached prefixes, drafts, an fp8 cache.
#include "tests/model/tiny_model.h"
#include "tests/rollout/tiny_adapter.h"
#include "tests/rollout/tiny_draft.h"
#include "tests/rollout/tiny_engine.h"

namespace hone::test {
namespace {

constexpr int64_t vocabulary = 61, positions = 448;

struct WindowedModel {
  std::string name, family;
  JsonObject changes;
  friend void PrintTo(const WindowedModel& value, std::ostream* out) { *out << value.name; }
};

class KvWindowsTest : public TinyEngineTest, public ::testing::WithParamInterface<WindowedModel> {
 protected:
  KvWindowsTest() {
    Json config = with(tiny_config(GetParam().family),
                       {{"vocab_size", vocabulary}, {"max_position_embeddings", positions}, {"sliding_window", 20}});
    model = make_tiny(context, with(std::move(config), GetParam().changes), false);
  }

  // Long prompts of two families with shared beginnings, some with several completions.
  static std::vector<GenerationRequest> requests() {
    std::vector<GenerationRequest> out;
    for (uint64_t i = 0; i < 8; ++i) {
      GenerationRequest& request = out.emplace_back();
      request.prompt = prompt(i % 2, 300);
      request.prompt.resize(140 + i * 37 % 160);
      if (i % 3 == 0) request.prompt.back() = static_cast<int32_t>(i);
      request.n = 1 + static_cast<int64_t>(i % 3);
      request.id = i;
      request.sampling = {.max_tokens = 20 + 12 * static_cast<int64_t>(i), .seed = 3, .stop = {}, .stop_ids = {7}};
      if (i % 4 == 1) request.top_logprobs = 2;
      request.prompt_logprobs = i == 5;
    }
    return out;
  }
  struct Outcome {
    std::vector<std::vector<CompletionOutput>> completions;
    EngineStats stats;
    int64_t most_used = 0;  // of stats.kv_tokens_used after a step
  };
  Outcome generate(const EngineConfig& config) {
    Engine engine(context, *model, nullptr, config);
    const std::vector<GenerationRequest> submitted = requests();
    Outcome out{.completions = std::vector<std::vector<CompletionOutput>>(submitted.size()), .stats = {}};
    size_t sent = 0;
    for (bool more = true; more || sent < submitted.size();) {
      if (sent < submitted.size()) {
        const size_t i = sent++;
        engine.submit(submitted[i], [&out, i](uint64_t, std::vector<CompletionOutput> completions) {
          out.completions[i] = std::move(completions);
        });
      }
      more = engine.step();
      out.most_used = std::max(out.most_used, engine.stats().kv_tokens_used);
    }
    EXPECT_EQ(engine.stats().kv_tokens_used, 0);
    out.stats = engine.stats();
    return out;
  }
};

TEST_P(KvWindowsTest, CompletionsHaveTheBitsOfACacheThatKeepsEverything) {
  const TemporaryFolder drafts;
  save_draft(context, *model, 0.02, drafts.path() / "near");
  const SpeculativeConfig ngram{.method = "ngram", .prompt_lookup_min = 1},
      draft{.method = "draft_model", .model = (drafts.path() / "near").string()};
  for (const char* dtype : {"auto", "fp8"}) {
    if (dtype == std::string("fp8") && GetParam().family == "gemma2") continue;  // its soft-cap needs another cache
    const auto reference =
        generate({.prefix_caching = false, .kv_cache_dtype = dtype, .release_kv_blocks = false}).completions;
    int64_t preemptions = 0, cached = 0, accepted = 0, refused = 0;
    for (EngineConfig config : {EngineConfig{},
                                {.max_batch_tokens = 31},
                                {.kv_block_size = 7, .max_batch_tokens = 100},
                                {.kv_cache_tokens = 448, .max_batch_tokens = 64},
                                {.kv_block_size = 5, .kv_cache_tokens = 460, .prefix_caching = false},
                                {.kv_cache_tokens = 600, .max_batch_tokens = 50, .max_sequences = 3},
                                {.kv_cache_tokens = 900, .max_batch_tokens = 90, .speculative = ngram},
                                {.kv_block_size = 33, .prefix_caching = false, .speculative = ngram},
                                {.kv_cache_tokens = 900, .max_batch_tokens = 90, .speculative = draft}}) {
      config.kv_cache_dtype = dtype;
      const ::testing::ScopedTrace trace(__FILE__, __LINE__,
                                         concat(dtype, ", ", config.kv_block_size, " tokens a block, ",
                                                config.kv_cache_tokens, " tokens, ", config.speculative.method));
      const Outcome got = generate(config);
      expect_same(reference, got.completions);
      preemptions += got.stats.preemptions, cached += got.stats.cached_tokens;
      accepted += got.stats.accepted_tokens;
      refused += got.stats.draft_tokens - got.stats.accepted_tokens;
    }
    // If all layers have a window, a sequence that is admitted has room up to its end.
    EXPECT_GT(preemptions, GetParam().family == "mistral" ? -1 : 0);
    EXPECT_GT(cached, 1000);
    EXPECT_GT(accepted, 50);
    EXPECT_GT(refused, 50);
  }
}

// The blocks that are given back serve other sequences: fewer tokens are held, and fewer sequences are preempted.
TEST_P(KvWindowsTest, AFullCacheHoldsMoreSequences) {
  EngineConfig config{.kv_cache_tokens = 1200, .max_batch_tokens = 64, .prefix_caching = false};
  const Outcome released = generate(config);
  config.release_kv_blocks = false;
  const Outcome kept = generate(config);
  expect_same(kept.completions, released.completions);
  EXPECT_LT(released.stats.preemptions, kept.stats.preemptions);
  EXPECT_GT(released.stats.kv_window_tokens, 0);
  EXPECT_EQ(kept.stats.kv_window_tokens, 0);
  EXPECT_EQ(released.stats.kv_bytes_per_token, kept.stats.kv_bytes_per_token);
  config.kv_cache_tokens = 65536;
  const int64_t all = generate(config).most_used;
  config.release_kv_blocks = true;
  EXPECT_LT(10 * generate(config).most_used, 8 * all);
}

// All sequences are recomputed in the middle of their completions, when their windows have moved on.
TEST_P(KvWindowsTest, PreemptedSequencesAreRecomputed) {
  std::vector<std::vector<std::vector<CompletionOutput>>> outcomes;
  for (const bool release : {false, true}) {
    Engine engine(context, *model, nullptr, {.max_batch_tokens = 70, .release_kv_blocks = release});
    const std::vector<GenerationRequest> submitted = requests();
    auto& completions = outcomes.emplace_back(submitted.size());
    for (size_t i = 0; i < submitted.size(); ++i)
      engine.submit(submitted[i], [&completions, i](uint64_t, std::vector<CompletionOutput> done) {
        completions[i] = std::move(done);
      });
    for (int64_t step = 1; engine.step(); ++step)
      if (step % 9 == 0) engine.set_policy_version(step, step < 100);
    EXPECT_EQ(engine.stats().kv_tokens_used, 0);
  }
  expect_same(outcomes[0], outcomes[1]);
  expect_same(outcomes[0], generate({}).completions);
}

TEST_P(KvWindowsTest, AdaptersShareTheBlocksOfThePool) {
  const TemporaryFolder folder;
  save_model(context, *model, folder.path() / "base", DType::f32);
  save_tiny_adapter(context, *model, folder.path() / "base", folder.path() / "a", 1, 2, {"q_proj", "v_proj"});
  std::vector<std::vector<std::vector<CompletionOutput>>> outcomes;
  for (const bool release : {false, true}) {
    Engine engine(context, *model, nullptr,
                  {.kv_cache_tokens = release ? 900 : 65536, .max_batch_tokens = 64, .release_kv_blocks = release});
    const int64_t adapter = engine.load_adapter(folder.path() / "a");
    std::vector<GenerationRequest> all;
    for (const GenerationRequest& request : requests())
      for (const int64_t id : {adapter, int64_t{0}}) {
        all.push_back(request);
        all.back().adapter = id;
      }
    outcomes.push_back(engine.generate(all));
    outcomes.push_back(engine.generate(all));  // finds the prompts of each adapter
    EXPECT_GT(engine.stats().cached_tokens, 0);
  }
  EXPECT_NE(outcomes[0][0][0].logp, outcomes[0][1][0].logp);
  for (const auto& outcome : outcomes) expect_same(outcomes[0], outcome);
}

// The second of two equal requests finds the prompt of the first, whose windows have moved on.
TEST_P(KvWindowsTest, ARequestFindsThePromptOfAnEarlierOne) {
  Engine engine(context, *model, nullptr, {});
  const GenerationRequest request{prompt(1, 300), 2, 0, {.max_tokens = 90, .stop = {}, .stop_ids = {}}};
  const auto first = engine.generate({request});
  EXPECT_EQ(engine.stats().cached_tokens, 0);
  expect_same(first, engine.generate({request}));
  EXPECT_EQ(engine.stats().cached_tokens, 288);
  GenerationRequest next = request;  // the next turn of the conversation
  next.prompt.insert(next.prompt.end(), first[0][0].ids.begin(), first[0][0].ids.end());
  const auto second = engine.generate({next});
  EXPECT_EQ(engine.stats().cached_tokens, 288 + 384);
  expect_same(second, Engine(context, *model, nullptr, {.prefix_caching = false}).generate({next}));
}

INSTANTIATE_TEST_SUITE_P(
    Models, KvWindowsTest,
    ::testing::Values(
        WindowedModel{"gemma3", "gemma3_text", {{"num_hidden_layers", 6}, {"sliding_window_pattern", 6}}},
        WindowedModel{"gemma2", "gemma2", {}}, WindowedModel{"mistral", "mistral", {}},
        WindowedModel{"mistral_three", "mistral", {{"num_hidden_layers", 3}, {"sliding_window", 100}}},
        WindowedModel{
            "qwen2", "qwen2", {{"num_hidden_layers", 3}, {"use_sliding_window", true}, {"max_window_layers", 1}}}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace hone::test
