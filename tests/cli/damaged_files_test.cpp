// Errors about a damaged file name it, and what is not a regular file is an error at once.
#include <sys/stat.h>
#include <zlib.h>

#include <functional>

#include "tests/cli/command_case.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

class DamagedFilesTest : public CommandCase {
 protected:
  // Runs a command on a copy of the model in which one file has the case's content.
  Finished run_on(const std::string& model, const std::string& file, const std::function<void(const fs::path&)>& damage,
                  const std::vector<std::string>& arguments) {
    const fs::path copy = folder.path() / "copy";
    fs::remove_all(copy);
    fs::copy(model, copy, fs::copy_options::recursive);
    fs::remove(copy / file);
    damage(copy / file);
    std::vector<std::string> all = arguments;
    for (std::string& one : all)
      if (one == "MODEL") one = copy.string();
    return run_hone(all, {}, "hello\n\n");
  }
  static std::function<void(const fs::path&)> text(const std::string& content) {
    return [content](const fs::path& path) { std::ofstream(path, std::ios::binary) << content; };
  }
};

// A gzip file of `mebibytes` MiB of spaces.
void write_bomb(const fs::path& path, int mebibytes) {
  const gzFile file = gzopen(path.c_str(), "wb1");
  const std::string block(size_t{1} << 20, ' ');
  for (int i = 0; i < mebibytes; ++i) gzwrite(file, block.data(), static_cast<unsigned>(block.size()));
  gzclose(file);
}

TEST_F(DamagedFilesTest, OfAModelFolderAreNamed) {
  const std::string model = model_folder();
  const std::vector<std::string> generate{"generate", "--model", "MODEL", "--prompt", "the"};
  const std::vector<std::string> chat{"chat", "--model", "MODEL", "--chat-format", "template"};
  struct Case {
    std::string file, content;
    std::vector<std::string> arguments;
  };
  const std::string adapter =
      R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "base_model_name_or_path": ")" + model + "\"";
  for (const Case& one : std::vector<Case>{
           {"config.json", "", generate},
           {"config.json", "{\"model_type\": \"llama\"", generate},
           {"config.json", "[]", generate},
           {"config.json", "{\"model_type\": 3}", generate},
           {"config.json", "{\"model_type\": \"llamb\"}", generate},
           {"config.json", "{\"model_type\": \"llama\", \"hidden_size\": -5}", generate},
           {"generation_config.json", "{\"eos_token_id\": \"x\"}", generate},
           {"generation_config.json", "nonsense", generate},
           {"tokenizer.json", "{\"model\": {}}", generate},
           {"tokenizer.json", "{\"model\": {\"type\": \"BPE\", \"vocab\": [], \"merges\": []}}", generate},
           {"tokenizer_config.json", "[1]", generate},
           {"special_tokens_map.json", "3", generate},
           {"model.safetensors", "short", generate},
           {"model.safetensors", std::string(200, '\0'), generate},
           {"adapter_config.json", "{", generate},
           {"adapter_config.json", "[]", generate},
           {"adapter_config.json", "{\"peft_type\": \"LORA\"}", generate},
           {"adapter_config.json", adapter + ", \"target_modules\": 3}", generate},
           {"adapter_config.json", adapter + ", \"target_modules\": [\"q_prog\"]}", generate},
           {"adapter_config.json", adapter + ", \"target_modules\": [\"q_proj\"], \"r\": 0}", generate},
           {"chat_template.jinja", "{% if %}", chat},
           {"chat_template.jinja", "{{ messages | nonsense }}", chat},
           {"chat_template.jinja", "{{ raise_exception('no') }}", chat},
           {"chat_template.jinja", "{{ messages[99].role.x }}", chat},
           {"tokenizer_config.json", "{\"chat_template\": \"{% for %}\"}", chat},
           {"tokenizer_config.json", "{\"chat_template\": 3}", chat}}) {
    const Finished done = run_on(model, one.file, text(one.content), one.arguments);
    EXPECT_EQ(done.code, 1) << one.file << ": " << one.content;
    EXPECT_NE(done.err.find("copy/" + one.file), std::string::npos)
        << one.file << " with " << one.content << " gave: " << done.err;
  }
}

TEST_F(DamagedFilesTest, OfARecipeAndWhatItRefersToAreNamed) {
  const std::string model = model_folder();
  const std::string stage = "[[stage]]\nkind = \"sft\"\nsteps = 1\nfiles = [\"" +
                            write("rows.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n") + "\"]\n";
  const std::string with_model = "[model]\npath = \"" + model + "\"\n",
                    with_tokenizer = "tokenizer = \"" + model + "\"\n";
  const std::string with_rows = with_model + "[[stage]]\nkind = \"sft\"\nsteps = 1\nfiles = [\"FILE\"]\n";
  const std::string with_task = with_model + "[[eval]]\ntask = \"FILE\"\n" + stage;
  struct Case {
    std::string file, content, recipe;  // FILE stands for the damaged file's path
  };
  for (const Case& one : std::vector<Case>{
           {"recipe.toml", "seed = ", ""},
           {"recipe.toml", "seed = 1\nseeed = 2\n" + stage, ""},
           {"recipe.toml", "seed = \"x\"\n" + stage, ""},
           {"recipe.toml", "[[stage]]\nkind = \"sfd\"\n", ""},
           {"recipe.toml", stage, ""},  // without a tokenizer
           {"recipe.toml", with_tokenizer + "[model]\nhead_dim = 7\n" + stage, ""},
           {"recipe.toml", with_model + "[model.lora]\nr = 4\ntarget_modules = [\"q_prog\"]\n" + stage, ""},
           {"recipe.toml", with_model + "[[eval]]\ntask = \"gsm9k\"\n" + stage, ""},
           {"recipe.toml", with_model + stage + "chat = \"nope\"\n", ""},
           {"model", "", with_model + stage + "chat = \"template\"\n"},
           {"rows.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n", with_model + stage + "prompt = \"{open\"\n"},
           {"bad.jsonl", "{\"prompt\": \"a\"}\n", with_rows},
           {"bad.jsonl", "3\n", with_rows},
           {"bad.jsonl", "{\n", with_rows},
           {"bad.jsonl", "", with_rows},
           {"task.toml", "kind = \"generat\"\n", with_task},
           {"task.toml", "kind = ", with_task},
           {"shape.json", "{", with_tokenizer + "[model]\nconfig = \"FILE\"\n" + stage},
           {"shape.json", "{\"model_type\": \"llama\"}", with_tokenizer + "[model]\nconfig = \"FILE\"\n" + stage},
           {"tok.json", "{\"model\": 3}", "tokenizer = \"FILE\"\n" + stage}}) {
    const std::string file = one.file == "model" ? model : write(one.file, one.content);
    std::string recipe = one.recipe;
    if (const size_t at = recipe.find("FILE"); at != std::string::npos) recipe.replace(at, 4, file);
    const std::string path = recipe.empty() ? file : write("main.toml", recipe);
    const Finished done = run_hone({"run", path, "runs=" + (folder.path() / "runs").string()});
    EXPECT_EQ(done.code, 1) << one.file << ": " << one.content;
    EXPECT_NE(done.err.find(file), std::string::npos) << one.file << " with " << one.content << " gave: " << done.err;
  }
}

TEST_F(DamagedFilesTest, WhatIsNotARegularFileIsAnErrorAtOnce) {
  const std::string model = model_folder();
  const std::vector<std::string> generate{"generate", "--model", "MODEL", "--prompt", "the"};
  const auto pipe = [](const fs::path& path) { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); };
  const auto zero = [](const fs::path& path) { fs::create_symlink("/dev/zero", path); };
  const auto directory = [](const fs::path& path) { fs::create_directory(path); };
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
                           "generation_config.json", "adapter_config.json"})
    for (const auto& [damage, words] : std::vector<std::pair<std::function<void(const fs::path&)>, std::string>>{
             {pipe, ": is a FIFO, not a file"},
             {zero, ": is a device, not a file"},
             {directory, ": is a directory, not a file"}}) {
      const Finished done = run_on(model, file, damage, generate);
      EXPECT_EQ(done.code, 1) << file;
      EXPECT_NE(done.err.find(std::string("copy/") + file + words), std::string::npos) << file << ": " << done.err;
    }
  const std::string fifo = (folder.path() / "fifo").string();
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"run", fifo},
        {"eval", "--model", model, "--tasks", fifo},
        {"generate", "--model", model, "--prompts", fifo},
        {"tokenizer", "encode", "--tokenizer", fifo},
        {"tokenizer", "train", "--in", fifo, "--out", (folder.path() / "t").string()},
        {"data", "tokenize", "--in", fifo, "--tokenizer", model, "--out", (folder.path() / "t.tokens").string()},
        {"reward", "--reward", "exact", "--in", fifo},
        {"logprobs", "--model", model, "--in", fifo},
        {"reward", "--reward", "{kind = 'library', path = '" + fifo + "'}", "--in", "-"},
        {"reward", "--reward", "{kind = 'python', path = '" + fifo + "'}", "--in", "-"}}) {
    Process process(arguments);
    ASSERT_TRUE(process.ends_within(20)) << arguments[0] << " " << arguments[1];
    const Finished done = process.wait();
    EXPECT_NE(done.code, 0) << arguments[0];
    EXPECT_NE(done.err.find("fifo"), std::string::npos) << arguments[0] << ": " << done.err;
  }
}

TEST_F(DamagedFilesTest, CircularLinksAreErrorsThatNameThem) {
  const std::string loop = (folder.path() / "loop").string();
  fs::create_symlink("loop", loop);
  const std::string stage = "[[stage]]\nkind = \"sft\"\nsteps = 1\nfiles = [\"rows.jsonl\"]\n";
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"run", loop},
        {"run", "--resume", loop},
        {"run", write("a.toml", "[model]\npath = \"" + loop + "\"\n" + stage)},
        {"run", write("b.toml", "tokenizer = \"" + loop + "\"\n" + stage)},
        {"generate", "--model", loop, "--prompt", "the"}}) {
    const Finished done = run_hone(arguments);
    EXPECT_EQ(done.code, 1) << arguments[1];
    EXPECT_NE(done.err.find("hone: " + loop), std::string::npos) << done.err;
    EXPECT_NE(done.err.find("Too many levels of symbolic links"), std::string::npos) << done.err;
  }
}

TEST_F(DamagedFilesTest, SmallFilesThatUnpackToGigabytesAreErrorsThatNameThem) {
  const std::string model = model_folder();
  const auto bomb = [](const fs::path& path) { write_bomb(path, 70); };
  for (const char* file : {"config.json", "generation_config.json", "tokenizer_config.json", "chat_template.jinja"}) {
    const Finished done = run_on(model, file, bomb, {"generate", "--model", "MODEL", "--prompt", "the"});
    EXPECT_EQ(done.code, 1) << file;
    EXPECT_NE(done.err.find(std::string("copy/") + file + ": larger than 67108864 bytes"), std::string::npos)
        << done.err;
  }
  const fs::path recipe = folder.path() / "recipe.toml", rows = folder.path() / "rows.jsonl.gz";
  write_bomb(recipe, 20);
  expect_error({"run", recipe.string()}, 1, {"recipe.toml: larger than 16777216 bytes"});
  write_bomb(rows, 300);
  expect_error({"reward", "--reward", "exact", "--in", rows.string()}, 1,
               {"rows.jsonl.gz:1: a line of more than 268435456 bytes"});
}

}  // namespace
}  // namespace hone::test
