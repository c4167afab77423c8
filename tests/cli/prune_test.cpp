// hone prune: the folder it writes, prune.json, and that the removed parts set to zero in the full model give the same
// log-probs.
#include <algorithm>

#include "model/io/param_slices.h"
#include "tests/cli/command_case.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

class PruneCommandTest : public CommandCase {
 protected:
  PruneCommandTest() {
    text_ = write("text.jsonl",
                  "{\"text\": \"the cat sat on the mat and the dog sat on the log\"}\n"
                  "{\"ids\": [5, 6, 7, 8, 9, 10, 200, 201]}\n"
                  "{\"prompt\": \"the dog\", \"completion\": \" and so on\"}\n"
                  "{\"messages\": [{\"role\": \"user\", \"content\": \"so\"}, {\"role\": \"assistant\", \"content\": "
                  "\"on\"}]}\n");
  }
  // The folder of a model with 4 layers and 6 heads that share 3 KV heads.
  std::string full_model(const char* family, DType dtype) {
    const fs::path to = model_folder();
    const std::unique_ptr<Model> model = make_model(JsonObject{{"model_type", family},
                                                               {"hidden_size", 24},
                                                               {"intermediate_size", 301},
                                                               {"num_hidden_layers", 4},
                                                               {"num_attention_heads", 6},
                                                               {"num_key_value_heads", 3},
                                                               {"head_dim", 10},
                                                               {"vocab_size", 264},
                                                               {"max_position_embeddings", 64},
                                                               {"rms_norm_eps", 1e-5},
                                                               {"initializer_range", 0.2},
                                                               {"tie_word_embeddings", true},
                                                               {"n_embd", 24},
                                                               {"n_layer", 4},
                                                               {"n_head", 6},
                                                               {"n_inner", 301},
                                                               {"n_positions", 64}},
                                                    "test");
    model->allocate(context, DType::f32, false);
    model->initialize(context, 3);
    for (Param* param : model->params())  // biases and norms, too
      for (int64_t i = 0; i < param->num_elements(); ++i)
        param->value.ptr<float>()[i] += 0.01f * static_cast<float>(i % 7 - 3);
    save_model(context, *model, to, dtype);
    return to.string();
  }
  std::string path(const char* name) const { return (folder.path() / name).string(); }
  Json pruned(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "prune");
    arguments.insert(arguments.end(), {"--data", text_, "--json"});
    const Finished done = run_hone(arguments);
    EXPECT_EQ(done.code, 0) << done.err;
    return done.code == 0 ? parse_json(done.out, "output") : Json(JsonObject{});
  }
  std::string logprobs(const std::string& model) const {
    const Finished done = run_hone({"logprobs", "--model", model, "--in", write("scored.jsonl", first_rows())});
    EXPECT_EQ(done.code, 0) << done.err;
    return done.out;
  }
  std::string first_rows() const {
    const std::string all = read_file(text_);
    return all.substr(0, all.find("{\"prompt\""));
  }

  std::string text_;
};

bool is_removed(const Json& list, int64_t index) {
  return std::ranges::any_of(list.as_array(), [&](const Json& item) { return item == Json(index); });
}

// Sets to zero what prune.json says, by the names of the tensors in the file.
void zero_by_report(Model& model, const Json& removed, int64_t head_dim) {
  const auto part = [&](const char* kind, const std::string& layer, int64_t index) {
    const Json* list = removed.at(kind).find(layer);
    return list && is_removed(*list, index);
  };
  for (const FileSlice& slice : file_slices(model.base_params())) {
    const size_t at = slice.name.find("layers.");
    if (at == std::string::npos) continue;
    const std::string rest = slice.name.substr(at + 7), layer = rest.substr(0, rest.find('.'));
    const Tensor value = slice.value();
    const auto named = [&](const char* name) { return rest.find(name) != std::string::npos; };
    for (int64_t r = 0; r < value.dim(0); ++r)
      for (int64_t c = 0; c < value.row_size(); ++c) {
        const bool zero = is_removed(removed.at("layers"), std::stoll(layer)) ||
                          (named("q_proj") && part("heads", layer, r / head_dim)) ||
                          ((named("k_proj") || named("v_proj")) && part("kv_heads", layer, r / head_dim)) ||
                          (named("o_proj.weight") && part("heads", layer, c / head_dim)) ||
                          ((named("gate_proj") || named("up_proj")) && part("channels", layer, r)) ||
                          (named("down_proj.weight") && part("channels", layer, c));
        if (zero) value.row<float>(r)[c] = 0;
      }
  }
}

}  // namespace

TEST_F(PruneCommandTest, ReportSaysWhatToZeroForTheSameLogProbs) {
  for (const char* family : {"llama", "qwen2", "qwen3", "mistral"})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::string full = full_model(family, dtype);
      fs::remove_all(path("pruned"));
      fs::remove_all(path("zeroed"));
      const Json out = pruned({full, path("pruned"), "--layers", "3", "--intermediate-size", "133", "--heads", "4"});
      const Json& removed = out.at("removed");
      EXPECT_EQ(removed.at("layers").as_array().size(), 1u);
      EXPECT_EQ(removed.at("channels").as_object().size(), 3u);
      EXPECT_EQ(removed.at("kv_heads").as_object().size(), 3u);
      const std::unique_ptr<Model> zeroed = load_model(context, full);
      zero_by_report(*zeroed, removed, 10);
      fs::copy(full, path("zeroed"));  // the tokenizer's files, too
      save_model(context, *zeroed, path("zeroed"), dtype);
      EXPECT_EQ(logprobs(path("zeroed")), logprobs(path("pruned"))) << family;
      EXPECT_NE(logprobs(full), logprobs(path("pruned"))) << family;
    }
}

TEST_F(PruneCommandTest, WritesTheZeroedModelToo) {
  for (const char* family : {"gpt2", "qwen3"}) {
    const std::string full = full_model(family, DType::f32), out = path(concat("out_", family).c_str()),
                      zeroed = path(concat("zeroed_", family).c_str());
    const Json report =
        pruned({"--model", full, "--out", out, "--zeroed", zeroed, "--layers", "0.5", "--intermediate-size", "0.5"});
    EXPECT_EQ(report.at("layers"), Json(JsonObject{{"before", 4}, {"after", 2}}));
    EXPECT_EQ(logprobs(out), logprobs(zeroed));
  }
}

TEST_F(PruneCommandTest, FolderIsAModelWithItsReport) {
  const std::string full = full_model("llama", DType::bf16);
  const Json out = pruned({full, path("pruned"), "--kv-heads", "1", "--layers", "2", "--metric", "perplexity"});
  const Json config = parse_json(read_file(fs::path(path("pruned")) / "config.json"), "config.json");
  EXPECT_EQ(config.at("num_hidden_layers"), Json(2));
  EXPECT_EQ(config.at("num_attention_heads"), Json(2));
  EXPECT_EQ(config.at("num_key_value_heads"), Json(1));
  EXPECT_EQ(config.at("head_dim"), Json(10));
  EXPECT_EQ(config.at("dtype"), Json("bfloat16"));
  EXPECT_TRUE(fs::exists(fs::path(path("pruned")) / "tokenizer.json"));
  const Json report = parse_json(read_file(fs::path(path("pruned")) / "prune.json"), "prune.json");
  EXPECT_EQ(report.at("removed"), out.at("removed"));
  EXPECT_EQ(report.at("metric"), Json("perplexity"));
  EXPECT_EQ(report.at("scores").at("block_influence").as_array().size(), 4u);
  EXPECT_EQ(report.at("scores").at("channels").as_array()[3].as_array().size(), 301u);
  EXPECT_EQ(report.at("scores").at("removals").as_array().size(), 2u);
  EXPECT_LT(out.at("parameters").at("after").as_int(), out.at("parameters").at("before").as_int());
  EXPECT_GT(out.at("perplexity").at("after").as_double(), 1);
  EXPECT_EQ(out.at("calibration").at("sequences"), Json(4));
  EXPECT_EQ(run_hone({"generate", "--model", path("pruned"), "--prompt", "the cat", "--max-tokens", "4"}).code, 0);
}

TEST_F(PruneCommandTest, PrintsATable) {
  const Finished done = run_hone(
      {"prune", full_model("llama", DType::f32), path("pruned"), "--data", text_, "--layers", "3", "--heads", "3"});
  ASSERT_EQ(done.code, 0) << done.err;
  for (const char* word : {"before", "removed layers", "KV heads", "perplexity"})
    EXPECT_NE(done.out.find(word), std::string::npos) << done.out;
}

TEST_F(PruneCommandTest, SaysWhatWouldBeRight) {
  const std::string full = full_model("llama", DType::f32), to = path("to");
  const auto wrong = [&](std::vector<std::string> options, int code, const std::vector<std::string>& words) {
    std::vector<std::string> arguments{"prune", full, to, "--data", text_};
    arguments.insert(arguments.end(), options.begin(), options.end());
    expect_error(arguments, code, words);
    EXPECT_FALSE(fs::exists(to));
  };
  wrong({}, 2, {"nothing to remove", "--layers"});
  wrong({"--layers", "5"}, 2, {"--layers is 5", "1 to 4"});
  wrong({"--layers", "0"}, 2, {"--layers is 0", "1 to 4"});
  wrong({"--layers", "many"}, 2, {"'many'", "fraction"});
  wrong({"--layers", "1.5"}, 2, {"'1.5'", "between 0 and 1"});
  wrong({"--heads", "5"}, 2, {"--heads is 5", "multiple of 2", "or of 3"});
  wrong({"--heads", "4", "--kv-heads", "1"}, 2, {"--heads 4", "--kv-heads 1", "at most 2"});
  wrong({"--intermediate-size", "100", "--block", "16"}, 2, {"--block is 16", "divide", "301"});
  wrong({"--layers", "2", "--metric", "magic"}, 2, {"'magic'", "block_influence or perplexity"});
  wrong({"--layers", "2", "--zeroed", full}, 1, {full, "already exists"});
  wrong({"--layers", "2", "--out", "elsewhere"}, 2, {"once"});
  wrong({"--layers", "2", "--zeroed", to}, 2, {"--zeroed", "give another one"});
  expect_error({"prune", full, full, "--data", text_, "--layers", "2"}, 1, {full, "already exists"});
  expect_error({"prune", full, to, "--layers", "2", "--data", write("bad.jsonl", "{\"words\": 1}\n")}, 1,
               {"bad.jsonl:1", "text, ids or messages"});
  expect_error({"prune", full, to, "--layers", "2", "--data", write("short.jsonl", "{\"ids\": [1]}\n")}, 1,
               {"short.jsonl", "two tokens"});
  expect_error({"prune", full_model("gpt2", DType::f32), to, "--heads", "3", "--data", text_}, 1, {"gpt2", "head_dim"});
}

}  // namespace hone::test
