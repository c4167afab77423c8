// Wrong command lines: the message names the argument, what is wrong, and what would be right. Exit code 2 is wrong
// usage, 1 a failure.
#include "tests/cli/command_case.h"

namespace hone::test {
namespace {

class WrongArguments : public CommandCase {};

struct Wrong {
  std::vector<std::string> arguments;
  int code;
  std::vector<std::string> words;
};

TEST_F(WrongArguments, NumbersAndChoices) {
  const std::string model = model_folder();
  for (const Wrong& wrong : std::vector<Wrong>{
           {{"generate", "--model", model, "--prompt", "a", "--max-tokens", "abc"},
            2,
            {"--max-tokens", "'abc' is not an integer"}},
           {{"generate", "--model", model, "--prompt", "a", "--max-tokens", "1.5"}, 2, {"'1.5' is not an integer"}},
           {{"generate", "--model", model, "--prompt", "a", "--max-tokens", "99999999999999999999"},
            2,
            {"out of range"}},
           {{"generate", "--model", model, "--prompt", "a", "--temperature", "warm"}, 2, {"'warm' is not a number"}},
           {{"generate", "--model", model, "--prompt", "a", "--max-tokens", "0"}, 2, {"--max-tokens must be in [1, "}},
           {{"generate", "--model", model, "--prompt", "a", "--top-p", "2"}, 2, {"--top-p must be in"}},
           {{"generate", "--model", model, "--prompt", "a", "--temperature", "-1"}, 2, {"--temperature must be 0"}},
           {{"chat", "--model", model, "--top-k", "-2"}, 2, {"--top-k must be"}},
           {{"serve", "--model", model, "--port", "99999"}, 2, {"port must be in [0, 65535]"}},
           {{"list", "objectve"}, 2, {"unknown 'objectve'; did you mean 'objectives'?", "known: "}},
           {{"bench", "trian"}, 2, {"unknown 'trian'; did you mean 'train'?"}},
           {{"generate", "--model", model, "--prompt", "a", "--device", "gpu"}, 1, {"unknown device 'gpu'"}},
           {{"generate", "--model", model, "--prompt", "a", "--device", "meta"}, 1, {"meta", "hone plan"}},
           {{"generate", "--model", model, "--prompt", "a", "--dtype", "f16"}, 1, {"auto, f32 or bf16"}},
           {{"eval", "--model", model, "--tasks", "gsm8kk"}, 1, {"unknown task 'gsm8kk'"}},
           {{"export", model, "--out", "none", "--experts-per-token", "2"},
            2,
            {"--experts-per-token has no effect without --upcycle"}},
           {{"export", model, "--out", "none", "--seed", "3"}, 2, {"--seed has no effect without --upcycle"}},
           {{"export", model, "--out", "none", "--upcycle", "4", "--experts-per-token", "5"},
            2,
            {"--experts-per-token is 5; it must be in [1, 4]"}},
       }) {
    SCOPED_TRACE(wrong.arguments.back());
    expect_error(wrong.arguments, wrong.code, wrong.words);
  }
}

TEST_F(WrongArguments, FilesForFoldersAndFoldersForFiles) {
  const std::string model = model_folder(), rows = write("rows.jsonl", "{\"prompt\": \"a\"}\n"),
                    empty = (folder.path() / "empty").string(), none = (folder.path() / "none").string();
  std::filesystem::create_directory(empty);
  write("run/run.json", "{}");
  for (const Wrong& wrong : std::vector<Wrong>{
           {{"run", empty}, 1, {"is a folder; a recipe is a TOML file"}},
           {{"run", (folder.path() / "run").string()}, 1, {"hone run --resume continues a run"}},
           {{"run", rows}, 1, {"a recipe is a TOML file, not .jsonl"}},
           {{"plan", rows}, 1, {"a recipe is a TOML file, not .jsonl"}},
           {{"run", none + ".toml"}, 1, {"none.toml: cannot open: No such file"}},
           {{"run", "--resume", empty}, 1, {"not a run folder"}},
           {{"generate", "--model", model + "/model.safetensors", "--prompt", "a"},
            1,
            {"model.safetensors", "give its folder"}},
           {{"generate", "--model", (folder.path() / "mdel").string(), "--prompt", "a"},
            1,
            {"there is no such folder; did you mean 'model'?"}},
           {{"generate", "--model", empty, "--prompt", "a"}, 1, {"it has no config.json"}},
           {{"export", "--model", none, "--out", none + "2"}, 1, {"not a model folder"}},
           {{"export", "--model", model, "--out", rows}, 1, {"already exists"}},
           {{"logprobs", "--model", model, "--in", empty, "--out", "-"}, 1, {"the folder has no Parquet, JSON Lines"}},
           {{"logprobs", "--model", model, "--in", rows, "--out", none + "/o.jsonl"}, 1, {"there is no folder ", none}},
           {{"reward", "--reward", "mth", "--in", rows}, 1, {"did you mean 'math'?"}},
           {{"reward", "--reward", "math", "--in", empty}, 1, {"the folder has no Parquet, JSON Lines"}},
           {{"reward", "--reward", "math", "--in", (folder.path() / "row.jsonl").string()},
            1,
            {"did you mean 'rows.jsonl'?"}},
           {{"reward", "--reward", "{kind = 'python', path = '" + none + ".py'}", "--in", rows},
            1,
            {"python: ", "none.py: cannot open"}},
           {{"reward", "--reward", "{kind = 'library', path = '" + none + ".so'}", "--in", rows},
            1,
            {"library: ", "none.so: cannot open"}},
           {{"eval", "--compare", empty, rows}, 1, {"samples_TASK.jsonl"}},
       }) {
    SCOPED_TRACE(wrong.arguments.back());
    expect_error(wrong.arguments, wrong.code, wrong.words);
  }
}

}  // namespace
}  // namespace hone::test
