// Engine::rest(): what it frees, when it refuses, and that completions are those of an engine that never rests.
#include "rollout/backend.h"
#include "tests/rollout/byte_model.h"
#include "tests/rollout/tiny_adapter.h"
#include "tests/rollout/tiny_draft.h"
#include "tests/rollout/tiny_engine.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

class EngineRest : public TinyEngineTest {
 protected:
  EngineRest() {
    Json config = model->config();
    config.set("num_nextn_predict_layers", 2);
    model = make_model(config, "test");
    model->allocate(context, DType::f32, false);
    model->initialize(context, 5);
    save_draft(context, *model, 0.02, temporary.path() / "draft");
  }
  struct Case {
    const char* name;
    EngineConfig config;
  };
  std::vector<Case> cases() const {
    const std::string draft = (temporary.path() / "draft").string();
    std::vector<Case> out{{"plain", {}}, {"int8", {}}, {"fp8 keys", {}}, {"ngram", {}}, {"draft", {}}, {"mtp", {}}};
    out[1].config.quantization = "int8";
    out[2].config.kv_cache_dtype = "fp8";
    out[3].config.speculative = {.method = "ngram", .prompt_lookup_min = 1, .prompt_lookup_max = 3};
    out[4].config.speculative = {.method = "draft_model", .num_speculative_tokens = 3, .model = draft};
    out[5].config.speculative = {.method = "mtp", .num_speculative_tokens = 3};
    for (Case& one : out) {
      one.config.kv_block_size = 4;
      one.config.kv_cache_tokens = 512;
      one.config.max_batch_tokens = 48;
    }
    return out;
  }
  // Forks, chunked prefill, and prompts that begin alike.
  static std::vector<GenerationRequest> requests(uint64_t first) {
    std::vector<GenerationRequest> out;
    for (uint64_t i = 0; i < 5; ++i)
      out.push_back({.prompt = prompt(7, 18 + 9 * static_cast<int64_t>(i)),
                     .n = 1 + static_cast<int64_t>(i % 3),
                     .id = first + i,
                     .sampling = {.max_tokens = 20, .ignore_eos = true, .stop = {}, .stop_ids = {}},
                     .top_logprobs = static_cast<int64_t>(i % 2)});
    return out;
  }
  // The weights of a learner that gives them back and takes others, elsewhere.
  void move_weights(uint64_t seed) {
    model->drop_values(context);
    const Buffer in_the_way(*device, 1 << 20);
    model->restore_values(context);
    model->initialize(context, seed);
  }
  TemporaryFolder temporary;
};

TEST_F(EngineRest, FreesItsMemoryAndTakesItAgain) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.name);
    const size_t before = device->used_bytes() - context.scratch().capacity_bytes();
    const auto held = [&] { return device->used_bytes() - context.scratch().capacity_bytes() - before; };
    Engine engine(context, *model, nullptr, one.config);
    engine.generate(requests(0));
    EXPECT_FALSE(engine.resting());
    const size_t awake = held();
    EXPECT_GE(awake, static_cast<size_t>(512 * engine.stats().kv_bytes_per_token));
    for (int i = 0; i < 2; ++i) {
      engine.rest();
      engine.rest();
      EXPECT_TRUE(engine.resting());
      // The weights of a draft model stay, and tables of a model with quantized matrices.
      const size_t tables = 1 << 16, draft = model->flat_values().bytes() + tables;
      EXPECT_LE(held(), std::string(one.name) == "draft" ? draft : std::string(one.name) == "int8" ? tables : 0);
      EXPECT_FALSE(engine.step());  // nothing to do: it goes on resting
      EXPECT_TRUE(engine.resting());
      engine.generate(requests(0));
      EXPECT_FALSE(engine.resting());
      EXPECT_EQ(held(), awake);
    }
  }
}

// Under other weights too, which may be somewhere else.
TEST_F(EngineRest, CompletionsAreThoseOfAnEngineThatNeverRests) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.name);
    model->initialize(context, 5);
    Engine resting(context, *model, nullptr, one.config);
    for (int64_t version = 0; version < 3; ++version) {
      const std::vector<GenerationRequest> wanted = requests(static_cast<uint64_t>(version));
      const auto expected = Engine(context, *model, nullptr, one.config).generate(wanted);
      const auto first = resting.generate(wanted);
      expect_same(first, expected);
      resting.rest();
      expect_same(resting.generate(wanted), expected);
      EXPECT_EQ(resting.version(), version);
      EXPECT_EQ(first[0][0].versions, std::vector<int64_t>(20, version));
      resting.rest();
      move_weights(static_cast<uint64_t>(6 + version));
      resting.set_policy_version(version + 1, true);
      EXPECT_TRUE(resting.resting());
    }
  }
}

TEST_F(EngineRest, CachedPrefixesAreDropped) {
  Engine engine(context, *model, nullptr, {.kv_block_size = 4, .kv_cache_tokens = 512});
  const std::vector<GenerationRequest> one{requests(0).front()};
  engine.generate(one);
  EXPECT_EQ(engine.stats().cached_tokens, 0);
  engine.generate(one);
  const int64_t cached = engine.stats().cached_tokens;
  EXPECT_GT(cached, 0);
  engine.rest();
  engine.generate(one);
  EXPECT_EQ(engine.stats().cached_tokens, cached);
}

// The scheduler still has the sequences of a cancelled request after the step in which it was cancelled.
TEST_F(EngineRest, IsRefusedWhileRequestsAreInFlight) {
  Engine engine(context, *model, nullptr, {.kv_block_size = 4, .kv_cache_tokens = 512});
  const auto expected = engine.generate(requests(0));
  std::vector<CompletionOutput> got;
  const auto keep = [&](uint64_t, std::vector<CompletionOutput> completions) { got = std::move(completions); };
  engine.submit(requests(0)[1], keep);
  EXPECT_NE(error_of([&] { engine.rest(); }).find("1 requests are in flight"), std::string::npos);
  engine.step();
  EXPECT_NE(error_of([&] { engine.rest(); }).find("step() until they are done, or cancel them"), std::string::npos);
  EXPECT_FALSE(engine.resting());
  while (engine.step()) {}
  expect_same({got}, {expected[1]});

  got.clear();
  const uint64_t ticket =
      engine.submit(requests(0)[2], keep, [&](uint64_t, int64_t, const CompletionOutput&) { engine.end_step(); });
  engine.step();
  engine.step();
  engine.cancel(ticket);
  engine.rest();
  EXPECT_TRUE(engine.resting());
  EXPECT_TRUE(got.empty());
  expect_same(engine.generate(requests(0)), expected);
}

TEST_F(EngineRest, IsRefusedWithAdaptersAndWithoutOtherWeights) {
  const std::filesystem::path base = temporary.path() / "base", adapter = temporary.path() / "adapter";
  save_model(context, *model, base, DType::f32);
  save_tiny_adapter(context, *model, base, adapter, 3, 2, {"q_proj"});
  Engine engine(context, *model, nullptr, {.kv_cache_tokens = 512, .quantization = "int8"});
  engine.rest();
  const int64_t id = engine.load_adapter(adapter);  // wakes it
  EXPECT_FALSE(engine.resting());
  GenerationRequest request = requests(0).front();
  request.adapter = id;
  EXPECT_FALSE(engine.generate({request})[0][0].failed);
  EXPECT_NE(error_of([&] { engine.rest(); }).find("unload them first"), std::string::npos);
  EXPECT_TRUE(engine.unload_adapter(id));
  engine.rest();

  Engine owner(context, *model, nullptr, {.kv_cache_tokens = 512, .quantization = "int8", .owns_model = true});
  const auto before = owner.generate(requests(0));
  EXPECT_NE(error_of([&] { owner.rest(); }).find("the only ones (owns_model)"), std::string::npos);
  expect_same(owner.generate(requests(0)), before);
}

TEST_F(EngineRest, ABackendRests) {
  TinyModel tiny;
  const size_t before = tiny.device->used_bytes();
  LocalBackend backend(tiny.context, *tiny.model, tiny.tokenizer, {.kv_cache_tokens = 1 << 14});
  const size_t awake = tiny.device->used_bytes();
  EXPECT_GT(awake, before + (1 << 14));
  backend.rest();
  EXPECT_EQ(tiny.device->used_bytes(), before);
  int64_t finished = 0;
  backend.submit(
      {.prompt = {65}, .sampling = {.max_tokens = 3, .stop = {}, .stop_ids = {}}},
      [&](uint64_t, const std::vector<CompletionOutput>& completions) { finished = std::ssize(completions); });
  while (backend.step()) {}
  EXPECT_EQ(finished, 1);
  EXPECT_GE(tiny.device->used_bytes(), awake);
}

}  // namespace
}  // namespace hone::test
