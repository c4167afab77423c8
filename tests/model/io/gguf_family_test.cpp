// Every family in GGUF: export, import and direct loading keep tensors and settings, and what llama.cpp computes in
// another way is an error.
#include "core/io/file.h"
#include "core/io/gguf/gguf_writer.h"
#include "model/io/gguf_model.h"
#include "tests/model/io/gguf_case.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

// Settings that llama.cpp's architecture of the family wants, and tensors of every kind.
JsonObject settings_of(const std::string& family) {
  if (family == "gemma2") return {{"sliding_window", 5}, {"query_pre_attn_scalar", 16}};
  if (family == "gemma3_text") return {{"sliding_window", 5}, {"query_pre_attn_scalar", 16}, {"num_hidden_layers", 6}};
  if (family == "smollm3") return {{"num_hidden_layers", 4}};
  if (family == "olmoe") return {{"num_key_value_heads", 4}};
  if (family == "qwen3_moe") return {{"norm_topk_prob", true}, {"moe_intermediate_size", 32}};
  if (family == "gpt_oss") return {{"sliding_window", 5}};
  if (family == "deepseek_v3")
    return {{"rms_norm_eps", 1e-6},
            {"topk_group", 1},
            {"num_experts_per_tok", 2},
            {"rope_scaling", JsonObject{{"rope_type", "yarn"},
                                        {"factor", 4.0},
                                        {"original_max_position_embeddings", 10},
                                        {"mscale", 0.7},
                                        {"mscale_all_dim", 0.7}}}};
  if (family == "deepseek_v2") return {{"rms_norm_eps", 1e-6}, {"routed_scaling_factor", 1.5}};
  return {};
}

Json family_config(const std::string& family, const JsonObject& changes = {}) {
  Json out = with(wide_config(family, settings_of(family)), changes);
  if (family.starts_with("gemma")) out.set("tie_word_embeddings", true);
  return out;
}

class GgufFamily : public GgufModelTest, public testing::WithParamInterface<std::tuple<const char*, bool>> {
 protected:
  // Equal bits, but for Gemma's norms: the file has them plus 1 in f32, so numbers near 0 lose their last bits.
  void expect_same_numbers(std::string_view family, const fs::path& a, const fs::path& b) {
    if (!family.starts_with("gemma")) return expect_same_tensors(a, b);
    const SafetensorsReader first(a), second(b);
    ASSERT_EQ(first.names(), second.names());
    for (const std::string& name : first.names()) {
      const float tolerance = name.ends_with("norm.weight") ? 6e-8f : 0;
      const Tensor x = first.at(name), y = second.at(name);
      ASSERT_TRUE(std::ranges::equal(x.dims(), y.dims())) << name;
      for (int64_t i = 0; i < x.size(); ++i) ASSERT_NEAR(number_at(x, i), number_at(y, i), tolerance) << name;
    }
  }

 private:
  static float number_at(const Tensor& tensor, int64_t i) {
    return tensor.dtype == DType::f32 ? tensor.ptr<float>()[i] : to_float(tensor.ptr<bf16>()[i]);
  }
};

TEST_P(GgufFamily, ExportAndImportKeepTensorsAndConfig) {
  const auto [family, tied] = GetParam();
  const fs::path from = save(family_config(family, {{"tie_word_embeddings", tied}}));
  export_gguf(from, path("m.gguf"), gguf_type_named("BF16"));
  import_gguf(path("m.gguf"), path("again"), DType::bf16);
  expect_same_numbers(family, from, path("again"));

  // Every member of the first config.json that says something is in the second.
  const Json before = parse_json(read_file(from / "config.json"), "before"),
             after = parse_json(read_file(path("again") / "config.json"), "after");
  for (const auto& [key, said] : after.as_object()) {
    // A file does not say how a model was trained, whether a mistral has no window, and settings that do not count.
    constexpr std::string_view not_written[] = {
        "model_type",  "architectures", "initializer_range", "router_aux_loss_coef",
        "topk_method", "n_group",       "topk_group"};
    if (std::ranges::find(not_written, key) != std::end(not_written)) continue;
    const Json* had = before.find(key);
    if (said.is_null() || !had) continue;
    if (said.is_number() && had->is_number()) {
      EXPECT_NEAR(said.as_double(), had->as_double(), 1e-6 * std::abs(had->as_double())) << key;
    } else if (key != "rope_scaling" && key != "rope_parameters") {
      EXPECT_EQ(said, *had) << key;
    }
  }
  if (std::string_view(family) == "deepseek_v3") {
    EXPECT_EQ(after.at("n_group"), before.at("n_group"));
    EXPECT_EQ(after.at("topk_group"), before.at("topk_group"));
  }
  const std::string expected = std::string(family) == "mistral" ? "llama" : family;  // without a window they are one
  EXPECT_EQ(after.at("model_type").as_string(), expected);
  const auto one = logprobs(from), two = logprobs(path("again"));
  for (size_t t = 1; t < one[0].logp.size(); ++t) EXPECT_NEAR(one[0].logp[t], two[0].logp[t], 1e-5);
}

TEST_P(GgufFamily, F32KeepsEveryNumber) {
  const auto [family, tied] = GetParam();
  const auto model = make_tiny(context_, family_config(family, {{"tie_word_embeddings", tied}}), false);
  save_model(context_, *model, path("model"), DType::f32);
  export_gguf(path("model"), path("m.gguf"), gguf_type_named("F32"));
  import_gguf(path("m.gguf"), path("again"), DType::f32);
  expect_same_numbers(family, path("model"), path("again"));
}

TEST_P(GgufFamily, AFileAndItsImportedFolderHaveTheSameLogprobsToTheBit) {
  const auto [family, tied] = GetParam();
  const fs::path from = save(family_config(family, {{"tie_word_embeddings", tied}}));
  for (const char* type : {"F16", "Q8_0"}) {
    const fs::path file = path((std::string(type) + ".gguf").c_str()), folder = path(type);
    export_gguf(from, file, gguf_type_named(type));
    import_gguf(file, folder, DType::bf16);
    const auto direct = logprobs(file), imported = logprobs(folder), original = logprobs(from);
    for (size_t i = 0; i < direct.size(); ++i) {
      EXPECT_EQ(direct[i].logp, imported[i].logp);
      for (size_t t = 1; t < direct[i].logp.size(); ++t)
        EXPECT_NEAR(direct[i].logp[t], original[i].logp[t], std::string_view(type) == "F16" ? 0.01 : 0.5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, GgufFamily,
    testing::Combine(testing::Values("llama", "mistral", "mixtral", "qwen2", "qwen3", "gpt2", "gemma2", "gemma3_text",
                                     "olmo2", "smollm3", "phi3", "qwen3_moe", "qwen2_moe", "olmoe", "gpt_oss",
                                     "deepseek_v2", "deepseek_v3"),
                     testing::Bool()),
    [](const auto& given) { return std::string(std::get<0>(given.param)) + (std::get<1>(given.param) ? "Tied" : ""); });

// The families that can be exported, and the names in the documents.
TEST_F(GgufModelTest, EveryFamilyButTheComposedOneHasAnArchitecture) {
  for (const std::string& family : families().names()) {
    bool found = false;
    for (const std::string& name : gguf_architectures().names())
      found = found || std::ranges::count(gguf_architectures().at(name).model_types, family) > 0;
    EXPECT_EQ(found, family != "hone_decoder") << family;
  }
}

struct Refused {
  const char* family;
  JsonObject changes;
  const char* words;
};

TEST_F(GgufModelTest, WhatLlamaCppComputesInAnotherWayIsRefused) {
  const Refused cases[] = {
      {"gemma2", {{"query_pre_attn_scalar", 20}}, "query_pre_attn_scalar is 20"},
      {"gemma2", {{"final_logit_softcapping", nullptr}}, "final_logit_softcapping is missing"},
      {"gemma3_text", {{"sliding_window_pattern", 2}}, "layer 1 has no sliding window"},
      {"gemma3_text", {{"final_logit_softcapping", 30.0}}, "has no soft-cap of logits"},
      {"gemma3_text", {{"hidden_activation", "relu"}}, "hidden_activation 'relu' has no key"},
      {"qwen3_moe", {{"norm_topk_prob", false}}, "norm_topk_prob is false"},
      {"olmoe", {{"clip_qkv", 0.5}}, "clip_qkv is 0.5"},
      {"qwen3_moe", {{"mlp_only_layers", JsonArray{Json(int64_t{0})}}}, "mlp_only_layers is [0]"},
      {"qwen2_moe", {{"shared_expert_intermediate_size", 0}}, "shared_expert_intermediate_size is 0"},
      {"olmoe", {{"num_key_value_heads", 2}}, "num_key_value_heads is 2"},
      {"olmo2", {{"head_dim", 8}}, "4 heads of 8 (head_dim) are not hidden_size 64"},
      {"gpt_oss", {{"swiglu_limit", 6.0}}, "swiglu_limit is 6"},
      {"smollm3", {{"no_rope_layer_interval", 2}}, "no_rope_layers of config.json has another pattern"},
      {"deepseek_v2", {{"topk_method", "group_limited_greedy"}}, "topk_method is 'group_limited_greedy'"},
      {"deepseek_v3", {{"n_shared_experts", 0}}, "n_shared_experts is 0"},
      {"deepseek_v2", {{"q_lora_rank", nullptr}}, "q_lora_rank is null"},
      {"deepseek_v3",
       {{"rope_scaling", JsonObject{{"rope_type", "yarn"}, {"factor", 4.0}, {"mscale", 1.0}, {"mscale_all_dim", 0.5}}}},
       "they must be equal"},
      {"qwen2",
       {{"rope_scaling", JsonObject{{"rope_type", "llama3"},
                                    {"factor", 8.0},
                                    {"low_freq_factor", 1.0},
                                    {"high_freq_factor", 4.0},
                                    {"original_max_position_embeddings", 20}}}},
       "qwen2 has no RoPE scaling llama3"},
  };
  for (const Refused& one : cases) {
    fs::remove_all(path("model"));
    const fs::path from = save(family_config(one.family, one.changes));
    const std::string found = error_of([&] { export_gguf(from, path("m.gguf"), gguf_type_named("F16")); });
    EXPECT_NE(found.find(one.words), std::string::npos) << one.family << ": " << found;
    EXPECT_FALSE(fs::exists(path("m.gguf")));
  }
}

TEST_F(GgufModelTest, LongropeAndPartialRotationSurvive) {
  JsonArray small, large;
  for (int i = 0; i < 6; ++i) {
    small.emplace_back(1.0 + 0.125 * i);
    large.emplace_back(2.0 + 0.25 * i);
  }
  const fs::path from = save(family_config(
      "phi3", {{"partial_rotary_factor", 0.75},
               {"original_max_position_embeddings", 20},
               {"sliding_window", 5},
               {"rope_scaling", JsonObject{{"type", "longrope"}, {"short_factor", small}, {"long_factor", large}}}}));
  export_gguf(from, path("m.gguf"), gguf_type_named("BF16"));
  const Json config = read_model_config(path("m.gguf"));
  EXPECT_EQ(config.at("partial_rotary_factor").as_double(), 0.75);
  EXPECT_EQ(config.at("original_max_position_embeddings").as_int(), 20);
  EXPECT_EQ(config.at("sliding_window").as_int(), 5);
  EXPECT_EQ(config.at("rope_scaling").at("long_factor"), Json(large));
  EXPECT_EQ(config.at("rope_scaling").at("short_factor"), Json(small));
  EXPECT_EQ(logprobs(from)[0].logp, logprobs(path("m.gguf"))[0].logp);
}

TEST_F(GgufModelTest, TensorsAreNamedAndShapedAsInLlamaCpp) {
  const auto shape = [&](const GgufReader& file, const char* name) {
    const GgufTensor* tensor = file.find_tensor(name);
    return tensor ? tensor->shape : std::vector<int64_t>{};
  };
  using Shape = std::vector<int64_t>;
  export_gguf(save(family_config("qwen2_moe")), path("q.gguf"), gguf_type_named("BF16"));
  const GgufReader qwen(path("q.gguf"));
  EXPECT_EQ(shape(qwen, "blk.0.ffn_gate_exps.weight"), (Shape{4, 10, 64}));
  EXPECT_EQ(shape(qwen, "blk.1.ffn_down_exps.weight"), (Shape{4, 64, 10}));
  EXPECT_EQ(shape(qwen, "blk.0.ffn_gate_inp.weight"), (Shape{4, 64}));
  EXPECT_EQ(std::string(qwen.find_tensor("blk.0.ffn_gate_inp.weight")->type->name), "F32");
  EXPECT_EQ(shape(qwen, "blk.0.ffn_gate_inp_shexp.weight"), (Shape{64}));
  EXPECT_EQ(qwen.integer("qwen2moe.expert_shared_feed_forward_length", 0), 14);

  fs::remove_all(path("model"));
  export_gguf(save(family_config("gpt_oss")), path("g.gguf"), gguf_type_named("BF16"));
  const GgufReader oss(path("g.gguf"));
  EXPECT_EQ(shape(oss, "blk.0.attn_sinks.weight"), (Shape{4}));
  EXPECT_EQ(shape(oss, "blk.0.ffn_up_exps.bias"), (Shape{4, 96}));
  EXPECT_EQ(std::string(oss.find_tensor("blk.0.ffn_up_exps.bias")->type->name), "F32");
  EXPECT_EQ(shape(oss, "blk.0.ffn_gate_inp.bias"), (Shape{4}));

  fs::remove_all(path("model"));
  const fs::path from = save(family_config("deepseek_v3"));
  export_gguf(from, path("d.gguf"), gguf_type_named("F32"));
  const GgufReader deepseek(path("d.gguf"));
  EXPECT_EQ(shape(deepseek, "blk.0.attn_k_b.weight"), (Shape{4, 8, 6}));
  EXPECT_EQ(shape(deepseek, "blk.0.attn_v_b.weight"), (Shape{4, 5, 8}));
  EXPECT_EQ(shape(deepseek, "blk.1.exp_probs_b.bias"), (Shape{4}));
  EXPECT_EQ(deepseek.integer("deepseek2.attention.key_length", 0), 12);
  EXPECT_EQ(deepseek.integer("deepseek2.attention.key_length_mla", 0), 10);
  EXPECT_EQ(deepseek.integer("deepseek2.leading_dense_block_count", 0), 1);
  // Head 2, latent 3, dimension 5 of its keys: row 2 * 11 + 5 of kv_b_proj.
  const SafetensorsReader folder(from);
  const Tensor whole = folder.at("model.layers.0.self_attn.kv_b_proj.weight");
  float number = 0;
  std::memcpy(&number, deepseek.find_tensor("blk.0.attn_k_b.weight")->row_bytes(2 * 8 + 3).data() + 5 * 4, 4);
  EXPECT_EQ(number, to_float(whole.row<bf16>(2 * 11 + 5)[3]));
}

// Files of llama.cpp before attn_k_b and attn_v_b: the matrix as Hugging Face has it, and the sizes of one head.
TEST_F(GgufModelTest, OlderFilesOfDeepseekAreRead) {
  const fs::path from = save(family_config("deepseek_v3"));
  export_gguf(from, path("new.gguf"), gguf_type_named("F32"));
  const GgufReader made(path("new.gguf"));
  GgufWriter older("deepseek2");
  for (const auto& [key, value] : made.metadata().as_object()) {
    if (key == "general.architecture" || key.ends_with("_mla")) continue;
    if (key == "deepseek2.attention.key_length" || key == "deepseek2.attention.value_length")
      older.set_u32(key, made.integer(key + "_mla", 0));
    else if (value.is_string())
      older.set_text(key, value.as_string());
    else if (value.is_bool())
      older.set_flag(key, value.as_bool());
    else if (value.is_int())
      older.set_u32(key, value.as_int());
    else
      older.set_f32(key, value.as_double());
  }
  const GgufType& f32 = gguf_type_named("F32");
  const SafetensorsReader folder(from);
  for (const GgufTensor& tensor : made.tensors()) {
    if (tensor.name.ends_with(".attn_v_b.weight")) continue;
    if (!tensor.name.ends_with(".attn_k_b.weight")) {
      older.add_tensor(tensor.name, *tensor.type, tensor.shape, [&tensor] { return std::string(tensor.bytes); });
      continue;
    }
    const std::string layer = tensor.name.substr(4, 1);
    const Tensor whole = folder.at("model.layers." + layer + ".self_attn.kv_b_proj.weight");
    older.add_tensor("blk." + layer + ".attn_kv_b.weight", f32, {whole.dim(0), whole.dim(1)}, [whole, &f32] {
      std::vector<float> numbers;
      for (const bf16 number : whole.as<bf16>()) numbers.push_back(to_float(number));
      return encode_gguf(f32, numbers);
    });
  }
  older.write(path("old.gguf"));
  import_gguf(path("old.gguf"), path("again"), DType::bf16);
  expect_same_tensors(from, path("again"));
  EXPECT_EQ(read_model_config(path("old.gguf")), read_model_config(path("new.gguf")));
}

// A few bytes of a file must not make a model of millions of parts.
TEST_F(GgufModelTest, CountsWithoutTensorsAreRefused) {
  export_gguf(save(family_config("qwen3_moe")), path("m.gguf"), gguf_type_named("F16"));
  const auto error_with = [&](const std::string& key, char low, char high) {
    std::string bytes = read_file(path("m.gguf"));
    const size_t value = bytes.find(key) + key.size() + 4;  // after the type
    bytes[value] = low;
    bytes[value + 1] = high;
    write_file_atomic(path("n.gguf"), bytes);
    return error_of([&] { load_model(context_, path("n.gguf")); });
  };
  EXPECT_NE(error_with("qwen3moe.block_count", 0, 16).find("is 4096; the file has 27 tensors"), std::string::npos)
      << error_with("qwen3moe.block_count", 0, 16);
  EXPECT_NE(error_with("qwen3moe.block_count", 3, 0).find("2 layers have a tensor ffn_down_exps.weight, 3 need it"),
            std::string::npos);
  EXPECT_NE(error_with("qwen3moe.expert_count", 0, 16).find("is 4096; tensor 'blk.0.ffn_down_exps.weight' has 4"),
            std::string::npos);
}

TEST_F(GgufModelTest, TensorsThatDoNotFitEachOtherAreNamed) {
  const auto error_with = [&](const char* architecture, const char* name, std::vector<int64_t> shape) {
    GgufWriter writer(architecture);
    const GgufType& f32 = gguf_type_named("F32");
    const auto add = [&](const char* of, std::vector<int64_t> dims) {
      int64_t size = 4;
      for (const int64_t dim : dims) size *= dim;
      writer.add_tensor(of, f32, std::move(dims), [size] { return std::string(static_cast<size_t>(size), '\0'); });
    };
    add("token_embd.weight", {4, 8});
    add(name, std::move(shape));
    fs::remove(path("m.gguf"));
    writer.write(path("m.gguf"));
    return error_of([&] { GgufModel model(path("m.gguf")); });
  };
  EXPECT_NE(error_with("qwen3moe", "blk.0.ffn_up_exps.weight", {8, 8}).find("it must have 3 dims"), std::string::npos);
  EXPECT_NE(error_with("qwen3moe", "blk.0.ffn_up_exps.weight", {5000, 1, 1}).find("at most 4096 experts"),
            std::string::npos);
  EXPECT_NE(error_with("deepseek2", "blk.0.attn_k_b.weight", {2, 3, 4}).find("'blk.0.attn_v_b.weight' is missing"),
            std::string::npos);
}

}  // namespace
}  // namespace hone::test
