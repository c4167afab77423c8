// GGUF files as models: import, export and direct loading. tests/model/io/gguf_family_test.cpp has every family.
#include "model/io/gguf_model.h"

#include <fstream>

#include "core/io/file.h"
#include "core/io/gguf/gguf_writer.h"
#include "core/io/safetensors.h"
#include "core/text/tokenizer/tokenizer.h"
#include "model/io/export_gguf.h"
#include "model/io/import.h"
#include "model/io/model_files.h"
#include "model/token_logprobs.h"
#include "tests/model/io/gguf_case.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

TEST_F(GgufModelTest, RopeScalingsAndWindowsSurvive) {
  const JsonObject cases[] = {
      {{"rope_scaling", JsonObject{{"rope_type", "linear"}, {"factor", 4.0}}}},
      {{"rope_scaling", JsonObject{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 10}}}},
      {{"rope_scaling",
        JsonObject{{"rope_type", "yarn"}, {"factor", 2.0}, {"attention_factor", 1.25}, {"beta_fast", 16.0}}}},
      {{"rope_theta", 500000.0},
       {"head_dim", 128},
       {"rope_scaling", JsonObject{{"rope_type", "llama3"},
                                   {"factor", 32.0},
                                   {"low_freq_factor", 1.0},
                                   {"high_freq_factor", 4.0},
                                   {"original_max_position_embeddings", 8192}}}}};
  for (const JsonObject& changes : cases) {
    fs::remove_all(folder_.path());
    fs::create_directories(folder_.path());
    const fs::path from = save(wide_config("llama", changes));
    export_gguf(from, path("m.gguf"), gguf_type_named("BF16"));
    const Json before = parse_json(read_file(from / "config.json"), "before").at("rope_scaling"),
               after = read_model_config(path("m.gguf")).at("rope_scaling");
    for (const auto& [key, value] : before.as_object()) {
      ASSERT_TRUE(after.find(key)) << key << after.dump();
      if (value.is_number())
        EXPECT_NEAR(after.at(key).as_double(), value.as_double(), 1e-6) << key;
      else
        EXPECT_EQ(after.at(key), value) << key;
    }
    const auto one = logprobs(from), two = logprobs(path("m.gguf"));
    for (size_t t = 1; t < one[0].logp.size(); ++t) EXPECT_NEAR(one[0].logp[t], two[0].logp[t], 1e-5);
  }
  fs::remove_all(folder_.path());
  fs::create_directories(folder_.path());
  export_gguf(save(wide_config("mistral", {{"sliding_window", 5}})), path("m.gguf"), gguf_type_named("F16"));
  EXPECT_EQ(read_model_config(path("m.gguf")).at("model_type").as_string(), "mistral");
  EXPECT_EQ(read_model_config(path("m.gguf")).at("sliding_window").as_int(), 5);
}

TEST_F(GgufModelTest, RowsOfQueriesAreInLlamaCppsOrder) {
  // One head of 6 rows: Hugging Face has the first elements of the pairs, then the second ones.
  const int64_t order[] = {0, 2, 4, 1, 3, 5};
  for (int64_t row = 0; row < 6; ++row) {
    EXPECT_EQ(interleaved_row(row, 6), order[row]);
    EXPECT_EQ(interleaved_row(row + 12, 6), order[row] + 12);
  }
  const fs::path from = save(wide_config("llama"));
  export_gguf(from, path("m.gguf"), gguf_type_named("BF16"));
  const GgufReader file(path("m.gguf"));
  const SafetensorsReader folder(from);
  const Tensor q = folder.at("model.layers.1.self_attn.q_proj.weight");
  const std::string_view stored = file.find_tensor("blk.1.attn_q.weight")->row_bytes(16 + 3);  // head 1, pair 1, second
  EXPECT_EQ(std::memcmp(stored.data(), static_cast<const char*>(q.data) + (16 + 8 + 1) * 64 * 2, 128), 0);
  EXPECT_EQ(std::string(file.find_tensor("blk.0.attn_norm.weight")->type->name), "F32");
  EXPECT_EQ(file.text("general.architecture", ""), "llama");
  EXPECT_EQ(file.integer("general.file_type", -1), 32);
}

TEST_F(GgufModelTest, RowsThatAreNoWholeBlocksBecomeF16) {
  export_gguf(save(wide_config("llama", {{"intermediate_size", 40}})), path("m.gguf"), gguf_type_named("Q8_0"));
  const GgufReader file(path("m.gguf"));
  EXPECT_EQ(std::string(file.find_tensor("blk.0.ffn_down.weight")->type->name), "F16");
  EXPECT_EQ(std::string(file.find_tensor("blk.0.ffn_up.weight")->type->name), "Q8_0");
}

TEST_F(GgufModelTest, WhatIsNotSupportedIsNamed) {
  const auto file_of = [&](const std::string& architecture, uint32_t type) {
    GgufWriter writer(architecture);
    const GgufType* stored = find_gguf_type(type);
    writer.add_tensor("token_embd.weight", *stored, {4, 256}, [stored] {
      return std::string(static_cast<size_t>(4 * 256 / stored->block_size * stored->block_bytes), '\0');
    });
    fs::remove(path("m.gguf"));
    writer.write(path("m.gguf"));
    return error_of([&] { load_model(context_, path("m.gguf")); });
  };
  EXPECT_NE(file_of("mamba", 0)
                .find("'general.architecture' is 'mamba'; supported: deepseek2, gemma2, gemma3, gpt-oss, gpt2, llama"),
            std::string::npos);
  EXPECT_NE(file_of("llama", 17)
                .find("tensor 'token_embd.weight' has the type IQ2_XS, which is not supported; "
                      "supported: F32, F16, BF16"),
            std::string::npos);
  EXPECT_NE(file_of("llama", 0).find("key 'llama.attention.head_count' is missing"), std::string::npos);
}

TEST_F(GgufModelTest, MissingAndSurplusTensorsAreListed) {
  export_gguf(save(wide_config("llama")), path("m.gguf"), gguf_type_named("F16"));
  std::string bytes = read_file(path("m.gguf"));
  bytes.replace(bytes.find("blk.1.ffn_up"), 12, "blk.1.ffn_xy");
  write_file_atomic(path("n.gguf"), bytes);
  const std::string found = error_of([&] { load_model(context_, path("n.gguf")); });
  EXPECT_NE(found.find("missing model.layers.1.mlp.up_proj.weight"), std::string::npos) << found;
  EXPECT_NE(found.find("surplus blk.1.ffn_xy.weight"), std::string::npos) << found;
}

TEST_F(GgufModelTest, ImportWritesAllOrNothing) {
  export_gguf(save(wide_config("llama")), path("m.gguf"), gguf_type_named("F16"));
  std::string bytes = read_file(path("m.gguf"));
  write_file_atomic(path("cut.gguf"), bytes.substr(0, bytes.size() - 100));
  EXPECT_NE(error_of([&] { import_gguf(path("cut.gguf"), path("out"), DType::bf16); }).find("the file is cut short"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(path("out")));
  fs::create_directories(path("full"));
  write_file_atomic(path("full") / "notes.txt", "mine");
  EXPECT_NE(error_of([&] { import_gguf(path("m.gguf"), path("full"), DType::bf16); }).find("full: already exists"),
            std::string::npos);
  EXPECT_EQ(read_file(path("full") / "notes.txt"), "mine");
  EXPECT_THROW(write_folder_atomic(path("half"),
                                   [](const fs::path& folder) {
                                     write_file_atomic(folder / "a", "b");
                                     fail("disk full");
                                   }),
               Error);
  EXPECT_FALSE(fs::exists(path("half")));
  EXPECT_FALSE(fs::exists(path("half.tmp")));
  EXPECT_NE(error_of([&] { import_gguf(path("full"), path("out"), DType::bf16); }).find("full: "), std::string::npos);
  fs::create_directories(path("empty"));
  import_gguf(path("m.gguf"), path("empty"), DType::f32);
  EXPECT_EQ(SafetensorsReader(path("empty")).at("model.norm.weight").dtype, DType::f32);
  EXPECT_NE(error_of([&] { import_gguf(path("empty"), path("out"), DType::bf16); }).find("a model folder already"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(path("empty.tmp")));
  EXPECT_NE(
      error_of([&] { export_gguf(path("empty"), path("m.gguf"), gguf_type_named("F16")); }).find("already exists"),
      std::string::npos);
}

TEST_F(GgufModelTest, AWrongModelPathSaysWhatItIs) {
  const auto said = [&](const fs::path& given) { return error_of([&] { load_model(context_, given); }); };
  const auto expect = [&](const fs::path& given, const std::string& words) {
    const std::string found = said(given);
    EXPECT_NE(found.find(words), std::string::npos) << given << ": " << found;
    EXPECT_TRUE(found.starts_with(given.string())) << found;
  };
  expect(path("nothing"), "there is no such folder");
  expect("HuggingFaceTB/SmolLM2-135M",
         "for a model of the Hugging Face hub, download it first (hf download HuggingFaceTB/");
  const auto put = [&](const fs::path& file, std::string_view bytes) {
    fs::create_directories(file.parent_path());
    write_file_atomic(file, bytes);
    return file;
  };
  expect(put(path("w") / "model.pt", "PK\x03\x04rest"), "but a PyTorch pickle; save it with save_pretrained");
  expect(put(path("w") / "model.onnx", "x"), "but an ONNX graph");
  expect(put(path("w") / "model.h5", "\x89HDF\r\n"), "but an HDF5 file of Keras");
  expect(put(path("w") / "ggml.bin", "tjggrest"), "but a GGML file, the format before GGUF");
  expect(put(path("w") / "weights.bin", "x"), "but weights as PyTorch and other programs write them");
  expect(put(path("w") / "recipe.toml", "x"), "but a TOML file");
  expect(put(path("s") / "model.safetensors", "x"), "but a safetensors file; give a Hugging Face folder");
  put(path("c") / "model.safetensors", "x");
  expect(put(path("c") / "config.json", "{}"),
         "but a config.json without weights; give its folder: " + path("c").string());
  put(path("t") / "config.json", wide_config("llama").dump());
  put(path("t") / "pytorch_model.bin", "x");
  expect(path("t"), "it has PyTorch pickles (pytorch_model.bin)");
  put(path("o") / "pytorch_model.bin", "x");
  expect(path("o"), "it has no config.json, but PyTorch pickles");
  put(path("x") / "model.onnx", "x");
  expect(path("x"), "it has no config.json, but an ONNX graph");
  put(path("g") / "m.gguf", "x");
  expect(path("g"), "it has a GGUF file, give that: " + (path("g") / "m.gguf").string());
  put(path("run") / "checkpoints" / "sft" / "step-5" / "config.json", "{}");
  expect(path("run"), "did you mean " + (path("run") / "checkpoints" / "sft" / "step-5").string());
  put(path("only") / "model.safetensors", "x");
  expect(path("only"), "only weights; add the model's config.json");
  expect(put(path("e") / "m.gguf", "x"), "does not begin with the letters GGUF");
}

TEST_F(GgufModelTest, ARealFileIsImportedAndLoadedAlike) {
  HONE_SHARED_OR_SKIP(file, "data/weights/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf");
  import_gguf(file, path("smollm2"), DType::bf16);
  const Json config = parse_json(read_file(path("smollm2") / "config.json"), "config.json");
  EXPECT_EQ(config.at("model_type").as_string(), "llama");
  EXPECT_EQ(config.at("rope_theta").as_double(), 100000);
  EXPECT_EQ(config.at("rms_norm_eps").as_double(), 1e-5);
  EXPECT_EQ(config.at("tie_word_embeddings").as_bool(), true);
  EXPECT_EQ(parse_json(read_file(path("smollm2") / "generation_config.json"), "g").dump(),
            R"({"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2})");
  const Tokenizer tokenizer = Tokenizer::load(path("smollm2"));
  EXPECT_FALSE(tokenizer.chat_template().empty());
  const std::vector<std::vector<int32_t>> text = {tokenizer.encode("The capital of France is Paris.")};
  const auto direct = compute_logprobs(context_, *load_model(context_, file), text, {});
  const auto imported = compute_logprobs(context_, *load_model(context_, path("smollm2")), text, {});
  EXPECT_EQ(direct[0].logp, imported[0].logp);
  EXPECT_GT(direct[0].logp[5], -1.5f);  // " Paris"
}

}  // namespace
}  // namespace hone::test
