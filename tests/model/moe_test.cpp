// Mixtures of experts: what the contract of families (family_test.cpp) does not say.
#include "model/moe/moe.h"

#include "core/io/safetensors.h"
#include "model/families/llama_moe.h"
#include "model/flops.h"
#include "model/io/known_shapes.h"
#include "model/io/upcycle.h"
#include "model/mlp.h"
#include "tests/model/chain_loss.h"

namespace hone::test {
namespace {

class MoeTest : public testing::Test {
 protected:
  std::unique_ptr<Model> tiny(const std::string& family, const JsonObject& changes = {}) {
    return make_tiny(context_, with(with(tiny_config(family), {{"num_experts_per_tok", 2}}), changes));
  }
  // The sums of a training pass over these sequences, each token with the weight 1 / 18.
  std::vector<double> sums_of(Model& model, std::span<const BatchPart> parts) {
    const ScratchScope scope(context_);
    TrainingPass pass(context_, model, Recompute::none);
    const Batch batch = pack_batch(context_, context_.scratch(), parts);
    const std::vector<float> weights(static_cast<size_t>(batch.num_tokens), 1 / 18.0f);
    const std::vector<int32_t> rows = all_rows(batch.num_tokens);
    const Tensor sums = context_.scratch().take(DType::f32, {model.num_aux_sums()});
    context_.zero(sums);
    pass.forward(batch, upload(context_, context_.scratch(), std::span<const int32_t>(rows)), {}, {},
                 {.weights = upload(context_, context_.scratch(), std::span<const float>(weights)), .sums = sums});
    const std::vector<float> out = download(context_, sums);
    return {out.begin(), out.end()};
  }

  std::unique_ptr<Device> device_ = cpu_device();
  Context context_{*device_};
  const std::vector<int32_t> first_ = random_tokens(11, 19, 1), second_ = random_tokens(7, 19, 2);
};

// A decoder whose layers have experts made by `make`.
std::unique_ptr<Model> model_of(const std::function<std::unique_ptr<Moe>(const std::string& block)>& make) {
  LlamaLikeConfig config;
  config.shape = {.vocab_size = 19,
                  .hidden_size = 12,
                  .num_layers = 2,
                  .num_attention_heads = 2,
                  .num_kv_heads = 2,
                  .head_dim = 6,
                  .intermediate_size = 10,
                  .max_positions = 40};
  config.init_std = 0.3;
  config.ropes = {{.dim = 6, .theta = 100}};
  config.layer_rope = {0, 0};
  config.windows = {0, 0};
  TransformerParts parts = llama_like_parts(config);
  for (size_t i = 0; i < 2; ++i) parts.layers[i].mlp.sublayer = make(concat("model.layers.", i, ".mlp"));
  return make_transformer(std::move(parts));
}

std::unique_ptr<Moe> deepseek(const std::string& block) {
  const MoeConfig config{
      .num_experts = 8,
      .num_choices = 2,
      .inner_size = 5,
      .num_layers = 2,
      .rule = {.scores = RouterScores::sigmoid, .normalize = true, .scale = 2.5f, .num_groups = 4, .top_groups = 4},
      .balance_coef = 0.1,
      .z_coef = 0.05};
  auto out =
      std::make_unique<Moe>(config, Moe::Names{.router = block + ".gate", .experts = block + ".experts"}, 12, 0.3);
  auto shared = std::make_unique<GatedMlp>();
  shared->gate_up =
      Linear({{block + ".shared_experts.gate_proj", 9}, {block + ".shared_experts.up_proj", 9}}, 12, false, 0.3);
  shared->down = Linear({{block + ".shared_experts.down_proj", 12}}, 9, false, 0.3);
  out->set_shared(std::move(shared));
  return out;
}

}  // namespace

// Sigmoid scores, groups, a scaling factor, and a shared expert without a gate.
TEST_F(MoeTest, GradientOfDeepSeeksRouting) {
  const auto model = model_of(deepseek);
  make_weights(context_, *model, true);
  const std::vector<BatchPart> parts{{first_}, {second_}};
  ChainLoss loss(context_, *model, parts);
  expect_chain_gradient(loss, *model);
}

TEST_F(MoeTest, SumsOfPackedSequencesAreThoseOfTheSequences) {
  const auto model = tiny("qwen3_moe");
  const std::vector<BatchPart> both{{first_}, {second_}};
  const std::vector<double> together = sums_of(*model, both), one = sums_of(*model, std::span(both).first(1)),
                            other = sums_of(*model, std::span(both).last(1));
  ASSERT_EQ(together.size(), 2u * (3 + 4));
  for (size_t i = 0; i < together.size(); ++i) EXPECT_NEAR(together[i], one[i] + other[i], 1e-5) << i;
}

TEST_F(MoeTest, ReportsTheLoad) {
  const auto model = tiny("olmoe");
  const std::vector<BatchPart> parts{{first_}, {second_}};
  const std::vector<double> sums = sums_of(*model, parts);
  const AuxReport report = model->end_step(context_, sums);
  const Metrics metrics = report.metrics();
  EXPECT_NEAR(report.loss, 0.1 * metrics.at("moe/balance_loss"), 1e-6);
  EXPECT_GE(metrics.at("moe/balance_loss"), 1.5);  // near k = 2, its value with even load
  EXPECT_GT(metrics.at("moe/z_loss"), 0);
  EXPECT_GT(metrics.at("moe/load_entropy"), 0);
  EXPECT_LE(metrics.at("moe/load_entropy"), 1);
  EXPECT_GE(metrics.at("moe/load_violation_max"), 0);
  EXPECT_LE(metrics.at("moe/load_min"), 1);
  EXPECT_EQ(metrics.at("moe/dropped"), 0);
  for (const int layer : {0, 1}) {
    double all = 0;
    for (int e = 0; e < 4; ++e) all += metrics.at(concat("moe/load/", layer, "/", e));
    EXPECT_NEAR(all, 1, 1e-5);
  }
}

// Only training drops choices, and only with a capacity.
TEST_F(MoeTest, CapacityDropsInTrainingOnly) {
  const auto model = tiny("olmoe", {{"expert_capacity_factor", 0.5}}), dropless = tiny("olmoe");
  const std::vector<BatchPart> parts{{first_}, {second_}};
  const Metrics metrics = model->end_step(context_, sums_of(*model, parts)).metrics();
  EXPECT_GT(metrics.at("moe/dropped"), 0.2);
  EXPECT_EQ(hidden_of(context_, *model, parts), hidden_of(context_, *dropless, parts));
}

TEST_F(MoeTest, BiasMovesTowardsEvenLoad) {
  const auto model = tiny("olmoe", {{"router_bias_update_rate", 0.01}, {"router_aux_loss_coef", 0.0}});
  const auto bias_of = [&](int64_t layer) {
    for (const Param* param : model->base_params())
      if (param->slices[0].name == concat("model.layers.", layer, ".mlp.gate.e_score_correction_bias"))
        return download(context_, param->value);
    return std::vector<float>();
  };
  const std::vector<BatchPart> parts{{first_}, {second_}};
  for (const Param* param : model->base_params())
    if (param->slices[0].name.ends_with("bias")) context_.zero(param->value);
  const std::vector<double> sums = sums_of(*model, parts);
  const AuxReport report = model->end_step(context_, sums);
  EXPECT_EQ(report.loss, 0);
  for (const int64_t layer : {0, 1}) {
    const std::vector<float> bias = bias_of(layer);
    ASSERT_EQ(bias.size(), 4u);
    double mean = 0;
    for (size_t e = 0; e < 4; ++e) mean += sums[static_cast<size_t>(layer) * 7 + 3 + e] / 4;
    for (size_t e = 0; e < 4; ++e) {
      const double missing = mean - sums[static_cast<size_t>(layer) * 7 + 3 + e];
      if (std::fabs(missing) < 1e-6) continue;
      EXPECT_NEAR(bias[e], missing > 0 ? 0.01 : -0.01, 1e-7) << layer << ", " << e;
    }
  }
}

// A decode pass of one token reads the matrices of its k experts and no others.
TEST_F(MoeTest, ReadsOnlyTheChosenExperts) {
  const auto model = tiny("qwen3_moe", {{"num_hidden_layers", 1}});
  const std::vector<BatchPart> parts{{std::span(first_).first(1)}};
  const std::vector<float> expected = hidden_of(context_, *model, parts);
  int64_t unread = 0;
  for (int64_t e = 0; e < 4; ++e) {
    std::vector<std::pair<float*, std::vector<float>>> kept;
    for (Param* param : model->base_params()) {
      int64_t row = 0;
      for (const Param::Slice& slice : param->slices) {
        if (slice.name.find(concat(".experts.", e, ".")) != std::string::npos) {
          const std::span<float> numbers = param->value.rows(row, slice.rows).as<float>();
          kept.emplace_back(numbers.data(), std::vector<float>(numbers.begin(), numbers.end()));
          std::ranges::fill(numbers, std::numeric_limits<float>::quiet_NaN());
        }
        row += slice.rows;
      }
    }
    ASSERT_EQ(kept.size(), 3u);
    unread += hidden_of(context_, *model, parts) == expected;
    for (const auto& [to, from] : kept) std::ranges::copy(from, to);
  }
  EXPECT_EQ(unread, 2) << "of 4 experts, 2 of which the token chooses";
}

TEST_F(MoeTest, ATokensBitsDoNotDependOnTheBatch) {
  const auto model = tiny("olmoe");
  const std::vector<float> alone = hidden_of(context_, *model, {{BatchPart{first_}}});
  std::vector<std::vector<int32_t>> others;
  for (uint32_t i = 0; i < 256; ++i) others.push_back(random_tokens(1 + i % 5, 19, 100 + i));
  for (const size_t count : {1u, 2u, 7u, 64u, 256u}) {
    std::vector<BatchPart> parts(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(count - 1));
    parts.push_back({first_});
    const std::vector<float> all = hidden_of(context_, *model, parts);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.end() - static_cast<std::ptrdiff_t>(alone.size()))) << count;
  }
}

// transformers 5 names of all experts of a layer in one tensor.
TEST_F(MoeTest, FusedFilesHaveTheSameWeights) {
  for (const std::string family : {"qwen3_moe", "mixtral"}) {
    const auto model = tiny(family);
    const TemporaryFolder folder;
    save_model(context_, *model, folder.path(), DType::f32);
    std::vector<NamedTensor> tensors;
    for (const Param* param : model->base_params()) {
      std::string name = param->slices[0].name;
      const size_t block = name.find(".block_sparse_moe.");
      if (block != std::string::npos) name.replace(block, std::strlen(".block_sparse_moe."), ".mlp.");
      const size_t expert = name.find(".experts.0.");
      if (expert == std::string::npos) {
        ASSERT_TRUE(param->slices.size() == 1 || name.find("self_attn") != std::string::npos) << name;
        int64_t row = 0;
        for (const Param::Slice& slice : param->slices) {
          const std::string own = param->slices.size() > 1 ? slice.name : name;
          tensors.push_back({own, param->value.rows(row, slice.rows)});
          row += slice.rows;
        }
        continue;
      }
      const bool down = param->slices.size() == 4;
      name = name.substr(0, expert) + (down ? ".experts.down_proj" : ".experts.gate_up_proj");
      tensors.push_back({name, param->value.view({4, param->shape[0] / 4, param->shape[1]})});
    }
    write_safetensors(folder.path() / "model.safetensors", tensors);
    const auto again = load_model(context_, folder.path());
    EXPECT_EQ(download(context_, again->flat_values()), download(context_, model->flat_values())) << family;
  }
}

TEST_F(MoeTest, UpcyclingKeepsTheDenseModelsNumbers) {
  for (const std::string family : {"llama", "mistral", "qwen3"}) {
    const auto dense = tiny(family);
    const TemporaryFolder from, to;
    save_model(context_, *dense, from.path(), DType::f32);
    upcycle_model(from.path(), to.path(), {.num_experts = 6, .num_choices = 2, .seed = 4});
    const auto mixture = load_model(context_, to.path());
    EXPECT_EQ(mixture->config().at("num_experts").as_int(), 6);
    EXPECT_GT(mixture->num_params(), dense->num_params());
    const std::vector<BatchPart> parts{{first_}, {second_}};
    const std::vector<float> expected = hidden_of(context_, *dense, parts), got = hidden_of(context_, *mixture, parts);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i], 1e-5 + 1e-5 * std::fabs(expected[i])) << family << ", " << i;
  }
}

TEST_F(MoeTest, OneExpertIsTheDenseModel) {
  const auto dense = tiny("qwen3");
  const auto mixture =
      tiny("qwen3_moe", {{"num_experts", 1}, {"num_experts_per_tok", 1}, {"moe_intermediate_size", 20}});
  const std::vector<Param*> from = dense->params();
  size_t next = 0;
  for (Param* to : mixture->params()) {
    if (to->slices[0].name.ends_with("mlp.gate.weight")) continue;
    ASSERT_LT(next, from.size());
    ASSERT_EQ(to->shape, from[next]->shape) << to->slices[0].name;
    context_.copy(to->value, from[next++]->value);
  }
  ASSERT_EQ(next, from.size());
  const std::vector<BatchPart> parts{{first_}, {second_}};
  EXPECT_EQ(hidden_of(context_, *mixture, parts), hidden_of(context_, *dense, parts));
  // The routers' load is even, whatever they learn.
  const std::vector<double> sums = sums_of(*mixture, parts);
  const AuxReport report = mixture->end_step(context_, sums);
  EXPECT_NEAR(report.metrics().at("moe/load_entropy"), 1, 1e-6);
  EXPECT_NEAR(report.metrics().at("moe/load_violation_max"), 0, 1e-6);
}

TEST_F(MoeTest, UpcyclingRefusesFamiliesWithoutExperts) {
  const TemporaryFolder from, to;
  save_model(context_, *tiny("gpt2"), from.path(), DType::f32);
  try {
    upcycle_model(from.path(), to.path(), {.num_experts = 4});
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(says(error.what(), "the family gpt2")) << error.what();
  }
}

// transformers gives all layers of these families one mask, whatever layer_types says.
TEST_F(MoeTest, AllLayersHaveTheSameWindow) {
  const JsonArray types{"full_attention", "sliding_attention"};
  for (const char* family : {"mixtral", "qwen3_moe"}) {
    const Json window = with(tiny_config(family), {{"use_sliding_window", true}, {"sliding_window", 2}});
    const std::vector<BatchPart> parts{{first_}};
    const auto hidden = [&](const Json& config) {
      return hidden_of(context_, *make_tiny(context_, config, false), parts);
    };
    EXPECT_EQ(hidden(with(window, {{"layer_types", types}})), hidden(window)) << family;
    EXPECT_NE(hidden(with(window, {{"sliding_window", Json()}})), hidden(window)) << family;
  }
}

TEST_F(MoeTest, UpcyclingRefusesWindowsInSomeLayers) {
  const TemporaryFolder from, to;
  const JsonObject windows{{"use_sliding_window", true}, {"sliding_window", 2}, {"max_window_layers", 1}};
  save_model(context_, *make_tiny(context_, with(tiny_config("qwen3"), windows), false), from.path(), DType::f32);
  try {
    upcycle_model(from.path(), to.path(), {.num_experts = 4});
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(says(error.what(), "some layers have a sliding window")) << error.what();
  }
}

TEST_F(MoeTest, CountsActiveParameters) {
  const auto model = make_model(with(tiny_config("qwen3_moe"), {{"num_experts_per_tok", 2}}), "test");
  const int64_t attention = 12 * (24 + 2 * 12) + 24 * 12, experts = 4 * 3 * 12 * 10, router = 4 * 12, head = 19 * 12;
  EXPECT_EQ(count_flops(*model, 1).active_params, 2 * (attention + experts / 2 + router) + head);
}

// Of the biases of experts, too, a token uses those of its choices.
TEST_F(MoeTest, BiasesOfUnchosenExpertsAreNotActive) {
  const auto model = make_model(with(tiny_config("gpt_oss"), {{"num_experts_per_tok", 2}}), "test");
  int found = 0;
  for (const Param* param : model->params()) {
    if (!says(param->slices.front().name, ".experts.")) continue;
    EXPECT_EQ(param->active_share, 0.5) << param->slices[0].name;
    ++found;
  }
  EXPECT_EQ(found, 2 * 4);  // layers; matrices and biases of gate_up and down
}

// As their model cards say: billions of parameters, all and active.
TEST_F(MoeTest, KnownShapesHaveTheirSizes) {
  for (const auto& [name, all, active] : {std::tuple{"olmoe-1b-7b", 6.92e9, 1.28e9},
                                          {"qwen3-30b-a3b", 30.5e9, 3.35e9},
                                          {"mixtral-8x7b", 46.7e9, 12.9e9},
                                          {"gpt-oss-20b", 20.9e9, 4.18e9},
                                          {"gpt-oss-120b", 116.8e9, 5.70e9},
                                          {"llama3-8b", 8.03e9, 8.03e9},
                                          {"qwen2.5-0.5b", 0.494e9, 0.494e9},
                                          {"qwen2.5-1.5b", 1.54e9, 1.54e9},
                                          {"qwen2.5-7b", 7.62e9, 7.62e9},
                                          {"qwen3-0.6b", 0.596e9, 0.596e9},
                                          {"smollm-135m", 0.1345e9, 0.1345e9}}) {
    const auto model = make_model(known_shape(name), name);
    double used = 0;
    for (const Param* param : model->params()) used += static_cast<double>(param->num_elements()) * param->active_share;
    EXPECT_NEAR(static_cast<double>(model->num_params()), all, 0.01 * all) << name;
    EXPECT_NEAR(used, active, 0.02 * active) << name;
  }
}

TEST_F(MoeTest, RefusesConfigsThatDoNotFit) {
  const auto message = [](const JsonObject& changes) {
    try {
      make_model(with(tiny_config("qwen3_moe"), changes), "config.json");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_TRUE(says(message({{"num_experts_per_tok", 5}}), "num_experts_per_tok is 5, more than the 4 experts"));
  EXPECT_TRUE(says(message({{"mlp_only_layers", JsonArray{2}}}), "mlp_only_layers contains 2"));
  EXPECT_TRUE(says(message({{"router_aux_loss_coef", -1.0}}), "router_aux_loss_coef is -1"));
  EXPECT_TRUE(says(message({{"router_aux_loss_scope", "step"}}), "sequence, micro_batch"));
}

}  // namespace hone::test
