// The contract of every model family, tested over families().
#include "core/base/parallel_for.h"
#include "model/io/model_files.h"
#include "model/token_logprobs.h"
#include "tests/model/chain_loss.h"

namespace hone::test {
namespace {

struct Case {
  std::string name;
  Json config;
  friend void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }
};

// A decoder whose layers differ at random, from the keys of hone_decoder. Not relu: its kinks are wider than the steps
// of finite differences.
Json random_decoder(uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](const std::vector<std::string>& names) { return Json(names[random() % names.size()]); };
  const auto coin = [&] { return random() % 2 == 1; };
  constexpr int num_layers = 4;
  JsonArray norms, activations, mlps, windows, rope;
  for (int layer = 0; layer < num_layers; ++layer) {
    norms.push_back(pick({"pre", "post", "both", "parallel"}));
    activations.push_back(pick({"silu", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu2"}));
    mlps.push_back(pick({"gated", "plain"}));
    windows.push_back(pick({"full_attention", "sliding_attention"}));
    rope.push_back(Json(int64_t{random() % 4 != 0}));
  }
  JsonObject changes{{"num_hidden_layers", num_layers},
                     {"norm_placement", norms},
                     {"hidden_act", activations},
                     {"mlp", mlps},
                     {"layer_types", windows},
                     {"no_rope_layers", rope},
                     {"norm_type", pick({"rms_norm", "layer_norm"})},
                     {"attention_bias", coin()},
                     {"mlp_bias", coin()},
                     {"qk_norm", coin()},
                     {"rope_interleaved", coin()},
                     {"tie_word_embeddings", coin()},
                     {"head_dim", 8},
                     {"partial_rotary_factor", coin() ? 0.5 : 1.0},
                     {"num_key_value_heads", coin() ? 4 : 1},
                     {"embedding_scale", coin() ? 1.5 : 1.0}};
  if (coin()) changes.emplace_back("attn_logit_softcapping", 2.0);
  if (coin()) changes.emplace_back("final_logit_softcapping", 3.0);
  return with(tiny_config("hone_decoder"), changes);
}

// Every family with its defaults, and with the options of config.json.
std::vector<Case> cases() {
  std::vector<Case> out;
  for (const std::string& family : families().names()) {
    out.push_back({family, tiny_config(family)});
    out.push_back({family + "_tied", with(tiny_config(family), {{"tie_word_embeddings", true}})});
  }
  out.push_back({"llama_biases", with(tiny_config("llama"), {{"attention_bias", true}, {"mlp_bias", true}})});
  out.push_back({"llama_linear",
                 with(tiny_config("llama"), {{"rope_scaling", JsonObject{{"type", "linear"}, {"factor", 2.0}}}})});
  out.push_back({"qwen2_layers",
                 with(tiny_config("qwen2"), {{"use_sliding_window", true},
                                             {"layer_types", JsonArray{"full_attention", "sliding_attention"}}})});
  out.push_back({"llama_yarn", with(tiny_config("llama"),
                                    {{"rope_parameters",
                                      JsonObject{{"rope_type", "yarn"}, {"rope_theta", 50.0}, {"factor", 4.0}}}})});
  // Not relu: its kinks are wider than the steps of finite differences.
  for (const char* activation : {"gelu", "gelu_pytorch_tanh", "relu2"})
    out.push_back({std::string("llama_") + activation, with(tiny_config("llama"), {{"hidden_act", activation}})});
  out.push_back({"olmo2_biases", with(tiny_config("olmo2"), {{"attention_bias", true}})});
  out.push_back(
      {"smollm3_nope", with(tiny_config("smollm3"),
                            {{"no_rope_layers", JsonArray{1, 0}}, {"use_sliding_window", true}, {"mlp_bias", true}})});
  out.push_back({"phi3_longrope",
                 with(tiny_config("phi3"), {{"head_dim", 8},
                                            {"partial_rotary_factor", 0.5},
                                            {"original_max_position_embeddings", 32},
                                            {"rope_scaling", JsonObject{{"type", "longrope"},
                                                                        {"short_factor", JsonArray{1.5, 2.0}},
                                                                        {"long_factor", JsonArray{3.0, 4.0}}}}})});
  out.push_back({"phi3_long_rope",
                 with(tiny_config("phi3"), {{"original_max_position_embeddings", 3},
                                            {"use_long_rope", true},
                                            {"rope_scaling", JsonObject{{"type", "longrope"},
                                                                        {"short_factor", JsonArray{1.5, 2.0, 1.0}},
                                                                        {"long_factor", JsonArray{3.0, 4.0, 2.0}}}}})});
  out.push_back({"olmoe_clipped", with(tiny_config("olmoe"), {{"clip_qkv", 0.9}})});
  out.push_back({"gemma2_caps", with(tiny_config("gemma2"), {{"attn_logit_softcapping", 0.5},
                                                             {"final_logit_softcapping", 2.0},
                                                             {"query_pre_attn_scalar", 3}})});
  out.push_back({"gemma2_no_caps", with(tiny_config("gemma2"),
                                        {{"attn_logit_softcapping", Json()}, {"final_logit_softcapping", Json()}})});
  out.push_back({"gemma3_layers",
                 with(tiny_config("gemma3_text"), {{"layer_types", JsonArray{"full_attention", "sliding_attention"}},
                                                   {"rope_local_base_freq", 10.0}})});
  out.push_back({"qwen3_moe_dense_first",
                 with(tiny_config("qwen3_moe"),
                      {{"mlp_only_layers", JsonArray{0}}, {"norm_topk_prob", true}, {"router_z_loss_coef", 0.05}})});
  out.push_back({"gpt_oss_options",
                 with(tiny_config("gpt_oss"), {{"attention_bias", false},
                                               {"swiglu_limit", 2.5},
                                               {"swiglu_alpha", 1.1},
                                               {"router_z_loss_coef", 0.05},
                                               {"rope_scaling", JsonObject{{"rope_type", "default"}}},
                                               {"layer_types", JsonArray{"full_attention", "sliding_attention"}}})});
  for (const char* family : {"gpt_oss", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe"})
    out.push_back({concat(family, "_top_2"), with(tiny_config(family), {{"num_experts_per_tok", 2}})});
  out.push_back({"deepseek_v3_plain", with(tiny_config("deepseek_v3"), {{"q_lora_rank", Json()},
                                                                        {"rope_interleave", false},
                                                                        {"attention_bias", true},
                                                                        {"n_group", 1},
                                                                        {"topk_group", 1},
                                                                        {"n_shared_experts", 0},
                                                                        {"first_k_dense_replace", 0},
                                                                        {"v_head_dim", 9}})});
  out.push_back({"deepseek_v2_groups",
                 with(tiny_config("deepseek_v2"),
                      {{"topk_method", "group_limited_greedy"}, {"mlp_bias", true}, {"n_shared_experts", 1}})});
  out.push_back({"deepseek_v3_yarn",
                 with(tiny_config("deepseek_v3"), {{"norm_topk_prob", false},
                                                   {"n_shared_experts", 2},
                                                   {"rope_parameters", JsonObject{{"rope_type", "yarn"},
                                                                                  {"rope_theta", 50.0},
                                                                                  {"factor", 4.0},
                                                                                  {"mscale", 1.0},
                                                                                  {"mscale_all_dim", 1.0}}}})});
  for (uint32_t seed = 1; seed <= 6; ++seed) out.push_back({concat("hone_decoder_", seed), random_decoder(seed)});
  out.push_back({"hone_decoder_mtp", with(random_decoder(7), {{"num_nextn_predict_layers", 1}})});
  const auto sharing = [](int64_t layers, int64_t share, JsonObject changes = {}) {
    changes.emplace_back("num_hidden_layers", layers);
    changes.emplace_back("kv_share", share);
    changes.emplace_back("sliding_window", Json());
    return with(tiny_config("hone_decoder"), changes);
  };
  out.push_back({"hone_decoder_share_2", sharing(5, 2)});
  out.push_back({"hone_decoder_share_4", sharing(4, 4, {{"qk_norm", true}, {"attention_bias", true}})});
  out.push_back(
      {"hone_decoder_share_3_interleaved",
       sharing(4, 3, {{"rope_interleaved", true}, {"norm_placement", "parallel_shared"}, {"qk_norm", true}})});
  const JsonObject windows{
      {"sliding_window", 5},
      {"num_key_value_heads", 1},
      {"layer_types", JsonArray{"sliding_attention", "sliding_attention", "full_attention", "full_attention"}}};
  out.push_back({"hone_decoder_share_windows", with(sharing(4, 2), windows)});
  out.push_back(
      {"hone_decoder_one_norm",
       sharing(2, 1, {{"norm_placement", "parallel_shared"}, {"norm_type", "layer_norm"}, {"mlp", "plain"}})});
  // Latent attention and experts, in all layers or in some.
  const JsonObject latent{{"attention", "latent"}, {"kv_lora_rank", 8}},
      experts{{"mlp", "experts"}, {"num_experts", 4}};
  const auto composed = [&](const char* name, std::initializer_list<JsonObject> parts) {
    Json config = tiny_config("hone_decoder");
    for (const JsonObject& part : parts) config = with(config, part);
    out.push_back({concat("hone_decoder_", name), config});
  };
  composed("latent", {latent, {{"q_lora_rank", Json()}, {"norm_placement", "both"}, {"rope_interleaved", true}}});
  composed("latent_default_heads", {{{"model_type", "hone_decoder"}, {"attention_bias", true}},
                                    latent,
                                    {{"qk_nope_head_dim", Json()},
                                     {"qk_rope_head_dim", Json()},
                                     {"v_head_dim", Json()},
                                     {"norm_placement", "parallel"}}});
  composed("experts", {experts,
                       {{"scoring_func", "sigmoid"},
                        {"norm_topk_prob", true},
                        {"n_shared_experts", 2},
                        {"shared_expert_intermediate_size", 0},
                        {"hidden_act", "gelu"},
                        {"router_z_loss_coef", 0.05}}});
  composed("experts_gated", {experts,
                             {{"routed_scaling_factor", 1.5},
                              {"n_group", 1},
                              {"topk_group", 1},
                              {"hidden_act", "relu2"},
                              {"router_bias_update_rate", 0.01},
                              {"norm_placement", "post"}}});
  const JsonObject mixed{
      {"num_hidden_layers", 4},
      {"attention", JsonArray{"grouped", "latent", "latent", "grouped"}},
      {"mlp", JsonArray{"experts", "gated", "plain", "experts"}},
      {"hidden_act", JsonArray{"gelu", "silu", "relu2", "silu"}},
      {"norm_placement", JsonArray{"pre", "parallel_shared", "post", "both"}},
      {"layer_types", JsonArray{"sliding_attention", "sliding_attention", "full_attention", "full_attention"}},
      {"no_rope_layers", JsonArray{0, 1, 1, 1}}};
  composed("mixed", {latent, experts, mixed});
  composed("mixed_mtp", {latent,
                         experts,
                         mixed,
                         {{"attention", JsonArray{"grouped", "grouped", "grouped", "latent"}},
                          {"num_nextn_predict_layers", 2},
                          {"tie_word_embeddings", true}}});
  composed("mixed_share", {latent,
                           experts,
                           {{"num_hidden_layers", 5},
                            {"kv_share", 2},
                            {"attention", JsonArray{"grouped", "grouped", "grouped", "grouped", "latent"}}}});
  // Multi-token prediction: one module and two in sequence, a tied lm_head, layers of other kinds.
  const auto ahead = [](const char* family, int64_t modules, JsonObject changes = {}) {
    changes.emplace_back("num_nextn_predict_layers", modules);
    return with(tiny_config(family), changes);
  };
  out.push_back({"qwen3_mtp", ahead("qwen3", 1)});
  out.push_back({"llama_mtp_2_tied", ahead("llama", 2, {{"tie_word_embeddings", true}, {"mtp_loss_coef", 2.0}})});
  out.push_back({"gemma3_mtp", ahead("gemma3_text", 2)});
  out.push_back({"olmoe_mtp", ahead("olmoe", 2, {{"router_z_loss_coef", 0.05}})});
  out.push_back({"deepseek_v3_mtp", ahead("deepseek_v3", 2, {{"router_bias_update_rate", 0.01}})});
  out.push_back(
      {"qwen3_moe_one_expert",
       with(tiny_config("qwen3_moe"), {{"num_experts", 1}, {"num_experts_per_tok", 1}, {"router_z_loss_coef", 0.05}})});
  out.push_back({"qwen2_moe_no_shared", with(tiny_config("qwen2_moe"), {{"shared_expert_intermediate_size", 0}})});
  out.push_back({"olmoe_micro_batch", with(tiny_config("olmoe"), {{"router_aux_loss_scope", "micro_batch"}})});
  return out;
}

class FamilyTest : public testing::TestWithParam<Case> {
 protected:
  FamilyTest() : device_(cpu_device()), context_(*device_) {
    for (const size_t length : {11, 1, 7})
      sequences_.push_back(random_tokens(length, 19, static_cast<uint32_t>(length)));
  }
  std::vector<BatchPart> parts() const { return {sequences_.begin(), sequences_.end()}; }
  std::unique_ptr<Model> model(bool gradients = true) { return make_tiny(context_, GetParam().config, gradients); }

  std::unique_ptr<Device> device_;
  Context context_;
  std::vector<std::vector<int32_t>> sequences_;
};

TEST_P(FamilyTest, GradientOfTheWholeChain) {
  // A choice of experts is no continuous function, and a clamp has kinks: golden_test compares their gradients.
  if (GetParam().name.ends_with("top_2") || GetParam().name.ends_with("clipped")) return;
  const auto model = this->model();
  ChainLoss loss(context_, *model, parts());
  expect_chain_gradient(loss, *model);
}

TEST_P(FamilyTest, RecomputationHasTheSameBits) {
  const auto model = this->model();
  ChainLoss loss(context_, *model, parts());
  loss.gradient(Recompute::none);
  const std::vector<float> kept = download(context_, model->flat_grads());
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    loss.gradient(recompute);
    EXPECT_EQ(download(context_, model->flat_grads()), kept);
  }
}

TEST_P(FamilyTest, ThreadsDoNotChangeTheBits) {
  const auto model = this->model();
  ChainLoss loss(context_, *model, parts());
  const int threads = num_threads();
  std::vector<std::vector<float>> results;
  for (const int count : {1, 2, 3}) {
    set_num_threads(count);
    loss.gradient(Recompute::none);
    results.push_back(download(context_, model->flat_grads()));
  }
  set_num_threads(threads);
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

TEST_P(FamilyTest, PackingHasTheSameBits) {
  const auto model = this->model(false);
  std::vector<float> one_by_one;
  for (const BatchPart& part : parts())
    std::ranges::copy(hidden_of(context_, *model, {{part}}), std::back_inserter(one_by_one));
  EXPECT_EQ(hidden_of(context_, *model, parts()), one_by_one);
}

TEST_P(FamilyTest, TrainingForwardHasTheBitsOfScoring) {
  const auto model = this->model();
  Arena arena(*device_);
  const Batch batch = pack_batch(context_, arena, parts());
  const std::vector<int32_t> rows{0, 4, 10, 11, 18};
  TrainingPass pass(context_, *model, Recompute::none);
  const std::vector<float> trained =
      download(context_, pass.forward(batch, upload(context_, arena, std::span<const int32_t>(rows))));
  const std::vector<float> all = hidden_of(context_, *model, parts());
  const auto width = static_cast<size_t>(model->shape().hidden_size);
  for (size_t r = 0; r < rows.size(); ++r)
    EXPECT_TRUE(std::ranges::equal(std::span(trained).subspan(r * width, width),
                                   std::span(all).subspan(static_cast<size_t>(rows[r]) * width, width)))
        << "row " << r;
}

// Every token of two sequences, computed with a paged cache in chunks of 1 to 5; the sequences' chunks are interleaved
// or in one call.
TEST_P(FamilyTest, DecodingStepByStepHasTheBitsOfOnePass) {
  const auto model = this->model(false);
  const std::vector<std::vector<int32_t>> sequences{random_tokens(23, 19, 1), random_tokens(14, 19, 2)};
  const std::vector<std::vector<size_t>> chunks{{5, 1, 1, 3, 5, 1, 4, 2, 1}, {1, 1, 4, 0, 2, 1, 1, 3, 1}};
  TinyCache cache(context_, *model, 2);
  std::vector<std::vector<float>> hidden(2);
  std::vector<size_t> at(2, 0);
  const auto width = static_cast<size_t>(model->shape().hidden_size);
  for (size_t round = 0; round < chunks[0].size(); ++round) {
    std::vector<BatchPart> parts;
    std::vector<int64_t> ids;
    for (size_t s = 0; s < 2; ++s)
      if (const size_t length = chunks[s][round]; length > 0) {
        parts.push_back({std::span(sequences[s]).subspan(at[s], length), static_cast<int32_t>(at[s])});
        ids.push_back(static_cast<int64_t>(s));
        at[s] += length;
      }
    const std::vector<float> rows = hidden_of(context_, *model, parts, &cache.view(parts, ids));
    auto from = rows.begin();
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto count = static_cast<std::ptrdiff_t>(parts[i].tokens.size() * width);
      hidden[static_cast<size_t>(ids[i])].insert(hidden[static_cast<size_t>(ids[i])].end(), from, from + count);
      from += count;
    }
  }
  for (size_t s = 0; s < 2; ++s) {
    ASSERT_EQ(at[s], sequences[s].size());
    EXPECT_EQ(hidden[s], hidden_of(context_, *model, {{BatchPart{sequences[s]}}})) << "sequence " << s;
  }
}

TEST_P(FamilyTest, ExportAndImportKeepEveryBit) {
  const auto model = this->model(false);
  const TemporaryFolder folder;
  save_model(context_, *model, folder.path(), DType::f32);
  const auto again = load_model(context_, folder.path());
  EXPECT_EQ(download(context_, again->flat_values()), download(context_, model->flat_values()));
  EXPECT_EQ(again->num_params(), model->num_params());
  EXPECT_EQ(hidden_of(context_, *again, parts()), hidden_of(context_, *model, parts()));
  Json config = again->config(), expected = model->config();
  set_token_ids(expected, {});
  EXPECT_EQ(config.dump(), expected.dump());
}

TEST_P(FamilyTest, ScoresDoNotDependOnTheBatch) {
  const auto model = this->model(false);
  std::vector<std::vector<float>> logp;
  for (const int64_t batch_tokens : {1, 9, 4096}) {
    std::vector<float> joined;
    for (const TokenLogprobs& scores : compute_logprobs(
             context_, *model, sequences_, {.temperature = 0.7, .entropy = true, .batch_tokens = batch_tokens})) {
      joined.insert(joined.end(), scores.logp.begin(), scores.logp.end());
      joined.insert(joined.end(), scores.entropy.begin(), scores.entropy.end());
    }
    logp.push_back(joined);
  }
  EXPECT_EQ(logp[0].size(), 38u);
  EXPECT_EQ(logp[0], logp[2]);
  EXPECT_EQ(logp[1], logp[2]);
}

TEST_P(FamilyTest, SteadyStateAllocatesNothing) {
  const auto model = this->model();
  TrainingPass pass(context_, *model, Recompute::none);
  Arena arena(*device_);
  const auto round = [&] {
    const Arena::Mark mark = arena.mark();
    const Batch batch = pack_batch(context_, arena, parts());
    const std::vector<int32_t> rows = all_rows(batch.num_tokens);
    const Tensor hidden = pass.forward(batch, upload(context_, arena, std::span<const int32_t>(rows)));
    ScratchScope scope(context_);
    const Tensor dhidden = context_.scratch().take(DType::f32, hidden.dims());
    context_.copy(dhidden, hidden);
    pass.backward(dhidden);
    hidden_of(context_, *model, parts());
    arena.release(mark);
    return std::vector{arena.capacity_bytes(), context_.scratch().capacity_bytes(), pass.capacity_bytes()};
  };
  const auto first = round();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(round(), first);
}

// Two layers with window 5 see 8 tokens back and no more.
TEST(MistralTest, WindowBoundsWhatATokenSees) {
  const auto device = cpu_device();
  Context context(*device);
  const auto model = make_tiny(context, tiny_config("mistral"), false);
  std::vector<int32_t> ids = random_tokens(20, 19, 1);
  const std::vector<float> before = hidden_of(context, *model, {{BatchPart{ids}}});
  ids[3] = (ids[3] + 1) % 19;
  const std::vector<float> after = hidden_of(context, *model, {{BatchPart{ids}}});
  const auto width = static_cast<size_t>(model->shape().hidden_size);
  for (size_t t = 0; t < ids.size(); ++t) {
    const bool same =
        std::ranges::equal(std::span(before).subspan(t * width, width), std::span(after).subspan(t * width, width));
    EXPECT_EQ(same, t < 3 || t > 3 + 8) << t;
  }
}

// A window as long as the sequence changes nothing, and Mistral without a window is Llama.
TEST(MistralTest, WithoutWindowIsLlama) {
  const auto device = cpu_device();
  Context context(*device);
  const std::vector<int32_t> ids = random_tokens(20, 19, 1);
  const auto hidden = [&](const Json& config) {
    return hidden_of(context, *make_tiny(context, config, false), {{BatchPart{ids}}});
  };
  const std::vector<float> llama = hidden(tiny_config("llama"));
  EXPECT_EQ(hidden(with(tiny_config("mistral"), {{"sliding_window", 20}})), llama);
  EXPECT_EQ(hidden(with(tiny_config("mistral"), {{"sliding_window", Json()}})), llama);
  EXPECT_NE(hidden(tiny_config("mistral")), llama);
}

INSTANTIATE_TEST_SUITE_P(All, FamilyTest, testing::ValuesIn(cases()), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace hone::test
