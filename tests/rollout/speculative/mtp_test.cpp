// Drafts by the model's modules of multi-token prediction: which tokens they propose, and that nothing else changes.
#include <algorithm>

#include "model/quantized_model.h"
#include "rollout/proposer.h"
#include "rollout/speculative/mtp_inference.h"
#include "tests/rollout/tiny_adapter.h"
#include "tests/rollout/tiny_engine.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

constexpr int64_t vocabulary = 11;

class MtpDrafts : public TinyEngineTest {
 protected:
  MtpDrafts() { make("qwen3", 2); }
  void make(const char* family, int64_t modules) {
    const Json config = JsonObject{{"model_type", family},
                                   {"hidden_size", 32},
                                   {"intermediate_size", 48},
                                   {"moe_intermediate_size", 16},
                                   {"n_routed_experts", 8},
                                   {"num_experts_per_tok", 2},
                                   {"n_group", 4},
                                   {"topk_group", 2},
                                   {"first_k_dense_replace", 1},
                                   {"num_hidden_layers", 2},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 2},
                                   {"head_dim", 8},
                                   {"kv_lora_rank", 24},
                                   {"q_lora_rank", 20},
                                   {"qk_rope_head_dim", 8},
                                   {"qk_nope_head_dim", 12},
                                   {"v_head_dim", 10},
                                   {"sliding_window", 5},
                                   {"rope_theta", 100.0},
                                   {"vocab_size", vocabulary},
                                   {"max_position_embeddings", 96},
                                   {"rms_norm_eps", 1e-5},
                                   {"initializer_range", 0.3},
                                   {"tie_word_embeddings", false},
                                   {"num_nextn_predict_layers", modules}};
    model = make_model(config, "test");
    model->allocate(context, DType::f32, false);
    model->initialize(context, 5);
    make_predictable();
  }
  // The next token depends mostly on the last one, and a module mostly on the token that it embeds, so that the modules
  // are often right and often wrong.
  void make_predictable() {
    for (Param* param : model->base_params()) {
      const std::string& name = param->slices[0].name;
      const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
      const float factor = has("eh_proj") ? 0.3f : 0.05f;
      if (has("o_proj") || has("down_proj") || has("eh_proj"))
        for (float& weight : param->value.as<float>()) weight *= factor;
      for (int64_t i = 0; has("eh_proj") && i < 32; ++i) param->value.row<float>(i)[i] += 1;
    }
  }
  static SpeculativeConfig mtp(int64_t tokens) { return {.method = "mtp", .num_speculative_tokens = tokens}; }
  static std::vector<int32_t> text(uint64_t seed, int64_t length) {
    std::vector<int32_t> out = prompt(seed, length);
    for (int32_t& id : out) id %= vocabulary;
    return out;
  }
  static GenerationRequest greedy(int64_t prompt_length, int64_t max_tokens, uint64_t id = 1) {
    return {text(id, prompt_length),
            1,
            id,
            {.temperature = 0, .max_tokens = max_tokens, .ignore_eos = true, .stop = {}, .stop_ids = {}}};
  }

  // Rows of one module for positions k, k + 1, ... of a text: the inputs and the outputs.
  struct Rows {
    std::vector<float> in, out;
    std::span<const float> last() const { return std::span(out).last(32); }
  };
  // Runs module k over the whole text without a cache.
  void run(Rows& rows, size_t k, const std::vector<int32_t>& tokens) {
    const ScratchScope scope(context);
    const auto count = static_cast<int64_t>(rows.in.size()) / 32;
    const BatchPart part{std::span(tokens).subspan(k, static_cast<size_t>(count))};
    const Batch batch = pack_batch(context, context.scratch(), {&part, 1});
    rows.out = rows.in;
    const Tensor x = host_view(std::span(rows.out)).view({count, 32});
    infer_mtp_module(context, *model, k - 1, {.batch = batch}, x, x);
  }
  int32_t most_likely(std::span<const float> hidden) {
    const ScratchScope scope(context);
    std::vector<float> row(hidden.begin(), hidden.end()), logits(vocabulary);
    lm_head_logits(context, *model, host_view(std::span(logits)).view({1, vocabulary}),
                   host_view(std::span(row)).view({1, 32}));
    return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  }
  // The draft after a text whose last token is sampled and not computed yet, by the modules' formula.
  std::vector<int32_t> expected_draft(std::vector<int32_t> tokens, int64_t length) {
    const size_t K = mtp_of(*model)->size(), computed = tokens.size() - 1;
    if (computed < K) return {};
    std::vector<Rows> rows(K + 1);
    {
      const ScratchScope scope(context);
      const BatchPart part{std::span(tokens).first(computed)};
      const Tensor hidden = infer(context, *model, pack_batch(context, context.scratch(), {&part, 1}), {}, nullptr);
      rows[0].out.assign(hidden.as<float>().begin(), hidden.as<float>().end());
    }
    for (size_t k = 1; k <= K; ++k) {  // position p reads the output of the module before at p - 1
      rows[k].in.assign(rows[k - 1].out.begin(), rows[k - 1].out.end() - 32);
      if (!rows[k].in.empty()) run(rows[k], k, tokens);
    }
    std::vector<int32_t> draft;
    for (size_t step = 1; step <= static_cast<size_t>(length); ++step) {
      const size_t proposing = std::min(step, K);
      const std::vector<Rows> before = rows;
      for (size_t k = proposing; k <= K; ++k) {
        const std::span<const float> in = before[step > K ? k : k - 1].last();
        rows[k].in.insert(rows[k].in.end(), in.begin(), in.end());
        run(rows[k], k, tokens);
      }
      draft.push_back(most_likely(rows[proposing].last()));
      tokens.push_back(draft.back());
    }
    return draft;
  }
  // What greedy decoding of a request must count.
  struct Counts {
    int64_t drafts = 0, tokens = 0, accepted = 0;
  };
  Counts expected_counts(const GenerationRequest& request, const std::vector<int32_t>& completion, int64_t length) {
    Counts out;
    for (size_t written = 1; written < completion.size();) {
      std::vector<int32_t> tokens = request.prompt;
      tokens.insert(tokens.end(), completion.begin(), completion.begin() + static_cast<std::ptrdiff_t>(written));
      const auto left = static_cast<int64_t>(completion.size() - written);
      const std::vector<int32_t> draft = expected_draft(tokens, std::min(length, left - 1));
      out.drafts += !draft.empty();
      out.tokens += std::ssize(draft);
      size_t accepted = 0;
      while (accepted < draft.size() && draft[accepted] == completion[written + accepted]) ++accepted;
      out.accepted += static_cast<int64_t>(accepted);
      written += accepted + 1;
    }
    return out;
  }
  void expect_formula(const EngineConfig& base, int64_t prompt_length, int64_t draft_length) {
    const GenerationRequest request = greedy(prompt_length, 40);
    const auto plain = Engine(context, *model, nullptr, {}).generate({request});
    ASSERT_EQ(std::ssize(plain[0][0].ids), 40) << plain[0][0].finish_reason;
    const Counts expected = expected_counts(request, plain[0][0].ids, draft_length);
    EngineConfig config = base;
    config.speculative = mtp(draft_length);
    Engine engine(context, *model, nullptr, config);
    for (int64_t time = 1; time <= 2; ++time) {  // the second time the prefix cache has the prompt
      expect_same(plain, engine.generate({request}));
      EXPECT_EQ(engine.stats().drafts, time * expected.drafts);
      EXPECT_EQ(engine.stats().draft_tokens, time * expected.tokens);
      EXPECT_EQ(engine.stats().accepted_tokens, time * expected.accepted);
    }
    EXPECT_EQ(engine.stats().cached_tokens > 0, base.prefix_caching && prompt_length > base.kv_block_size);
    seen_.tokens += expected.tokens;
    seen_.accepted += expected.accepted;
  }
  void expect_some_accepted() const {
    EXPECT_GT(seen_.accepted, seen_.tokens / 10);
    EXPECT_LT(seen_.accepted, seen_.tokens);
  }
  TemporaryFolder folder;
  Counts seen_;
};

TEST_F(MtpDrafts, ProposeWhatTheFormulaSays) {
  for (const char* family : {"qwen3", "gpt_oss", "deepseek_v3"})
    for (const int64_t modules : {1, 2, 3}) {
      make(family, modules);
      for (const int64_t length : {1, 2, 5}) {
        const ::testing::ScopedTrace trace(__FILE__, __LINE__, concat(family, " ", modules, " ", length));
        expect_formula({}, 20, length);
      }
    }
  expect_some_accepted();
}

TEST_F(MtpDrafts, DoNotDependOnBlocksAndChunks) {
  for (const int64_t modules : {1, 2}) {
    make("qwen3", modules);
    for (const int64_t prompt_length : {1, 2, 8, 23})
      for (const int64_t block_size : {1, 3, 8, 64})
        for (const int64_t batch_tokens : {6, 2048}) {
          const ::testing::ScopedTrace trace(__FILE__, __LINE__,
                                             concat(modules, " ", prompt_length, " ", block_size, " ", batch_tokens));
          expect_formula({.kv_block_size = block_size, .max_batch_tokens = batch_tokens}, prompt_length, 4);
        }
  }
  expect_some_accepted();
}

// Forks share the prompt's blocks, full or not, and each writes its own text behind them.
TEST_F(MtpDrafts, OfForksDoNotDependOnBlocks) {
  const GenerationRequest request{
      text(3, 16), 6, 7, {.max_tokens = 40, .ignore_eos = true, .stop = {}, .stop_ids = {}}};
  const auto plain = Engine(context, *model, nullptr, {}).generate({request});
  std::vector<int64_t> accepted;
  for (const int64_t block_size : {1, 3, 4, 16, 64}) {
    Engine engine(context, *model, nullptr, {.kv_block_size = block_size, .speculative = mtp(3)});
    expect_same(plain, engine.generate({request}));
    accepted.push_back(engine.stats().accepted_tokens);
    EXPECT_EQ(accepted.back(), accepted.front()) << block_size;
  }
  EXPECT_GT(accepted.front(), 20);
}

TEST_F(MtpDrafts, ChangeNoCompletionWhenSequencesArePreempted) {
  for (const char* family : {"qwen3", "gpt_oss", "deepseek_v3"}) {
    make(family, 2);
    std::vector<GenerationRequest> requests;
    for (uint64_t i = 0; i < 8; ++i) {
      GenerationRequest& request = requests.emplace_back(greedy(3 + static_cast<int64_t>(i) * 3, 40, i));
      request.n = 1 + static_cast<int64_t>(i) % 3;
      request.sampling.temperature = i % 3 == 0 ? 0 : 1;
      if (i % 4 == 1) request.sampling.repetition_penalty = 1.3;
      request.prompt_logprobs = i % 4 == 2;
    }
    const auto plain = Engine(context, *model, nullptr, {}).generate(requests);
    Engine engine(context, *model, nullptr,
                  {.kv_block_size = 4, .kv_cache_tokens = 160, .max_batch_tokens = 30, .speculative = mtp(3)});
    expect_same(plain, engine.generate(requests));
    engine.set_policy_version(1);
    expect_same(plain, engine.generate(requests));
    EXPECT_GT(engine.stats().preemptions, 0);
    EXPECT_GT(engine.stats().cached_tokens, 0);
    EXPECT_GT(engine.stats().accepted_tokens, 0);
    EXPECT_LT(engine.stats().accepted_tokens, engine.stats().draft_tokens);
  }
}

// Layers that add nothing: the next token depends on the last one alone, and a module that passes the embedding on
// predicts as the model does.
TEST_F(MtpDrafts, OfModulesThatAreRightAreAccepted) {
  for (Param* param : model->base_params()) {
    const std::string& name = param->slices[0].name;
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    if (has("o_proj") || has("down_proj")) context.zero(param->value);
    if (!has("eh_proj")) continue;
    context.zero(param->value);
    for (int64_t i = 0; i < 32; ++i) param->value.row<float>(i)[i] = 1;
  }
  GenerationRequest request{text(2, 9), 6, 1, {.max_tokens = 61, .ignore_eos = true, .stop = {}, .stop_ids = {}}};
  Engine engine(context, *model, nullptr, {.speculative = mtp(4)});
  engine.generate({request});
  EXPECT_EQ(engine.stats().accepted_tokens, engine.stats().draft_tokens);
  EXPECT_EQ(engine.stats().drafts, 6 * 12);  // five tokens in each pass
  EXPECT_EQ(engine.stats().steps, 1 + 12);
}

TEST_F(MtpDrafts, ServeAdaptersAndQuantizedModels) {
  save_model(context, *model, folder.path() / "base", DType::f32);
  save_tiny_adapter(context, *model, folder.path() / "base", folder.path() / "adapter", 1, 4, {"q_proj", "v_proj"});
  for (const char* quantization : {"none", "int8"}) {
    const auto generate = [&](const SpeculativeConfig& speculative) {
      Engine engine(context, *model, nullptr, {.speculative = speculative, .quantization = quantization});
      const int64_t adapter = engine.load_adapter(folder.path() / "adapter");
      std::vector<GenerationRequest> requests;
      for (uint64_t i = 0; i < 6; ++i) {
        requests.push_back(greedy(5 + static_cast<int64_t>(i), 30, i));
        requests.back().adapter = i % 2 == 0 ? adapter : 0;
      }
      const auto out = engine.generate(requests);
      EXPECT_EQ(engine.stats().accepted_tokens > 0, speculative.method == "mtp");
      return out;
    };
    expect_same(generate({}), generate(mtp(3)));
  }
}

TEST_F(MtpDrafts, NeedAModelWithModules) {
  make("qwen3", 0);
  try {
    Engine(context, *model, nullptr, {.speculative = mtp(3)});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("speculative.method: \"mtp\" needs a model with modules"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace hone::test
