// Model folders: what is read, and the messages for what is refused.
#include <fstream>

#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "core/text/tokenizer/tokenizer.h"
#include "kernels/elementwise/cast.h"
#include "model/io/model_files.h"
#include "tests/model/io/model_io_case.h"

namespace hone::test {
namespace {

TEST_F(ModelIoTest, FilesHoldHuggingFaceNamesAndShapes) {
  save("llama");
  const Store llama = read();
  EXPECT_EQ(llama.at("model.layers.1.self_attn.k_proj.weight").shape, (std::vector<int64_t>{12, 12}));
  EXPECT_EQ(llama.at("model.layers.0.self_attn.q_proj.weight").shape, (std::vector<int64_t>{24, 12}));
  EXPECT_EQ(llama.at("model.layers.0.mlp.up_proj.weight").shape, (std::vector<int64_t>{20, 12}));
  EXPECT_EQ(llama.at("lm_head.weight").shape, (std::vector<int64_t>{19, 12}));
  save("gpt2", {{"tie_word_embeddings", true}});
  const Store gpt2 = read();
  EXPECT_EQ(gpt2.at("transformer.h.0.attn.c_attn.weight").shape, (std::vector<int64_t>{12, 36}));
  EXPECT_EQ(gpt2.at("transformer.h.0.mlp.c_proj.weight").shape, (std::vector<int64_t>{48, 12}));
  EXPECT_EQ(gpt2.count("lm_head.weight"), 0u);
}

TEST_F(ModelIoTest, WhatDoesNotFitIsListed) {
  save("llama");
  Store store = read();
  store["model.layers.0.mlp.surplus.weight"] = store["model.norm.weight"];
  store.erase("model.layers.1.self_attn.v_proj.weight");
  store["model.norm.weight"].shape = {3, 4};
  write(store);
  const std::string message = refusal();
  EXPECT_PRED2(says, message, folder().string());
  EXPECT_PRED2(says, message, "missing model.layers.1.self_attn.v_proj.weight");
  EXPECT_PRED2(says, message, "surplus model.layers.0.mlp.surplus.weight");
  EXPECT_PRED2(says, message, "model.norm.weight is [3, 4], wants [12]");
}

TEST_F(ModelIoTest, NumbersThatAreNotFiniteAreRefusedWithTheirPlace) {
  const std::string name = "model.layers.1.self_attn.v_proj.weight";
  for (const float number : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    save("llama");
    Store store = read();
    for (const size_t index : {2 * 12 + 3, 5 * 12 + 1})
      std::memcpy(store.at(name).bytes.data() + index * sizeof(float), &number, sizeof(float));
    write(store);
    EXPECT_PRED2(says, refusal(), folder().string() + ": " + name + " is NaN or infinite at [2, 3]");
  }
  const auto model = save("llama");
  const auto largest = std::numeric_limits<float>::max();
  std::memcpy(model->params()[1]->value.data, &largest, sizeof(float));
  save_model(context_, *model, folder(), DType::f32);
  EXPECT_EQ(refusal(), "loaded");
}

// Without the ids transformers would take those of a published model: more than the vocabulary has.
TEST_F(ModelIoTest, ConfigHasTheIdsOfTokensOrSaysThatThereAreNone) {
  const auto model = save("phi3");
  const auto config = [&] { return parse_json(read_file(folder() / "config.json"), "config.json"); };
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    EXPECT_TRUE(config().find(key) && config().at(key).is_null()) << key;
  save_model(context_, *model, folder(), DType::f32, JsonObject{{"eos_token_id", 3}, {"pad_token_id", 4}});
  EXPECT_EQ(config().at("eos_token_id"), Json(3));
  EXPECT_EQ(config().at("pad_token_id"), Json(4));
  EXPECT_TRUE(config().at("bos_token_id").is_null());
  // Random weights have no generation_config.json, but a tokenizer.
  const TemporaryFolder other;
  write_file_atomic(other.path() / "tokenizer_config.json", R"({"char_ords": [97, 98], "model_max_length": 40})");
  const Tokenizer tokenizer = Tokenizer::load(other.path());
  ASSERT_TRUE(tokenizer.pad() && tokenizer.pad() != tokenizer.eos());
  const Json generation = with_stop_ids(JsonObject{}, tokenizer);
  EXPECT_EQ(generation.at("pad_token_id"), Json(int64_t{*tokenizer.pad()}));
  EXPECT_EQ(generation.at("eos_token_id"), Json(int64_t{*tokenizer.eos()}));
  EXPECT_FALSE(with_stop_ids(JsonObject{{"top_p", 0.5}}, tokenizer).find("pad_token_id"));
}

// Files of DeepSeek-V3 have layers that predict further ahead, after the model's last one. A config.json without them
// leaves them out.
TEST_F(ModelIoTest, LayersOfMultiTokenPredictionThatConfigLacksAreNotRead) {
  const auto model = save("deepseek_v3");
  edit_config({{"num_nextn_predict_layers", 0}});
  Store store = read();
  EXPECT_EQ(store.at("model.layers.0.self_attn.kv_b_proj.weight").shape, (std::vector<int64_t>{4 * (6 + 5), 8}));
  EXPECT_EQ(store.at("model.layers.0.self_attn.kv_a_proj_with_mqa.weight").shape, (std::vector<int64_t>{12, 12}));
  EXPECT_EQ(store.at("model.layers.1.mlp.gate.e_score_correction_bias").shape, (std::vector<int64_t>{4}));
  store["model.layers.2.eh_proj.weight"] = store["model.norm.weight"];
  store["model.layers.2.self_attn.o_proj.weight"] = store["model.layers.1.self_attn.o_proj.weight"];
  write(store);
  EXPECT_EQ(download(context_, load_model(context_, folder())->flat_values()),
            download(context_, model->flat_values()));
  store["model.layers.1.eh_proj.weight"] = store["model.norm.weight"];
  write(store);
  EXPECT_PRED2(says, refusal(), "surplus model.layers.1.eh_proj.weight");
  edit_config({{"num_nextn_predict_layers", 1}});
  EXPECT_PRED2(says, refusal(), "missing model.layers.2.enorm.weight");
}

// In bf16 the bias of a router's choice would change which experts a token gets.
TEST_F(ModelIoTest, ABiasOfTheChoiceIsF32InModelsAndFilesOfAnyDtype) {
  save("deepseek_v3");
  Store store = read();
  const std::string name = "model.layers.1.mlp.gate.e_score_correction_bias";
  const std::vector<float> numbers{17.000977f, -0.1000001f, 3.1415927f, 1e-3f};
  std::memcpy(store.at(name).bytes.data(), numbers.data(), numbers.size() * sizeof(float));
  write(store);
  const auto model = load_model(context_, folder(), {.dtype = DType::bf16});
  EXPECT_EQ(model->num_params(), load_model(context_, folder())->num_params());
  save_model(context_, *model, folder(), DType::bf16);
  const Store saved = read();
  EXPECT_EQ(saved.at(name).dtype, DType::f32);
  EXPECT_EQ(saved.at(name).bytes, store.at(name).bytes);
  EXPECT_EQ(saved.at("model.norm.weight").dtype, DType::bf16);
  const auto again = load_model(context_, folder(), {.dtype = DType::bf16});
  const Tensor values = model->flat_values(), loaded = again->flat_values();
  ASSERT_EQ(loaded.bytes(), values.bytes());
  EXPECT_EQ(std::memcmp(loaded.data, values.data, values.bytes()), 0);
}

// transformers writes modules of width 0: the shared experts of n_shared_experts = 0.
TEST_F(ModelIoTest, EmptyTensorsAreNoSurplus) {
  const auto model = save("deepseek_v3", {{"n_shared_experts", 0}});
  Store store = read();
  const std::string shared = "model.layers.1.mlp.shared_experts.";
  store[shared + "gate_proj.weight"] = {.bytes = {}, .dtype = DType::f32, .shape = {0, 12}};
  store[shared + "down_proj.weight"] = {.bytes = {}, .dtype = DType::f32, .shape = {12, 0}};
  write(store);
  EXPECT_EQ(download(context_, load_model(context_, folder())->flat_values()),
            download(context_, model->flat_values()));
  store[shared + "gate_proj.weight"] = store["model.layers.1.self_attn.o_proj.weight"];
  write(store);
  EXPECT_PRED2(says, refusal(), "surplus " + shared + "gate_proj.weight");
  save("qwen2_moe", {{"shared_expert_intermediate_size", 0}});
  store = read();
  store["model.layers.0.mlp.shared_expert_gate.weight"] = {
      .bytes = std::vector<char>(48), .dtype = DType::f32, .shape = {1, 12}};
  write(store);
  EXPECT_EQ(refusal(), "loaded");
}

TEST_F(ModelIoTest, AHugeConfigIsRefusedBeforeMemoryIsAllocated) {
  save("llama");
  edit_config({{"vocab_size", 16000000}, {"hidden_size", 8000000}});
  EXPECT_PRED2(says, refusal(), "wants [16000000, 8000000]");
}

TEST_F(ModelIoTest, TiedHeadInTheFileMustBeTheEmbedding) {
  const auto model = save("llama", {{"tie_word_embeddings", true}});
  Store store = read();
  ASSERT_EQ(store.count("lm_head.weight"), 0u);
  store["lm_head.weight"] = store["model.embed_tokens.weight"];
  write(store);
  EXPECT_EQ(download(context_, load_model(context_, folder())->flat_values()),
            download(context_, model->flat_values()));
  store["lm_head.weight"].bytes[2] ^= 1;
  write(store);
  EXPECT_PRED2(says, refusal(), "lm_head.weight differs from model.embed_tokens.weight");
}

// As the files of DeepSeek-V3, which repeat embedding and lm_head in the layers of multi-token prediction.
TEST_F(ModelIoTest, LayersOfMultiTokenPrediction) {
  for (const bool tied : {false, true}) {
    SCOPED_TRACE(tied);
    const auto model = save("qwen3", {{"num_nextn_predict_layers", 2}, {"tie_word_embeddings", tied}});
    const std::string head = tied ? "model.embed_tokens.weight" : "lm_head.weight";
    Store store = read();
    for (const char* layer : {"model.layers.2.", "model.layers.3."}) {
      for (const char* name : {"enorm", "hnorm", "shared_head.norm", "input_layernorm", "self_attn.q_proj"})
        EXPECT_TRUE(store.contains(concat(layer, name, ".weight"))) << name;
      EXPECT_EQ(store.at(concat(layer, "eh_proj.weight")).shape, (std::vector<int64_t>{12, 24}));
      EXPECT_EQ(store.at(concat(layer, "embed_tokens.weight")).bytes, store.at("model.embed_tokens.weight").bytes);
      EXPECT_EQ(store.at(concat(layer, "shared_head.head.weight")).bytes, store.at(head).bytes);
    }
    const std::vector<float> values = download(context_, model->flat_values());
    EXPECT_EQ(download(context_, load_model(context_, folder())->flat_values()), values);
    store["model.layers.3.shared_head.head.weight"].bytes[2] ^= 1;
    write(store);
    EXPECT_PRED2(says, refusal(), "model.layers.3.shared_head.head.weight differs from " + head);
    for (const char* layer : {"model.layers.2.", "model.layers.3."})
      for (const char* name : {"embed_tokens", "shared_head.head"}) store.erase(concat(layer, name, ".weight"));
    write(store);
    EXPECT_EQ(download(context_, load_model(context_, folder())->flat_values()), values);
    store.erase("model.layers.3.eh_proj.weight");
    write(store);
    EXPECT_PRED2(says, refusal(), "missing model.layers.3.eh_proj.weight");
  }
}

// transformers saves config.json with the layers and the files without.
TEST_F(ModelIoTest, LayersOfMultiTokenPredictionThatTheFilesLack) {
  save("qwen3");
  const size_t plain = load_model(context_, folder())->params().size();
  edit_config({{"num_nextn_predict_layers", 1}});
  EXPECT_EQ(load_model(context_, folder())->params().size(), plain);
  // Layers that config.json does not ask for are not read.
  save("qwen3", {{"num_nextn_predict_layers", 1}});
  edit_config({{"num_nextn_predict_layers", 0}});
  EXPECT_EQ(load_model(context_, folder())->params().size(), plain);
}

TEST_F(ModelIoTest, ShardsAreOneModel) {
  const auto model = save("qwen3");
  write(read(), 2048);
  ASSERT_TRUE(std::filesystem::exists(folder() / "model.safetensors.index.json"));
  EXPECT_EQ(download(context_, load_model(context_, folder())->flat_values()),
            download(context_, model->flat_values()));
}

TEST_F(ModelIoTest, BaseModelNamesAndOldBuffersAreRead) {
  const auto model = save("gpt2", {{"tie_word_embeddings", true}});
  Store bare;
  for (auto& [name, stored] : read()) bare[name.substr(std::string("transformer.").size())] = stored;
  bare["h.0.attn.bias"] = {std::vector<char>(16), DType::f32, {1, 1, 2, 2}};
  bare["h.1.attn.masked_bias"] = {std::vector<char>(4), DType::f32, {1}};
  write(bare);
  EXPECT_EQ(download(context_, load_model(context_, folder())->flat_values()),
            download(context_, model->flat_values()));
}

// The weights are the file's numbers cast to f32.
TEST_F(ModelIoTest, OtherPrecisionsAreCast) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f64}) {
    save("llama");
    Store store = read();
    for (auto& [name, stored] : store) {
      const Stored single = stored;
      stored.dtype = dtype;
      stored.bytes.resize(single.bytes.size() / size_of(DType::f32) * size_of(dtype));
      cast(context_, view(stored), view(single));
    }
    write(store);
    const auto model = load_model(context_, folder());
    std::vector<float> expected(12);
    cast(context_, host_view(std::span(expected)), view(store["model.norm.weight"]));
    const std::vector<Param*> params = model->params();
    ASSERT_EQ(params[params.size() - 2]->slices[0].name, "model.norm.weight");
    EXPECT_EQ(download(context_, params[params.size() - 2]->value), expected) << name_of(dtype);
    EXPECT_EQ(model->dtype(), DType::f32);
  }
}

TEST_F(ModelIoTest, AValueHeadGoesWithTheModel) {
  const auto model = save("llama");
  EXPECT_TRUE(load_value_head(context_, folder()).empty());
  std::vector<float> head(static_cast<size_t>(model->shape().hidden_size), 0.5f);
  head[0] = -2;
  save_model(context_, *model, folder(), DType::f32, JsonObject{}, head);
  EXPECT_EQ(load_value_head(context_, folder()), head);
  EXPECT_EQ(refusal(), "loaded");
  head.pop_back();
  EXPECT_THROW(save_model(context_, *model, folder(), DType::f32, JsonObject{}, head), Error);
}

TEST_F(ModelIoTest, IntegersAreNoWeights) {
  save("llama");
  Store store = read();
  store["model.norm.weight"].dtype = DType::i32;
  write(store);
  EXPECT_PRED2(says, refusal(), "model.norm.weight holds i32, wants f32, bf16, f16 or f64");
}

TEST_F(ModelIoTest, SomethingElseThanAModelFolder) {
  EXPECT_PRED2(says, refusal(), "not a model folder: it has no config.json");
  std::ofstream(folder() / "config.json") << "{}";
  EXPECT_PRED2(says, refusal(), "no model_type; known model families: deepseek_v2");
  std::ofstream(folder() / "config.json") << R"({"model_type": "lama"})";
  EXPECT_PRED2(says, refusal(), "unknown model_type 'lama'; did you mean 'llama'?; known: deepseek_v2, ");
  std::ofstream(folder() / "config.json") << "{";
  EXPECT_PRED2(says, refusal(), "config.json");
  EXPECT_THROW(load_model(context_, folder() / "absent"), Error);
}

TEST_F(ModelIoTest, WhatAFamilyDoesNotDoIsRefusedByName) {
  const auto llama = [](const JsonObject& changes) { return refusal_of(with(tiny_config("llama"), changes)); };
  EXPECT_PRED2(
      says, llama({{"hidden_act", "tanh"}}),
      "test.json: hidden_act 'tanh' is not supported; supported: silu, swish, gelu, gelu_new, gelu_pytorch_tanh, "
      "gelu_python, gelu_python_tanh, gelu_accurate, relu, relu2");
  EXPECT_PRED2(says, llama({{"rope_scaling", JsonObject{{"rope_type", "ntk"}}}}),
               "rope_scaling.rope_type 'ntk' is not supported; supported: default, ");
  EXPECT_PRED2(says, llama({{"partial_rotary_factor", 0.5}}), "partial_rotary_factor");
  EXPECT_PRED2(says, llama({{"quantization_config", JsonObject{}}}), "quantized");
  EXPECT_PRED2(says, llama({{"hidden_size", "wide"}}), "test.json: hidden_size");
  EXPECT_PRED2(says, llama({{"hidden_size", 0}}), "hidden_size is 0, wants 1 to");
  EXPECT_PRED2(says, llama({{"vocab_size", Json()}}), "no vocab_size");
  EXPECT_PRED2(says, llama({{"num_hidden_layers", 1000000}}), "num_hidden_layers is 1000000, wants 1 to 4096");
  EXPECT_PRED2(says, llama({{"rope_theta", -1.0}}), "rope_theta is -1, wants a positive number");
  EXPECT_PRED2(says, llama({{"rope_scaling", 4}}), "rope_scaling is an integer, wants an object");
  EXPECT_PRED2(says, llama({{"rope_scaling", JsonObject{{"type", "linear"}, {"factor", 0.5}}}}),
               "rope_scaling.factor is 0.5, wants 1 or more");
  EXPECT_PRED2(says, llama({{"num_key_value_heads", 3}}),
               "num_attention_heads 4 is not a multiple of num_key_value_heads 3");
  EXPECT_PRED2(says, llama({{"head_dim", 7}}), "head_dim is 7");
  EXPECT_PRED2(says, refusal_of(with(tiny_config("gpt2"), {{"activation_function", "tanh"}})),
               "activation_function 'tanh'");
  EXPECT_PRED2(says, refusal_of(with(tiny_config("gpt2"), {{"scale_attn_by_inverse_layer_idx", true}})),
               "scale_attn_by_inverse_layer_idx = true");
  EXPECT_PRED2(
      says,
      refusal_of(with(tiny_config("mistral"), {{"layer_types", JsonArray{"chunked_attention", "full_attention"}}})),
      "chunked_attention");
}

// The same model with positions and dtype as transformers 4 and 5 write them.
TEST_F(ModelIoTest, BothSpellingsOfPositions) {
  const JsonObject scaling{{"rope_type", "llama3"},
                           {"factor", 8.0},
                           {"low_freq_factor", 1.0},
                           {"high_freq_factor", 4.0},
                           {"original_max_position_embeddings", 16}};
  Json five_parameters = scaling;
  five_parameters.set("rope_theta", 500.0);
  const auto four = make_tiny(
      context_,
      with(tiny_config("llama"), {{"rope_theta", 500.0}, {"rope_scaling", scaling}, {"torch_dtype", "float32"}}));
  Json five_config = with(tiny_config("llama"), {{"rope_parameters", five_parameters}, {"dtype", "float32"}});
  std::erase_if(five_config.object_ref(), [](const auto& member) { return member.first == "rope_theta"; });
  const auto five = make_tiny(context_, five_config);
  const std::vector<int32_t> ids = random_tokens(30, 19, 1);
  const std::vector<BatchPart> parts{{ids}};
  EXPECT_EQ(hidden_of(context_, *four, parts), hidden_of(context_, *five, parts));
  EXPECT_NE(hidden_of(context_, *four, parts), hidden_of(context_, *make_tiny(context_, tiny_config("llama")), parts));
  // Each is saved in both spellings, and without the dtype that save_model adds.
  for (Model* model : {four.get(), five.get()}) {
    const Json config = model->config();
    EXPECT_EQ(config.at("rope_theta").as_double(), 500);
    EXPECT_EQ(config.at("rope_scaling").at("rope_type").as_string(), "llama3");
    EXPECT_EQ(config.at("rope_parameters").at("rope_theta").as_double(), 500);
    EXPECT_EQ(config.find("torch_dtype"), nullptr);
  }
}

TEST_F(ModelIoTest, SavedConfigSaysEverythingThatWasRead) {
  save("llama", {{"eos_token_id", 3}, {"bos_token_id", Json()}});
  const Json config = parse_json(read_file(folder() / "config.json"), "config.json");
  EXPECT_EQ(config.at("architectures").as_array()[0].as_string(), "LlamaForCausalLM");
  EXPECT_EQ(config.at("hidden_act").as_string(), "silu");
  EXPECT_EQ(config.at("torch_dtype").as_string(), "float32");
  EXPECT_EQ(config.at("dtype").as_string(), "float32");
  const Json generation = parse_json(read_file(folder() / "generation_config.json"), "generation_config.json");
  EXPECT_EQ(generation.at("eos_token_id").as_int(), 3);
  EXPECT_EQ(generation.find("bos_token_id"), nullptr);
}

// Up to max_position_embeddings, hone's limit, dynamic scaling changes nothing.
TEST_F(ModelIoTest, DynamicPositionsAreThePlainOnes) {
  const auto dynamic = make_tiny(
      context_, with(tiny_config("llama"), {{"rope_scaling", JsonObject{{"type", "dynamic"}, {"factor", 2.0}}}}),
      false);
  const std::vector<int32_t> ids = random_tokens(40, 19, 1);
  const std::vector<BatchPart> parts{{ids}};
  EXPECT_EQ(hidden_of(context_, *dynamic, parts),
            hidden_of(context_, *make_tiny(context_, tiny_config("llama"), false), parts));
  EXPECT_EQ(dynamic->config().at("rope_scaling").at("rope_type").as_string(), "dynamic");
}

TEST_F(ModelIoTest, TokenizerOfAnotherModel) {
  const auto model = make_tiny(context_, tiny_config("llama"), false);
  const TemporaryFolder other;
  const auto characters = [&](int count) {
    JsonArray ords;
    for (int i = 0; i < count; ++i) ords.emplace_back('a' + i);
    write_file_atomic(other.path() / "tokenizer_config.json",
                      Json(JsonObject{{"char_ords", ords}, {"model_max_length", 40}}).dump());
    return Tokenizer::load(other.path());
  };
  EXPECT_NO_THROW(check_tokenizer(*model, characters(10)));
  try {
    check_tokenizer(*model, characters(25));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_PRED2(says, error.what(), "the tokenizer does not belong to the model");
  }
}

TEST_F(ModelIoTest, TokensOutsideTheVocabulary) {
  const auto model = make_tiny(context_, tiny_config("llama"), false);
  EXPECT_NO_THROW(check_tokens(*model, std::vector<int32_t>{0, 18}, "prompt"));
  EXPECT_THROW(check_tokens(*model, std::vector<int32_t>{0, 19}, "prompt"), Error);
  EXPECT_THROW(check_tokens(*model, std::vector<int32_t>{-1}, "prompt"), Error);
}

}  // namespace
}  // namespace hone::test
