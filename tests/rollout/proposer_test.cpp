// The contract of all registered speculative methods: completions are those without drafts.
#include "rollout/proposer.h"

#include <cmath>
#include <numeric>

#include "core/base/parallel_for.h"
#include "core/config/config.h"
#include "core/io/file.h"
#include "model/token_logprobs.h"
#include "tests/rollout/byte_model.h"
#include "tests/rollout/tiny_draft.h"
#include "tests/rollout/tiny_engine.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

class ProposerTest : public TinyEngineTest {
 protected:
  ProposerTest() {
    Json config = model->config();
    config.set("num_nextn_predict_layers", 2);
    model = make_model(config, "test");
    model->allocate(context, DType::f32, false);
    model->initialize(context, 5);
    save_draft(context, *model, 0, folder / "same");
    save_draft(context, *model, 0.02, folder / "near");
    save_stranger(context, 61, 40, folder / "strange");
  }
  SpeculativeConfig draft(const char* name, int64_t tokens = 4) const {
    return {.method = "draft_model", .num_speculative_tokens = tokens, .model = (folder / name).string()};
  }
  static SpeculativeConfig ngram(int64_t tokens = 4) {
    return {.method = "ngram", .num_speculative_tokens = tokens, .prompt_lookup_min = 1, .prompt_lookup_max = 3};
  }
  std::vector<SpeculativeConfig> all() const {
    std::vector<SpeculativeConfig> out;
    for (const std::string& method : proposers().names())
      if (method != "draft_model") out.push_back(ngram(3)), out.back().method = method;
    for (const char* name : {"same", "near", "strange"}) out.push_back(draft(name));
    return out;
  }

  // Requests that use all options in turn.
  static std::vector<GenerationRequest> requests() {
    std::vector<GenerationRequest> out;
    for (uint64_t i = 0; i < 16; ++i) {
      GenerationRequest& request = out.emplace_back();
      request.prompt = prompt(i % 5, 1 + static_cast<int64_t>(i) * 2);
      request.n = 1 + static_cast<int64_t>(i % 3);
      request.id = i;
      SamplingParams& sampling = request.sampling;
      sampling.temperature = i % 4 == 0 ? 0.0 : 0.5 + 0.1 * static_cast<double>(i);
      sampling.max_tokens = 1 + static_cast<int64_t>(i) * 3;
      sampling.seed = 3;
      for (int64_t id = 0; id < 3; ++id) sampling.stop_ids.push_back(id);
      if (i % 5 == 1) sampling.min_tokens = sampling.max_tokens / 2;
      if (i % 6 == 2) sampling.repetition_penalty = 1.3;
      if (i % 6 == 4) sampling.presence_penalty = 0.7, sampling.frequency_penalty = -0.4;
      if (i % 7 == 3) sampling.logit_bias = {{20, 3}, {21, -100}};
      if (i % 3 == 2) sampling.top_p = 0.9;
      if (i % 5 == 0) request.top_logprobs = static_cast<int64_t>(i) + 1;
      request.prompt_logprobs = i % 8 == 7;
    }
    return out;
  }
  TemporaryFolder temporary;
  std::filesystem::path folder = temporary.path();
};

TEST_F(ProposerTest, EveryMethodKeepsEveryCompletion) {
  const auto plain = Engine(context, *model, nullptr, {}).generate(requests());
  for (const SpeculativeConfig& config : all()) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, config.method + " " + config.model);
    Engine together(context, *model, nullptr, {.speculative = config});
    expect_same(plain, together.generate(requests()));
    for (const GenerationRequest& request : requests())  // alone, mostly in the decode loop
      expect_same({plain[request.id]}, Engine(context, *model, nullptr, {.speculative = config}).generate({request}));
    const EngineStats stats = together.stats();
    EXPECT_EQ(stats.draft_tokens > 0, config.method != "none");
    EXPECT_LE(stats.drafts, stats.draft_tokens);
    EXPECT_LE(stats.accepted_tokens, stats.draft_tokens);
  }
}

TEST_F(ProposerTest, LogProbsAreTheLearnersBitForBit) {
  const GenerationRequest request{
      prompt(2, 9), 8, 1, {.temperature = 0.9, .max_tokens = 60, .stop = {}, .stop_ids = {}}};
  for (const SpeculativeConfig& config : {ngram(), draft("near")}) {
    const auto completions = Engine(context, *model, nullptr, {.speculative = config}).generate({request});
    std::vector<std::vector<int32_t>> texts;
    for (const CompletionOutput& completion : completions[0]) {
      texts.push_back(request.prompt);
      texts.back().insert(texts.back().end(), completion.ids.begin(), completion.ids.end());
    }
    const std::vector<TokenLogprobs> scores = compute_logprobs(context, *model, texts, {.temperature = 0.9});
    for (size_t i = 0; i < texts.size(); ++i)
      EXPECT_TRUE(std::equal(completions[0][i].logp.begin(), completions[0][i].logp.end(), scores[i].logp.begin() + 9,
                             scores[i].logp.end()));
  }
}

TEST_F(ProposerTest, AModelsOwnDraftsAreAllAccepted) {
  const GenerationRequest request{prompt(2, 9), 3, 1, {.max_tokens = 41, .stop = {}, .stop_ids = {}}};
  Engine engine(context, *model, nullptr, {.speculative = draft("same")});
  engine.generate({request});
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.accepted_tokens, stats.draft_tokens);
  EXPECT_EQ(stats.drafts, 3 * 8);  // five tokens per pass of each completion's 40 tokens after the first
  EXPECT_EQ(stats.draft_tokens, 3 * 8 * 4);
  EXPECT_EQ(stats.steps, 1 + 8);
  EXPECT_EQ(stats.generated_tokens, 3 * 41);
}

TEST_F(ProposerTest, AcceptedDraftsDoNotDependOnCachesAndPreemption) {
  const GenerationRequest request{prompt(2, 30), 4, 1, {.max_tokens = 41, .stop = {}, .stop_ids = {}}};
  Engine engine(context, *model, nullptr, {.kv_block_size = 4, .kv_cache_tokens = 160, .speculative = draft("same")});
  const auto first = engine.generate({request});
  expect_same(first, engine.generate({request}));
  const EngineStats stats = engine.stats();
  EXPECT_GT(stats.preemptions, 0);
  EXPECT_GT(stats.cached_tokens, 0);
  EXPECT_EQ(stats.accepted_tokens, stats.draft_tokens);
}

TEST_F(ProposerTest, ASimilarModelsDraftsArePartlyAccepted) {
  const GenerationRequest request{prompt(2, 9), 8, 1, {.max_tokens = 60, .stop = {}, .stop_ids = {}}};
  Engine engine(context, *model, nullptr, {.speculative = draft("near")});
  engine.generate({request});
  EXPECT_GT(engine.stats().accepted_tokens, engine.stats().draft_tokens / 10);
  EXPECT_LT(engine.stats().accepted_tokens, engine.stats().draft_tokens);
}

TEST_F(ProposerTest, NgramDraftsOfARepeatedTextAreAccepted) {
  const GenerationRequest request{
      prompt(2, 9), 1, 1, {.temperature = 0, .max_tokens = 80, .frequency_penalty = -2, .stop = {}, .stop_ids = {}}};
  const auto plain = Engine(context, *model, nullptr, {}).generate({request});
  Engine engine(context, *model, nullptr, {.speculative = ngram()});
  expect_same(plain, engine.generate({request}));
  EXPECT_GT(engine.stats().accepted_tokens, 50);
  EXPECT_EQ(engine.stats().steps, 80 - engine.stats().accepted_tokens);
}

// A pass computes no more tokens than its budget, and a draft is no longer than the rest of the completion.
TEST_F(ProposerTest, DraftsStayWithinTheBudgetAndTheCompletion) {
  for (const auto& [budget, guessed] : {std::pair{4, 0}, {8, 4}, {12, 8}, {100, 12}}) {
    Engine engine(context, *model, nullptr, {.max_batch_tokens = budget, .speculative = draft("strange", 3)});
    int64_t written = 0;
    for (uint64_t id = 0; id < 4; ++id)
      engine.submit({{5}, 1, id, {.max_tokens = 6, .ignore_eos = true, .stop = {}, .stop_ids = {}}},
                    [&](uint64_t, const std::vector<CompletionOutput>& completions) {
                      written += std::ssize(completions[0].ids);
                    });
    engine.step();
    engine.step();
    EXPECT_EQ(engine.stats().draft_tokens, guessed);
    while (engine.step()) {}
    EXPECT_EQ(written, 4 * 6);
  }
  Engine engine(context, *model, nullptr, {.speculative = draft("same", 64)});
  engine.generate({{{5}, 1, 0, {.max_tokens = 6, .stop = {}, .stop_ids = {}}}});
  EXPECT_EQ(engine.stats().draft_tokens,
            4);  // between the first token, sampled from the prompt, and the last, which needs no draft
}

TEST_F(ProposerTest, AThinkingBudgetIsKept) {
  TinyModel tiny;
  save_draft(context, *tiny.model, 0, folder / "bytes");
  const SamplingParams sampling{.max_tokens = 30,
                                .seed = 4,
                                .ignore_eos = true,
                                .stop = {},
                                .stop_ids = {},
                                .thinking_budget = 7,
                                .thinking_end = "so: "};
  const GenerationRequest request{byte_ids("How many?"), 3, 2, sampling};
  const auto plain = Engine(tiny.context, *tiny.model, &tiny.tokenizer, {}).generate({request});
  EXPECT_EQ(std::count(plain[0][0].forced.begin(), plain[0][0].forced.end(), true), 4);
  for (const SpeculativeConfig& config : {ngram(), draft("bytes")}) {
    Engine engine(tiny.context, *tiny.model, &tiny.tokenizer, {.speculative = config});
    expect_same(plain, engine.generate({request}));
  }
}

// The frequencies of the second token, the first one that can be drafted, equal the model's probabilities, summed over
// the first token.
TEST_F(ProposerTest, FrequenciesAreTheModelsProbabilities) {
  const std::vector<int32_t> text = prompt(3, 8);
  const auto probabilities = [&](const std::vector<int32_t>& tokens) {
    std::vector<double> out = logits_after(tokens);
    for (double& z : out) z = std::exp(z);
    const double sum = std::accumulate(out.begin(), out.end(), 0.0);
    for (double& p : out) p /= sum;
    return out;
  };
  const std::vector<double> first = probabilities(text);
  std::vector<double> expected(first.size());
  for (size_t id = 0; id < first.size(); ++id) {
    std::vector<int32_t> longer = text;
    longer.push_back(static_cast<int32_t>(id));
    const std::vector<double> then = probabilities(longer);
    for (size_t next = 0; next < then.size(); ++next) expected[next] += first[id] * then[next];
  }
  constexpr int64_t draws = 4000;
  for (const SpeculativeConfig& config : {draft("near"), draft("strange"), ngram()}) {
    Engine engine(context, *model, nullptr, {.speculative = config});
    const auto completions = engine.generate({{text, draws, 1, {.max_tokens = 3, .stop = {}, .stop_ids = {}}}});
    std::vector<double> seen(expected.size());
    for (const CompletionOutput& completion : completions[0]) seen[static_cast<size_t>(completion.ids[1])] += 1;
    double chi_square = 0, rare_seen = 0, rare_expected = 0;
    int64_t freedom = 0;
    const auto add = [&](double count, double of) { chi_square += (count - of) * (count - of) / of, ++freedom; };
    for (size_t id = 0; id < expected.size(); ++id) {
      const double of = expected[id] * draws;
      if (of >= 5)
        add(seen[id], of);
      else
        rare_seen += seen[id], rare_expected += of;
    }
    if (rare_expected >= 5) add(rare_seen, rare_expected);
    --freedom;
    EXPECT_GT(freedom, 15);
    EXPECT_LT(chi_square, static_cast<double>(freedom) + 4 * std::sqrt(2 * static_cast<double>(freedom)))
        << config.model;
    EXPECT_GT(engine.stats().draft_tokens, 0);
  }
}

TEST_F(ProposerTest, AnotherVocabularyIsAnError) {
  const auto refusal = [](const auto& make) {
    try {
      make();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  save_stranger(context, 60, 40, folder / "short");
  EXPECT_NE(refusal([&] {
              Engine(context, *model, nullptr, {.speculative = draft("short")});
            }).find("short has a vocabulary of 60, the model has 61"),
            std::string::npos);
  TinyModel tiny;
  save_stranger(tiny.context, 300, 40, folder / "bytes");  // the tokenizer's 258 ids, and padding rows
  tiny.tokenizer.save(folder / "bytes");
  SpeculativeConfig config = draft("bytes");
  const GenerationRequest request{byte_ids("How many?"), 1, 2, {.max_tokens = 40, .stop = {}, .stop_ids = {}}};
  const auto plain = Engine(tiny.context, *tiny.model, &tiny.tokenizer, {}).generate({request});
  expect_same(plain, Engine(tiny.context, *tiny.model, &tiny.tokenizer, {.speculative = config}).generate({request}));
  std::string json = read_file(folder / "bytes" / "tokenizer.json");
  json.replace(json.find("<|im_start|>"), 12, "<|im_begin|>");
  write_file_atomic(folder / "bytes" / "tokenizer.json", json);
  EXPECT_NE(refusal([&] {
              Engine(tiny.context, *tiny.model, &tiny.tokenizer, {.speculative = config});
            }).find("id 256 is '<|im_begin|>' there and '<|im_start|>' here"),
            std::string::npos);
}

TEST_F(ProposerTest, InvalidSettingsAreErrors) {
  const auto check = [](SpeculativeConfig config) { check_settings([&](Fields& f) { config.fields(f); }); };
  check(ngram());
  check(draft("same"));
  EXPECT_THROW(check({.method = "n-gram"}), Error);
  EXPECT_THROW(check({.method = "draft_model"}), Error);
  EXPECT_THROW(check({.method = "ngram", .model = "folder"}), Error);
  EXPECT_THROW(check({.method = "mtp", .model = "folder"}), Error);
  EXPECT_THROW(check({.method = "ngram", .num_speculative_tokens = 0}), Error);
  EXPECT_THROW(check({.method = "ngram", .prompt_lookup_min = 3, .prompt_lookup_max = 2}), Error);
}

}  // namespace
}  // namespace hone::test
