// GGUF files through the commands: export, import, and as the model of other commands.
#include <fstream>

#include "tests/cli/command_case.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

class GgufCommandTest : public CommandCase {
 protected:
  std::string path(const std::string& name) const { return (folder.path() / name).string(); }
  std::string exported(const std::string& type) {
    const std::string model = model_folder(), file = path(type + ".gguf");
    const Finished done = run_hone({"export", model, "--gguf", type, "--out", file});
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_EQ(done.out, file + "\n");
    return file;
  }
  std::string output(const std::vector<std::string>& arguments, const std::string& input = "") {
    const Finished done = run_hone(arguments, {}, input);
    EXPECT_EQ(done.code, 0) << done.err;
    return done.out;
  }
};

TEST_F(GgufCommandTest, AFileIsAModelForEveryCommand) {
  const std::string file = exported("q8_0"), imported = path("imported");
  EXPECT_EQ(output({"import", file, "--out", imported}), imported + "\n");
  const std::string texts = write("texts.jsonl", "{\"text\": \"the cat sat on the mat\"}\n{\"text\": \"so on\"}\n");
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"logprobs", "--in", texts},
        {"generate", "--prompt", "the cat", "--temperature", "0", "--max-tokens", "8", "--json"}}) {
    std::vector<std::string> direct = command, folder_given = command;
    direct.insert(direct.end(), {"--model", file});
    folder_given.insert(folder_given.end(), {"--model", imported});
    const std::string result = output(direct);
    EXPECT_FALSE(result.empty());
    EXPECT_EQ(result, output(folder_given));  // the same bits: floats print in full
  }
  EXPECT_EQ(output({"tokenizer", "encode", "--tokenizer", file, "--json"}, "the cat"),
            output({"tokenizer", "encode", "--tokenizer", imported, "--json"}, "the cat"));
  EXPECT_EQ(output({"tokenizer", "encode", "--tokenizer", file, "--json"}, "the cat"),
            output({"tokenizer", "encode", "--tokenizer", path("model"), "--json"}, "the cat"));
  output({"export", "--model", file, "--out", path("folder")});
  EXPECT_TRUE(fs::exists(path("folder") + "/model.safetensors"));
  EXPECT_TRUE(fs::exists(path("folder") + "/tokenizer.json"));
  output({"generate", "--model", file, "--prompt", "the", "--speculative-method", "draft_model", "--speculative-model",
          imported, "--max-tokens", "4"});
}

TEST_F(GgufCommandTest, TrainingStartsFromAFileAndKeepsGenerationSettings) {
  const std::string file = exported("f16"), model = path("model");
  write("model/generation_config.json",
        R"({"temperature": 0.7, "top_p": 0.9, "do_sample": true, "transformers_version": "4.51.0", "note": [1]})");
  const std::string rows = write("rows.jsonl", "{\"prompt\": \"the cat\", \"completion\": \" sat on\"}\n");
  const auto train = [&](const std::string& start, const std::string& name, const std::string& more) {
    const std::string recipe =
        write(name + ".toml", "name = \"" + name + "\"\nruns = \"" + path("runs") + "\"\n[model]\npath = \"" + start +
                                  "\"\n" + more + "[[stage]]\nkind = \"sft\"\nsteps = 2\nbatch_size = 1\nfiles = [\"" +
                                  rows + "\"]\n");
    output({"run", recipe});
    return path("runs") + "/" + name + "/checkpoints/sft/step-2";
  };
  const std::string from_file = train(file, "from_file", "");
  output({"generate", "--model", from_file, "--prompt", "the", "--max-tokens", "2"});
  output({"plan", path("from_file.toml")});

  const Json kept = parse_json(read_file(train(model, "from_folder", "") + "/generation_config.json"), "kept");
  EXPECT_EQ(kept.at("temperature").as_double(), 0.7);
  EXPECT_EQ(kept.at("top_p").as_double(), 0.9);
  EXPECT_EQ(kept.at("do_sample").as_bool(), true);
  EXPECT_EQ(kept.at("transformers_version").as_string(), "4.51.0");
  EXPECT_EQ(kept.at("note").dump(), "[1]");

  // An adapter on a file: its folder names the file, and merging keeps the settings.
  const std::string adapter = train(file, "adapter", "[model.lora]\nr = 2\n");
  const std::string config = read_file(adapter + "/adapter_config.json");
  EXPECT_NE(config.find(file), std::string::npos) << config;
  output({"export", "--model", adapter, "--out", path("merged")});
  output({"export", "--model", adapter, "--gguf", "bf16", "--out", path("merged.gguf")});
  const std::string texts = write("texts.jsonl", "{\"text\": \"the cat sat\"}\n");
  EXPECT_FALSE(output({"logprobs", "--model", path("merged.gguf"), "--in", texts}).empty());

  output({"export", "--model", path("runs") + "/from_folder/checkpoints/sft/step-2", "--gguf", "f16", "--out",
          path("settings.gguf")});
  output({"import", path("settings.gguf"), "--out", path("settings")});
  const Json again = parse_json(read_file(path("settings") + "/generation_config.json"), "again");
  EXPECT_EQ(again.at("temperature").as_double(), 0.7);
  EXPECT_EQ(again.at("top_p").as_double(), 0.9);
}

TEST_F(GgufCommandTest, WrongUseIsRefused) {
  const std::string file = exported("bf16"), model = path("model");
  expect_error({"export", model, "--gguf", "q4_0", "--out", path("x.gguf")}, 2,
               {"--gguf is 'q4_0'; it must be f32, f16, bf16 or q8_0"});
  expect_error({"export", model, "--gguf", "f16", "--dtype", "bf16", "--out", path("x.gguf")}, 2, {"--dtype"});
  expect_error({"export", model, "--out", path("x.gguf")}, 2, {"say its type with --gguf"});
  expect_error({"export", "--gguf", "f16", "--out", path("x.gguf")}, 2, {"give the model once"});
  expect_error({"export", model, "--gguf", "f16", "--out", file}, 1, {file + ": already exists"});
  expect_error({"import", model, "--out", path("y")}, 1, {model + ": not a GGUF file"});
  expect_error({"import", file, "--out", model}, 1, {model + ": already exists"});
  expect_error({"import", file, "--out", path("y"), "--dtype", "f16"}, 2, {"--dtype is 'f16'; it must be bf16 or f32"});
  expect_error({"import", path("none.gguf"), "--out", path("y")}, 1, {path("none.gguf")});
  expect_error({"generate", "--model", write("weights.bin", "PK\x03\x04"), "--prompt", "x"}, 1, {"a PyTorch pickle"});
  EXPECT_FALSE(fs::exists(path("y")));
}

}  // namespace
}  // namespace hone::test
