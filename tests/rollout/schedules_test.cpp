// The same requests under random schedules: block and cache sizes down to the smallest that fits one request, any token
// budgets, arrivals between steps, cancelled requests, prompts with equal beginnings, with and without prefix caching
// and drafts. Every completion arrives and has the bits that it has alone.
#include <optional>

#include "core/base/parallel_for.h"
#include "tests/rollout/tiny_draft.h"
#include "tests/rollout/tiny_engine.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

class SchedulesTest : public TinyEngineTest {
 protected:
  static constexpr int64_t longest = 48;  // maximum tokens of a prompt and its completion

  SchedulesTest() {  // the model with modules that propose tokens
    Json config = model->config();
    config.set("num_nextn_predict_layers", 2);
    model = make_model(config, "test");
    model->allocate(context, DType::f32, false);
    model->initialize(context, 5);
  }
  // Conversations: prompts of a few families with shared beginnings and different options.
  static std::vector<GenerationRequest> requests() {
    std::vector<GenerationRequest> out;
    for (uint64_t i = 0; i < 16; ++i) {
      GenerationRequest& request = out.emplace_back();
      request.prompt = prompt(i % 3, 30);
      request.prompt.resize(4 + i * 3 % 27);
      if (i % 4 == 0) request.prompt.back() = static_cast<int32_t>(i);
      request.n = 1 + static_cast<int64_t>(i % 5 == 0 ? 3 : i % 2);
      request.id = i;
      SamplingParams& sampling = request.sampling;
      sampling.temperature = i % 7 == 3 ? 0.0 : 1.1;
      sampling.max_tokens = 1 + static_cast<int64_t>(i) % 18;
      sampling.seed = 3;
      sampling.stop_ids = {7, 8, 9};
      if (i % 6 == 1) sampling.repetition_penalty = 1.3, sampling.frequency_penalty = 0.2;
      if (i % 6 == 2) request.top_logprobs = 3;
      if (i % 8 == 5) sampling.min_tokens = sampling.max_tokens / 2;
      request.prompt_logprobs = i % 6 == 4;
    }
    return out;
  }
  std::vector<std::vector<CompletionOutput>> alone(EngineConfig config = {}) {
    config.prefix_caching = false;
    std::vector<std::vector<CompletionOutput>> out;
    for (const GenerationRequest& request : requests())
      out.push_back(Engine(context, *model, nullptr, config).generate({request})[0]);
    return out;
  }
};

// The engine's arithmetic: the model's own, or quantized.
struct Arithmetic {
  std::string name, quantization = "none", kv_cache_dtype = "auto";
  uint64_t schedules = 15;
  friend void PrintTo(const Arithmetic& value, std::ostream* out) { *out << value.name; }
};

class ArithmeticTest : public SchedulesTest, public ::testing::WithParamInterface<Arithmetic> {};

TEST_P(ArithmeticTest, EveryCompletionHasTheBitsItHasAlone) {
  const auto reference = alone({.quantization = GetParam().quantization, .kv_cache_dtype = GetParam().kv_cache_dtype});
  const std::vector<GenerationRequest> submitted = requests();
  int64_t preemptions = 0, cached = 0, accepted = 0, refused = 0;
  const TemporaryFolder drafts;
  save_draft(context, *model, 0.02, drafts.path() / "near");
  save_stranger(context, 61, 30, drafts.path() / "strange");
  for (uint64_t seed = 0; seed < GetParam().schedules; ++seed) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, concat("schedule ", seed));
    Rng rng(seed, 1);
    const auto below = [&](int64_t bound) { return static_cast<int64_t>(rng.below(static_cast<uint64_t>(bound))); };
    EngineConfig config{.kv_block_size = 1 + below(9),
                        .max_batch_tokens = 1 + below(seed % 2 == 0 ? 12 : 200),
                        .max_sequences = 1 + below(12)};
    config.kv_cache_tokens = (longest + config.kv_block_size - 1) / config.kv_block_size * config.kv_block_size +
                             below(seed % 3 == 0 ? 300 : 30);
    config.prefix_caching = seed % 5 != 0;
    if (seed % 4 == 1) config.speculative = {.method = "ngram", .prompt_lookup_min = 1};
    if (seed % 4 == 2) config.speculative = {.method = "draft_model", .model = (drafts.path() / "near").string()};
    if (seed % 8 == 3) config.speculative = {.method = "draft_model", .model = (drafts.path() / "strange").string()};
    if (seed % 8 == 7) config.speculative = {.method = "mtp"};
    config.speculative.num_speculative_tokens = 1 + below(6);
    config.quantization = GetParam().quantization, config.kv_cache_dtype = GetParam().kv_cache_dtype;
    Engine engine(context, *model, nullptr, config);
    std::vector<std::optional<std::vector<CompletionOutput>>> got(submitted.size());
    std::vector<size_t> order(submitted.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (size_t i = order.size(); i-- > 1;)
      std::swap(order[i], order[static_cast<size_t>(below(static_cast<int64_t>(i) + 1))]);
    std::vector<uint64_t> leaving;
    size_t sent = 0;
    for (bool more = true; more || sent < order.size();) {
      for (int64_t arrivals = below(4); arrivals > 0 && sent < order.size(); --arrivals) {
        const size_t i = order[sent++];
        engine.submit(submitted[i], [&got, i](uint64_t, std::vector<CompletionOutput> completions) {
          EXPECT_FALSE(got[i]);
          got[i] = std::move(completions);
        });
        if (below(3) == 0) {  // a request that is cancelled later
          GenerationRequest neighbour = submitted[static_cast<size_t>(below(std::ssize(submitted)))];
          neighbour.id += 100;
          leaving.push_back(engine.submit(neighbour, [](uint64_t, const std::vector<CompletionOutput>&) {}));
        }
      }
      if (!leaving.empty() && below(2) == 0) engine.cancel(leaving.back()), leaving.pop_back();
      if (below(10) == 0) engine.set_policy_version(engine.version() + 1);
      more = engine.step();
    }
    std::vector<std::vector<CompletionOutput>> completions;
    for (auto& of : got) {
      ASSERT_TRUE(of);
      completions.push_back(std::move(*of));
    }
    expect_same(reference, completions);
    preemptions += engine.stats().preemptions, cached += engine.stats().cached_tokens;
    accepted += engine.stats().accepted_tokens, refused += engine.stats().draft_tokens - engine.stats().accepted_tokens;
  }
  const auto schedules = static_cast<int64_t>(GetParam().schedules);
  EXPECT_GT(60 * preemptions, 100 * schedules);
  EXPECT_GT(60 * cached, 1000 * schedules);
  EXPECT_GT(60 * accepted, 200 * schedules);
  EXPECT_GT(60 * refused, 1000 * schedules);
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, ArithmeticTest,
    ::testing::Values(Arithmetic{.name = "exact", .schedules = 60}, Arithmetic{.name = "int8", .quantization = "int8"},
                      Arithmetic{.name = "fp8", .quantization = "fp8"},
                      Arithmetic{.name = "fp8_cache", .kv_cache_dtype = "fp8"},
                      Arithmetic{.name = "fp8_whole", .quantization = "fp8", .kv_cache_dtype = "fp8"}),
    [](const auto& tested) { return tested.param.name; });

// A quantized engine reports that it is not exact, and samples from its own logits.
TEST_F(SchedulesTest, QuantizedCompletionsDiffer) {
  const auto exact = alone();
  for (const EngineConfig& config :
       {EngineConfig{.quantization = "int8"}, {.quantization = "fp8"}, {.kv_cache_dtype = "fp8"}}) {
    EXPECT_FALSE(config.exact());
    EXPECT_TRUE(config.as_exact().exact());
    EXPECT_NE(alone(config)[0][0].raw_logp, exact[0][0].raw_logp);
    expect_same(alone(config.as_exact()), exact);
  }
}

TEST_F(SchedulesTest, QuantizedWeightsFollowTheModels) {
  Engine engine(context, *model, nullptr, {.quantization = "int8"});
  const GenerationRequest request{prompt(1, 42), 1, 0, {.max_tokens = 9, .stop = {}, .stop_ids = {}}, 0, false};
  const auto before = engine.generate({request});
  model->initialize(context, 6);
  engine.set_policy_version(engine.version() + 1);
  const auto after = engine.generate({request});
  EXPECT_NE(after[0][0].logp, before[0][0].logp);
  expect_same(after, Engine(context, *model, nullptr, {.quantization = "int8"}).generate({request}));
}

TEST_F(SchedulesTest, ASecondRequestFindsThePromptOfTheFirst) {
  Engine engine(context, *model, nullptr, {.kv_block_size = 4});
  const GenerationRequest request{prompt(1, 42), 1, 0, {.max_tokens = 9, .stop = {}, .stop_ids = {}}};
  const auto first = engine.generate({request});
  EXPECT_EQ(engine.stats().cached_tokens, 0);
  expect_same(first, engine.generate({request}));
  EXPECT_EQ(engine.stats().cached_tokens, 40);
  EXPECT_EQ(engine.stats().prompt_tokens, 42 + 2);
  GenerationRequest next = request;  // the next turn of the conversation
  next.prompt.insert(next.prompt.end(), first[0][0].ids.begin(), first[0][0].ids.end());
  const auto second = engine.generate({next});
  EXPECT_EQ(engine.stats().cached_tokens, 40 + 48);  // the last sampled token was not computed
  expect_same(second, Engine(context, *model, nullptr, {.prefix_caching = false}).generate({next}));
}

TEST_F(SchedulesTest, NewWeightsUseNothingOfTheOldOnes) {
  Engine engine(context, *model, nullptr, {.kv_block_size = 4});
  const GenerationRequest request{prompt(1, 42), 2, 0, {.max_tokens = 9, .stop = {}, .stop_ids = {}}, 0, false};
  const auto before = engine.generate({request});
  model->initialize(context, 6);
  engine.set_policy_version(engine.version() + 1);
  const auto after = engine.generate({request});
  EXPECT_EQ(engine.stats().cached_tokens, 0);
  EXPECT_NE(after[0][0].logp, before[0][0].logp);
  expect_same(after, Engine(context, *model, nullptr, {}).generate({request}));
}

TEST_F(SchedulesTest, BlocksOfSequencesBegunWithOldWeightsAreNotFound) {
  Engine engine(context, *model, nullptr, {.kv_block_size = 4, .max_batch_tokens = 3});
  const GenerationRequest request{prompt(1, 42), 1, 0, {.max_tokens = 9, .stop = {}, .stop_ids = {}}};
  engine.submit(request, [](uint64_t, const std::vector<CompletionOutput>&) {});
  engine.step();
  model->initialize(context, 6);
  engine.set_policy_version(engine.version() + 1);
  while (engine.step()) {}  // a completion under both weights, whose blocks fill up under the new ones
  expect_same(engine.generate({request}), Engine(context, *model, nullptr, {}).generate({request}));
}

}  // namespace
}  // namespace hone::test
