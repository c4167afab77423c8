#include "model/io/adapter.h"

#include <cstring>
#include <fstream>

#include "core/io/file.h"
#include "model/io/model_folder.h"
#include "model/lora.h"
#include "tests/model/golden.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

const fs::path golden = source_folder() / "tests" / "golden";

class AdapterTest : public testing::Test {
 protected:
  AdapterTest() : device_(cpu_device()), context_(*device_) {}
  // A copy of PEFT's folder of tests/golden with its base model inside.
  fs::path copy_of(const std::string& name) {
    const fs::path out = folder_.path() / name;
    fs::create_directories(out);
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
      fs::copy_file(golden / name / file, out / file);
    const SafetensorsReader results(golden / name / "results.safetensors");
    save_model(context_, *golden_model(context_, parse_json(results.metadata().at("config"), name), DType::f32),
               out / "base", DType::f32);
    return out;
  }
  std::string refusal(const fs::path& folder, const LoadOptions& options = {}) {
    try {
      load_model(context_, folder, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  std::unique_ptr<Device> device_;
  Context context_;
  TemporaryFolder folder_;
};

constexpr const char* adapters[] = {"lora_llama", "lora_qwen3", "lora_gpt2"};

TEST_F(AdapterTest, LogitsAndGradientsAreThoseOfPeft) {
  for (const char* name : adapters) {
    const fs::path folder = copy_of(name);
    const Golden::Errors errors =
        Golden(context_, std::string(name) + "/results", DType::f32, load_model(context_, folder, {.gradients = true}))
            .errors();
    EXPECT_LE(errors.logits, 1e-4) << name;
    EXPECT_LE(errors.gradients, 1e-4) << name << ": " << errors.worst;
    EXPECT_FALSE(errors.worst.empty());
  }
}

TEST_F(AdapterTest, SavesWhatPeftSaved) {
  for (const char* name : adapters) {
    const fs::path folder = copy_of(name), again = folder_.path() / "again" / name;
    save_adapter(context_, *load_model(context_, folder), again, DType::f32);
    const SafetensorsReader theirs(folder / "adapter_model.safetensors"), ours(again / "adapter_model.safetensors");
    ASSERT_EQ(ours.names(), theirs.names());
    for (const std::string& tensor : theirs.names()) {
      const Tensor a = ours.at(tensor), b = theirs.at(tensor);
      ASSERT_TRUE(std::ranges::equal(a.dims(), b.dims())) << tensor;
      EXPECT_EQ(std::memcmp(a.data, b.data, b.bytes()), 0) << tensor;
    }
    const Json mine = parse_json(read_file(again / "adapter_config.json"), "ours"),
               peft = parse_json(read_file(folder / "adapter_config.json"), "peft");
    for (const auto& [key, value] : mine.as_object()) {
      if (key == "base_model_name_or_path" || key == "target_modules") continue;
      ASSERT_TRUE(peft.find(key)) << key;
      EXPECT_EQ(value.dump(), peft.at(key).dump()) << key;
    }
    EXPECT_TRUE(fs::path(mine.at("base_model_name_or_path").as_string()).is_absolute());
    EXPECT_EQ(download(context_, load_model(context_, again)->flat_values()),
              download(context_, load_model(context_, folder)->flat_values()));
  }
}

TEST_F(AdapterTest, MergesAsPeftDoes) {
  for (const char* name : adapters) {
    const fs::path folder = copy_of(name), merged = folder_.path() / "merged" / name;
    export_model(folder, merged, {});
    EXPECT_FALSE(is_adapter(merged));
    const SafetensorsReader file(merged), results(golden / name / "results.safetensors");
    int compared = 0;
    for (const std::string& key : results.names()) {
      if (!key.starts_with("merged.")) continue;
      const Tensor expected = results.at(key), actual = file.at(key.substr(7));
      ASSERT_TRUE(std::ranges::equal(actual.dims(), expected.dims())) << key;
      for (int64_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(actual.ptr<float>()[i], expected.ptr<float>()[i], 1e-5) << key;
      ++compared;
    }
    EXPECT_GT(compared, 0);
  }
}

// PEFT with transformers 5 takes every target module called gate_proj, up_proj or down_proj for an expert's. The form
// of adapter_config.json was checked with PEFT: it computes the logits of hone.
TEST_F(AdapterTest, MatricesBesideExpertsAreTargetsAsParameters) {
  const auto texts = [](const Json& config, const char* key) {
    std::vector<std::string> out;
    for (const Json& one : config.at(key).as_array()) out.push_back(one.as_string());
    return out;
  };
  for (const std::string family : {"deepseek_v3", "qwen2_moe", "mixtral"}) {
    const fs::path base = folder_.path() / family, folder = folder_.path() / (family + "_adapter");
    save_model(context_, *make_tiny(context_, tiny_config(family), false), base, DType::f32);
    const LoraConfig lora{.r = 3, .lora_alpha = 6, .lora_dropout = 0.1, .target_modules = {"all-linear"}};
    const auto model = load_model(context_, base, {.lora = lora, .seed = 5});
    save_adapter(context_, *model, folder, DType::f32);
    const Json config = parse_json(read_file(folder / "adapter_config.json"), "adapter_config.json");
    const std::vector<std::string> modules = texts(config, "target_modules");
    const auto targets = [&](const char* name) { return std::ranges::find(modules, name) != modules.end(); };
    EXPECT_TRUE(targets("o_proj") && targets(family == "mixtral" ? "experts.3.w1" : "experts.3.gate_proj")) << family;
    EXPECT_FALSE(targets("gate_proj") || targets("down_proj")) << family;
    EXPECT_EQ(config.at("lora_dropout"), Json(0.0));
    using Names = std::vector<std::string>;
    if (family == "deepseek_v3")
      EXPECT_EQ(texts(config, "target_parameters"),
                (Names{"mlp.down_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight",
                       "shared_experts.down_proj.weight", "shared_experts.gate_proj.weight",
                       "shared_experts.up_proj.weight"}));
    if (family == "qwen2_moe") {
      EXPECT_EQ(texts(config, "target_parameters"),
                (Names{"mlp.experts.down_proj", "mlp.experts.gate_up_proj", "shared_expert.down_proj.weight",
                       "shared_expert.gate_proj.weight", "shared_expert.up_proj.weight"}));
      EXPECT_EQ(config.at("rank_pattern").dump(), R"({".*\\.gate_up_proj": 6})");
      EXPECT_EQ(config.at("alpha_pattern").dump(), R"({".*\\.gate_up_proj": 12})");
    }
    const auto again = load_model(context_, folder);
    EXPECT_EQ(again->lora()->config.target_modules, model->lora()->config.target_modules);
    EXPECT_EQ(download(context_, again->flat_values()), download(context_, model->flat_values()));
  }
}

TEST_F(AdapterTest, WhatPeftCannotDoWithExpertsIsSaidOnce) {
  const auto warning = [&](const std::string& family, const LoraConfig& lora) {
    const auto model = make_tiny(context_, tiny_config(family), false, lora);
    model->lora()->base = "base";
    testing::internal::CaptureStderr();
    for (int i = 0; i < 2; ++i) save_adapter(context_, *model, folder_.path() / "out", DType::f32);
    return testing::internal::GetCapturedStderr();
  };
  const auto once = [](const std::string& text, const std::string& words) {
    return text.find(words) != std::string::npos && text.find(words) == text.rfind(words);
  };
  EXPECT_PRED2(once, warning("gpt_oss", {.r = 2, .target_modules = {"all-linear"}}),
               "PEFT does not know adapters of single experts of gpt_oss");
  EXPECT_PRED2(once, warning("olmoe", {.r = 2, .target_modules = {"gate_proj"}}), "both gate and up");
  EXPECT_PRED2(once, warning("olmoe", {.r = 2, .use_rslora = true, .target_modules = {"all-linear"}}), "use_rslora");
  EXPECT_EQ(warning("olmoe", {.r = 2, .target_modules = {"q_proj"}}), "");
}

// The generation config and the value head are exported too.
TEST_F(AdapterTest, AnExportedModelHasItsStopsAndItsValueHead) {
  const fs::path base = folder_.path() / "whole", out = folder_.path() / "exported";
  const auto model = load_model(context_, copy_of("lora_llama"));
  merge_lora(context_, *model);
  std::vector<float> head(static_cast<size_t>(model->shape().hidden_size));
  for (size_t i = 0; i < head.size(); ++i) head[i] = static_cast<float>(i) - 3;
  save_model(context_, *model, base, DType::f32, JsonObject{{"eos_token_id", JsonArray{2, 7}}}, head);
  export_model(base, out, {});
  EXPECT_EQ(read_file(out / "generation_config.json"), read_file(base / "generation_config.json"));
  EXPECT_NE(read_file(out / "generation_config.json").find('7'), std::string::npos);
  EXPECT_EQ(load_value_head(context_, out), head);
}

TEST_F(AdapterTest, OneOfOtherKeysIsRefused) {
  const fs::path folder = copy_of("lora_llama");
  const LoraConfig same{
      .r = 4, .lora_alpha = 6, .lora_dropout = 0.25, .use_rslora = true, .target_modules = {"all-linear"}};
  const auto model = load_model(context_, folder, {.lora = same});
  EXPECT_EQ(model->lora()->config.lora_dropout, 0.25);  // a training setting, not a property of the weights
  LoraConfig other = same;
  other.r = 8;
  EXPECT_PRED2(says, refusal(folder, {.lora = other}), "the adapter has r 4, lora_alpha 6");
  other = same, other.target_modules = {"q_proj"};
  EXPECT_PRED2(says, refusal(folder, {.lora = other}), "the settings need");
}

TEST_F(AdapterTest, ABaseGetsNewAdaptersOfTheSeed) {
  const fs::path base = copy_of("lora_llama") / "base";
  const auto values = [&](uint64_t seed) {
    return download(context_,
                    load_model(context_, base, {.gradients = true, .lora = {.r = 2}, .seed = seed})->flat_values());
  };
  EXPECT_EQ(values(3), values(3));
  EXPECT_NE(values(3), values(4));
  const auto model = load_model(context_, base, {.lora = {.r = 2}});
  EXPECT_EQ(model->lora()->base, base);
  EXPECT_EQ(model->lora()->config.target_modules, (std::vector<std::string>{"q_proj", "v_proj"}));
}

// An adapter trained with the long factors of longrope has them wherever it is loaded.
TEST_F(AdapterTest, RemembersTheLongFactors) {
  const fs::path base = folder_.path() / "long_base", adapter = folder_.path() / "long_adapter";
  const Json config = with(
      tiny_config("phi3"),
      {{"original_max_position_embeddings", 10},
       {"rope_scaling",
        JsonObject{{"type", "longrope"}, {"short_factor", JsonArray{1, 1, 1}}, {"long_factor", JsonArray{3, 4, 5}}}}});
  save_model(context_, *make_tiny(context_, config, false), base, DType::f32);
  const auto trained = load_changed_model(context_, base, {.lora = {.r = 2}}, {{"use_long_rope", true}});
  EXPECT_EQ(trained->shape().max_positions, 40);
  save_adapter(context_, *trained, adapter, DType::f32);
  EXPECT_EQ(load_model(context_, adapter)->shape().max_positions, 40);
  EXPECT_EQ(read_model_folder(adapter)->shape().max_positions, 40);
  const auto plain = load_model(context_, base, {.lora = {.r = 2}});
  EXPECT_EQ(plain->shape().max_positions, 10);
  const std::string problem = error_of([&] { AdapterValues(context_, *plain, adapter); });
  EXPECT_PRED2(says, problem, "adapter_config.json: use_long_rope is true");
  save_adapter(context_, *plain, adapter, DType::f32);
  EXPECT_EQ(load_model(context_, adapter)->shape().max_positions, 10);
}

TEST_F(AdapterTest, DamageIsNamed) {
  const fs::path folder = copy_of("lora_llama");
  const auto rewrite = [&](const char* key, Json value) {
    Json config = parse_json(read_file(folder / "adapter_config.json"), "config");
    config.set(key, std::move(value));
    write_file_atomic(folder / "adapter_config.json", config.dump());
  };
  rewrite("r", 2);
  EXPECT_PRED2(says, refusal(folder), "lora_A.weight is [4, 24], wants [2, 24]");
  rewrite("r", 4);
  rewrite("target_modules", JsonArray{"q_proj"});
  EXPECT_PRED2(says, refusal(folder), "surplus base_model.model.model.layers.0");
  rewrite("target_modules", JsonArray{"q_proj", "absent_proj"});
  EXPECT_PRED2(says, refusal(folder), "no module is called 'absent_proj'");
  rewrite("base_model_name_or_path", "/nowhere/at/all");
  EXPECT_PRED2(says, refusal(folder), "base_model_name_or_path is /nowhere/at/all, which does not exist");
  fs::copy(golden / "lora_gpt2", folder / "nested");
  rewrite("base_model_name_or_path", "nested");
  EXPECT_PRED2(says, refusal(folder), "an adapter itself; merge it first");
  std::ofstream(folder / "adapter_config.json") << "{";
  EXPECT_PRED2(says, refusal(folder), "adapter_config.json");
}

TEST_F(AdapterTest, ValuesBesideTheModelsOwn) {
  const fs::path folder = copy_of("lora_llama");
  const auto model = load_model(context_, folder);
  const std::vector<float> before = download(context_, model->flat_values());
  const AdapterValues values(context_, *model, folder);
  EXPECT_EQ(download(context_, model->flat_values()), before);
  const std::vector<Param*> params = model->adapter_params();
  ASSERT_EQ(values.values().size(), params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    EXPECT_NE(values.values()[i].data, params[i]->value.data);
    EXPECT_TRUE(std::ranges::equal(values.values()[i].as<float>(), params[i]->value.as<float>()));
  }
}

TEST_F(AdapterTest, AValueHeadGoesWithIt) {
  const fs::path folder = copy_of("lora_llama"), out = folder_.path() / "rewarder";
  std::vector<float> head(24);
  for (size_t i = 0; i < head.size(); ++i) head[i] = 0.25f * static_cast<float>(i);
  const auto model = load_model(context_, folder);
  save_adapter(context_, *model, out, DType::f32, head);
  EXPECT_EQ(load_value_head(context_, out), head);
  EXPECT_TRUE(load_value_head(context_, folder).empty());
  EXPECT_EQ(download(context_, load_model(context_, out)->flat_values()), download(context_, model->flat_values()));
  const Json config = parse_json(read_file(out / "adapter_config.json"), "config");
  EXPECT_EQ(config.at("task_type").as_string(), "SEQ_CLS");
  EXPECT_EQ(config.at("modules_to_save").dump(), R"(["classifier", "score"])");
}

TEST_F(AdapterTest, AModelWithAdaptersIsNotSavedAsOneWithout) {
  const auto model = load_model(context_, copy_of("lora_llama"));
  EXPECT_THROW(save_model(context_, *model, folder_.path() / "out", DType::f32), Error);
}

TEST_F(AdapterTest, TheTokenizerIsItsOwnOrTheBases) {
  const fs::path folder = copy_of("lora_llama");
  EXPECT_EQ(tokenizer_folder(folder), folder / "base");
  std::ofstream(folder / "tokenizer_config.json") << R"({"char_ords": [48, 49]})";
  EXPECT_EQ(tokenizer_folder(folder), folder);
  EXPECT_EQ(tokenizer_folder(folder / "base"), folder / "base");
}

}  // namespace
}  // namespace hone::test
