#pragma once
// CommandCase: a temporary folder with a small model, and checks of a failed command's message.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/io/file.h"
#include "core/io/json.h"
#include "model/model.h"
#include "tests/support/process.h"
#include "tests/support/support.h"

namespace hone::test {

class CommandCase : public ::testing::Test {
 protected:
  CommandCase() : device(devices().at("cpu")(0)), context(*device) {}

  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  // A model of random weights with a tokenizer of 300 tokens.
  std::string model_folder() {
    const std::string text = write("corpus.txt", "the cat sat on the mat and the dog sat on the log and so on and on");
    EXPECT_EQ(run_hone({"tokenizer", "train", "--in", text, "--vocab-size", "264", "--out",
                        (folder.path() / "model").string()})
                  .code,
              0);
    const std::unique_ptr<Model> model = make_model(JsonObject{{"model_type", "llama"},
                                                               {"hidden_size", 16},
                                                               {"intermediate_size", 32},
                                                               {"num_hidden_layers", 1},
                                                               {"num_attention_heads", 2},
                                                               {"num_key_value_heads", 1},
                                                               {"vocab_size", 264},
                                                               {"max_position_embeddings", 32},
                                                               {"rms_norm_eps", 1e-5},
                                                               {"initializer_range", 0.2},
                                                               {"hidden_act", "silu"},
                                                               {"tie_word_embeddings", true}},
                                                    "test");
    model->allocate(context, DType::f32, false);
    model->initialize(context, 1);
    save_model(context, *model, folder.path() / "model", DType::f32);
    return (folder.path() / "model").string();
  }
  void expect_error(const std::vector<std::string>& arguments, int code, const std::vector<std::string>& words) const {
    const Finished done = run_hone(arguments);
    EXPECT_EQ(done.code, code) << done.err;
    for (const std::string& word : words)
      EXPECT_NE(done.err.find(word), std::string::npos) << word << " in: " << done.err;
  }
  static std::vector<Json> rows(const std::string& text) {
    std::vector<Json> out;
    for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
      end = text.find('\n', begin);
      out.push_back(parse_json(text.substr(begin, end - begin), "output"));
    }
    return out;
  }

  TemporaryFolder folder;
  std::unique_ptr<Device> device;
  Context context;
};

}  // namespace hone::test
