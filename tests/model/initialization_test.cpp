#include "model/initialization.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/config/config.h"
#include "tests/model/tiny_model.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

class InitializationTest : public ::testing::Test {
 protected:
  // A model that is wide enough for statistics.
  std::unique_ptr<Model> make(const InitConfig& config, const std::string& family = "llama", uint64_t seed = 3) {
    Json shape = with(tiny_config(family), {{"vocab_size", 400},
                                            {"hidden_size", 96},
                                            {"intermediate_size", 160},
                                            {"num_hidden_layers", 2},
                                            {"num_attention_heads", 4},
                                            {"num_key_value_heads", 2},
                                            {"head_dim", 24},
                                            {"initializer_range", 0.05},
                                            {"n_embd", 96}});
    std::unique_ptr<Model> model = make_model(shape, "test");
    model->allocate(context_, DType::f32, false);
    initialize(context_, *model, config, seed);
    return model;
  }
  struct Spread {
    double std = 0, largest = 0;
  };
  // Of the tensor with this name.
  static Spread spread(Model& model, const std::string& name) {
    for (const Param* param : model.params()) {
      int64_t row = 0;
      for (const Param::Slice& slice : param->slices) {
        if (slice.name == name) {
          Spread out;
          const std::span<const float> values = param->value.rows(row, slice.rows).as<float>();
          for (const float x : values) {
            out.std += double{x} * x / static_cast<double>(values.size());
            out.largest = std::max(out.largest, std::fabs(double{x}));
          }
          out.std = std::sqrt(out.std);
          return out;
        }
        row += slice.rows;
      }
    }
    fail("no tensor ", name);
  }
  static std::vector<float> all(const Model& model) {
    const std::span<const float> values = model.flat_values().as<float>();
    return {values.begin(), values.end()};
  }

  std::unique_ptr<Device> device_ = cpu_device();
  Context context_{*device_};
};

const std::string layer = "model.layers.0.";

TEST_F(InitializationTest, TheDefaultIsWhatModelsHadBefore) {
  for (const char* family : {"llama", "gpt2", "qwen3"}) {
    const std::unique_ptr<Model> now = make({}, family), before = make({.std = "fan_in"}, family);
    before->initialize(context_, 3);
    EXPECT_EQ(all(*now), all(*before)) << family;
  }
}

TEST_F(InitializationTest, StandardDeviationsFollowTheShapes) {
  const std::unique_ptr<Model> in = make({.std = "fan_in"}), avg = make({.std = "fan_avg"});
  EXPECT_NEAR(spread(*in, layer + "self_attn.k_proj.weight").std, 1 / std::sqrt(96.0), 2e-3);
  EXPECT_NEAR(spread(*in, layer + "mlp.down_proj.weight").std, 1 / std::sqrt(160.0), 2e-3);
  EXPECT_NEAR(spread(*in, "lm_head.weight").std, 1 / std::sqrt(96.0), 2e-3);
  EXPECT_NEAR(spread(*in, "model.embed_tokens.weight").std, 0.05, 1e-3);
  EXPECT_NEAR(spread(*avg, layer + "self_attn.q_proj.weight").std, std::sqrt(2 / 192.0), 3e-3);
  EXPECT_NEAR(spread(*avg, layer + "self_attn.k_proj.weight").std, std::sqrt(2 / 144.0), 3e-3);
  EXPECT_NEAR(spread(*avg, layer + "mlp.gate_proj.weight").std, std::sqrt(2 / 256.0), 3e-3);
  EXPECT_NEAR(spread(*in, "model.norm.weight").std, 1, 1e-9);
}

TEST_F(InitializationTest, ATruncatedNormalDrawsOutliersAgainAndKeepsTheRest) {
  const std::unique_ptr<Model> normal = make({}), cut = make({.distribution = "truncated_normal", .bound = 2});
  const std::vector<float> a = all(*normal), b = all(*cut);
  int64_t redrawn = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::fabs(a[i]) <= 0.1f || a[i] == 1) {
      ASSERT_EQ(a[i], b[i]) << i;
    } else {
      ++redrawn;
      ASSERT_LE(std::fabs(b[i]), 0.1f) << i;
    }
  }
  EXPECT_NEAR(static_cast<double>(redrawn) / static_cast<double>(a.size()), 0.0455, 0.005);  // outside of 2 sigma
  EXPECT_NEAR(spread(*cut, layer + "mlp.up_proj.weight").std, 0.05 * 0.8796, 1e-3);          // of the cut normal
}

TEST_F(InitializationTest, DepthScalesWhatWritesToTheResidualStream) {
  const std::unique_ptr<Model> plain = make({}), scaled = make({.depth_scaled = true});
  for (const char* name : {"self_attn.o_proj.weight", "mlp.down_proj.weight"})
    EXPECT_NEAR(spread(*scaled, layer + name).std, spread(*plain, layer + name).std / 2, 1e-6) << name;  // 2 layers
  EXPECT_EQ(spread(*scaled, layer + "mlp.up_proj.weight").std, spread(*plain, layer + "mlp.up_proj.weight").std);
  // GPT-2's are scaled by the family; they are not scaled twice.
  EXPECT_EQ(all(*make({}, "gpt2")), all(*make({.depth_scaled = true}, "gpt2")));
  const std::string out = "transformer.h.0.mlp.c_proj.weight";
  EXPECT_NEAR(spread(*make({.std = "fan_in", .depth_scaled = true}, "gpt2"), out).std,
              spread(*make({.std = "fan_in"}, "gpt2"), out).std / 2, 1e-6);
}

TEST_F(InitializationTest, SeedsAndThreadsDecideAlone) {
  const InitConfig config{.distribution = "truncated_normal", .std = "fan_in"};
  EXPECT_EQ(all(*make(config)), all(*make(config)));
  EXPECT_NE(all(*make(config)), all(*make(config, "llama", 4)));
}

TEST_F(InitializationTest, KeysThatCannotBeAreRefused) {
  for (const auto& [toml, message] :
       {std::pair{"distribution = \"uniform\"", "recipe.toml:1:16: distribution must be normal or truncated_normal"},
        {"bound = 0.0", "recipe.toml:1:9: bound must be in [0.1, 100]"},
        {"std = \"fan_out\"", "recipe.toml:1:7: std must be fixed, fan_in or fan_avg"}})
    EXPECT_EQ(error_of([text = toml] { Config::from_text(text, "recipe.toml").as<InitConfig>(); }), message);
}

}  // namespace
}  // namespace hone::test
