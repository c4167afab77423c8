// The command line as scripts use it: exit codes, outputs and error messages.
#include <cstdio>
#include <cstdlib>
#include <regex>

#include "tests/cli/command_case.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

class CliTest : public CommandCase {};

TEST_F(CliTest, ExitCodesAreDoneFailedUsage) {
  EXPECT_EQ(run_hone({"--help"}).code, 0);
  EXPECT_EQ(run_hone({"--version"}).code, 0);
  EXPECT_EQ(run_hone({}).code, 2);
  EXPECT_EQ(run_hone({"fly"}).code, 2);
  EXPECT_EQ(run_hone({"logprobs", "--modle", "x"}).code, 2);
  EXPECT_EQ(run_hone({"list", "objectives"}).code, 0);
  EXPECT_EQ(run_hone({"generate", "--model", "/nowhere", "--prompt", "x"}).code, 1);
}

TEST_F(CliTest, EveryCommandHasHelpWithAnExample) {
  for (const char* command : {"run", "eval", "generate", "chat", "logprobs", "reward", "objective", "tokenizer", "data",
                              "list", "plan", "plot", "doctor", "bench", "watch", "completion", "collect", "pairs"}) {
    const Finished help = run_hone({command, "--help"});
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_NE(help.out.find("Example:\n  hone " + std::string(command)), std::string::npos) << help.out;
  }
}

TEST_F(CliTest, ListOpsNamesBodiesAndRefusesAnUnknownChoiceOfThem) {
  const Finished listed = run_hone({"list", "ops"}, {"HONE_CUDA_BODIES=portable"});
  EXPECT_EQ(listed.code, 0) << listed.err;
  EXPECT_NE(listed.out.find("gemm_forward  "), std::string::npos) << listed.out;
  if (listed.out.find("mma (cuda)") != std::string::npos) {  // a CUDA build
    EXPECT_NE(listed.out.find("  cuda 8.0, 8.6, 8.9, 9.0, 10.0, 12.0: mma, plain\n"), std::string::npos) << listed.out;
  }
  const Finished refused = run_hone({"list", "ops"}, {"HONE_CUDA_BODIES=hopper"});
  EXPECT_EQ(refused.code, 1);
  for (const char* word : {"HONE_CUDA_BODIES", "\"hopper\"", "\"auto\"", "\"portable\""})
    EXPECT_NE(refused.err.find(word), std::string::npos) << refused.err;
}

TEST_F(CliTest, OldNamesAreAcceptedWithAWarning) {
  for (const auto& [old_name, name] : {std::pair{"score", "logprobs"}, {"quantization", "quant-error"}}) {
    const Finished help = run_hone({old_name, "--help"});
    EXPECT_EQ(help.code, 0) << help.err;
    EXPECT_NE(help.out.find("Example:\n  hone " + std::string(name)), std::string::npos) << help.out;
    EXPECT_NE(help.err.find(concat("hone ", old_name, " is now called hone ", name)), std::string::npos) << help.err;
  }
  const Finished data = run_hone({"data", "overlap", "--in", "x"});
  EXPECT_EQ(data.code, 2);
  EXPECT_NE(data.err.find("overlap is now called contamination"), std::string::npos) << data.err;
  EXPECT_NE(data.err.find("data contamination: "), std::string::npos) << data.err;
  // Each option is taken: what fails is the value that follows.
  const std::tuple<const char*, const char*, const char*> options[] = {
      {"serve", "--max-replies", "--max-pending-completions"},
      {"serve", "--max-sequences", "--max-num-seqs"},
      {"serve", "--max-batch-tokens", "--max-num-batched-tokens"},
      {"eval", "--max-sequences", "--max-num-seqs"},
      {"eval", "--max-batch-tokens", "--max-num-batched-tokens"}};
  for (const auto& [command, old_name, name] : options)
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{command, "--model", "/nowhere", old_name, "x"},
          std::vector<std::string>{command, "--model", "/nowhere", concat(old_name, "=x")}}) {
      const Finished done = run_hone(words);
      EXPECT_EQ(done.code, 2);
      EXPECT_NE(done.err.find(concat(old_name, " is now called ", name)), std::string::npos) << done.err;
      const bool old_words = done.err.find(concat(name, ": 'x'")) != std::string::npos;  // CLI11 before 2.4
      EXPECT_TRUE(old_words || done.err.find(concat(name, " = x")) != std::string::npos) << done.err;
    }
  for (const char* command : {"chat", "serve"}) {
    const Finished done = run_hone({command, "--model", "/nowhere", "--format", "plain"});
    EXPECT_EQ(done.code, 1);
    EXPECT_NE(done.err.find("--format is now called --chat-format"), std::string::npos) << done.err;
  }
}

TEST_F(CliTest, InvalidOptionsAreUsageErrors) {
  const std::string model = model_folder();
  expect_error({"gnerate"}, 2, {"did you mean 'generate'"});
  const std::vector<std::vector<std::string>> odd{{"--max-tokens", "-1"},   {"--max-tokens", "99999999999999999999"},
                                                  {"--temperature", "-1"},  {"--temperature", "nan"},
                                                  {"--top-p", "0"},         {"--top-p", "7"},
                                                  {"--top-k", "-7"},        {"--min-p", "2"},
                                                  {"--top-p", "1e-46"},     {"--temperature", "1e-38"},
                                                  {"--temperature", "1e39"}};
  for (const std::vector<std::string>& option : odd) {
    // By the setting's name (max_tokens), or by the option's (--max-tokens) if the parser itself rejects the number.
    std::string name = option[0].substr(2);
    std::replace(name.begin(), name.end(), '-', '_');
    const Finished refused = run_hone({"generate", "--model", model, "--prompt", "a", option[0], option[1]});
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_TRUE(refused.err.find(name) != std::string::npos || refused.err.find(option[0]) != std::string::npos)
        << refused.err;
  }
  expect_error({"generate", "--model", model}, 2, {"--prompt"});
  expect_error({"eval", "--model", model, "--task", "arithmetic", "--limit", "-3"}, 2, {"limit"});
  expect_error({"eval", "--model", model, "--task", "arithmetic", "--samples", "99999999"}, 2, {"samples"});
  expect_error({"bench", "prefill", "--shape", "quickstart", "--repeats", "0"}, 2, {"--repeats"});
  expect_error({"run"}, 2, {"recipe"});
  expect_error({"list", "objectives", "--out", "x"}, 2, {"--out", "recipe-keys"});
  expect_error({"data", "generate", "--generator", "arithmetic", "--split", "all"}, 2, {"--split"});
}

TEST_F(CliTest, UnknownOptionsSuggestTheNearest) {
  expect_error({"logprobs", "--modle", "x"}, 2, {"logprobs: unknown option --modle", "did you mean '--model'?"});
  expect_error({"run", "recipe.toml", "--dry-rn"}, 2, {"run: unknown option --dry-rn", "'--dry-run'"});
  expect_error({"eval", "--model", "x", "--taks=arc"}, 2, {"unknown option --taks", "'--tasks'"});
  expect_error({"--versoin"}, 2, {"unknown option --versoin", "'--version'"});
  // The value of an option is no option.
  const Finished done = run_hone({"generate", "--model", "/nowhere", "--prompt", "--hello", "--max-tokns", "3"});
  EXPECT_EQ(done.code, 2);
  EXPECT_NE(done.err.find("'--max-tokens'"), std::string::npos) << done.err;
}

TEST_F(CliTest, TheVersionNamesCommitAndBuild) {
  const Finished done = run_hone({"--version"});
  EXPECT_TRUE(std::regex_match(done.out, std::regex(R"(hone \d+\.\d+\.\d+ \(([0-9a-f]{12}(-dirty)?|unknown)\)\n)"
                                                    R"([A-Za-z]+, [A-Za-z]+ [0-9.]+, \w+, .*CUDA.*\n)")))
      << done.out;
}

// Sources the bash script and completes the words; the last one is what was typed of the word at the cursor.
std::string completed(const std::string& script, const std::vector<std::string>& words) {
  std::string line = "cd " + fs::path(script).parent_path().string() + " && source " + script + " && COMP_WORDS=(";
  for (const std::string& word : words) line += "'" + word + "' ";
  line += concat(") COMP_CWORD=", words.size() - 1, " && _hone; printf '%s ' \"${COMPREPLY[@]}\"");
  FILE* pipe = ::popen(("bash -c '" + std::regex_replace(line, std::regex("'"), "'\\''") + "'").c_str(), "r");
  std::string out;
  char piece[4096];
  while (const size_t count = std::fread(piece, 1, sizeof piece, pipe)) out.append(piece, count);
  ::pclose(pipe);
  return out;
}

TEST_F(CliTest, BashCompletesCommandsOptionsValuesAndRecipes) {
  const Finished done = run_hone({"completion", "bash"});
  ASSERT_EQ(done.code, 0) << done.err;
  const std::string script = write("hone.bash", done.out);
  write("my_recipe.toml", "");
  write("notes.txt", "");
  EXPECT_EQ(completed(script, {"hone", "wat"}), "watch ");
  EXPECT_EQ(completed(script, {"hone", "run", "x.toml", "--dash"}), "--dashboard ");
  EXPECT_EQ(completed(script, {"hone", "list", "object"}), "objectives ");
  EXPECT_EQ(completed(script, {"hone", "eval", "--task", "gsm8k_"}), "gsm8k_calculator ");
  EXPECT_EQ(completed(script, {"hone", "run", "my"}), "my_recipe.toml ");
  EXPECT_EQ(completed(script, {"hone", "run", "no"}), " ");
  EXPECT_EQ(completed(script, {"hone", "completion", ""}), "bash fish zsh ");
}

TEST_F(CliTest, EveryShellKnowsEveryCommand) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Finished done = run_hone({"completion", shell});
    EXPECT_EQ(done.code, 0) << done.err;
    for (const char* word : {"watch", "quant-error", "served-model-name", "dry-run"})
      EXPECT_NE(done.out.find(word), std::string::npos) << shell << ": " << word;
  }
  expect_error({"completion", "tcsh"}, 2, {"tcsh"});
}

TEST_F(CliTest, ManPagesSayWhatHelpSays) {
  const fs::path out = folder.path() / "man";
  ASSERT_EQ(run_hone({"list", "man", "--out", out.string()}).code, 0);
  const std::string page = read_file(out / "hone-run.1"), index = read_file(out / "hone.1");
  EXPECT_TRUE(page.starts_with(".TH HONE\\-RUN 1")) << page;
  for (const char* words : {".SH SYNOPSIS", "\\fB\\-\\-dry\\-run\\fR", ".SH EXAMPLE", "folder of the run to resume"})
    EXPECT_NE(page.find(words), std::string::npos) << words;
  EXPECT_NE(index.find(".BR hone\\-watch (1)"), std::string::npos);
  if (std::system("command -v man > /dev/null 2>&1") != 0) return;
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string check = "man --warnings -l " + entry.path().string() + " 2>&1 >/dev/null | grep -c . > /dev/null";
    EXPECT_NE(WEXITSTATUS(std::system(check.c_str())), 0) << entry.path();
  }
}

TEST_F(CliTest, TheReferenceOfRecipeKeysIsWrittenAsPages) {
  const fs::path out = folder.path() / "recipes";
  EXPECT_EQ(run_hone({"list", "recipe-keys", "--out", out.string()}).code, 0);
  const Finished printed = run_hone({"list", "recipe-keys"});
  for (const char* page : {"README.md", "run.md", "stage_rl.md"})
    EXPECT_NE(printed.out.find(read_file(out / page)), std::string::npos) << page;
}

TEST_F(CliTest, AFullStandardOutputIsAnError) {
  for (const char* command : {"list objectives", "data generate --generator arithmetic --limit 3", "--help"}) {
    const std::string line = hone_binary().string() + " " + command + " >/dev/full 2>/dev/null";
    EXPECT_EQ(WEXITSTATUS(std::system(line.c_str())), 1) << command;
  }
}

TEST_F(CliTest, RecipeErrorsNameTheKey) {
  const std::string misspelt = write("a.toml", "name = \"a\"\n[[stage]]\nkind = \"sft\"\nlearning_rat = 1\n");
  expect_error({"run", misspelt, "--dry-run"}, 1, {"a.toml:4", "learning_rat", "learning_rate"});
  const std::string mistyped = write("b.toml", "seed = \"one\"\n[[stage]]\nkind = \"sft\"\n");
  expect_error({"run", mistyped, "--dry-run"}, 1, {"b.toml:1", "seed"});
  const std::string unknown = write("c.toml", "[[stage]]\nkind = \"sftt\"\n");
  expect_error({"run", unknown, "--dry-run"}, 1, {"c.toml:2", "sftt", "known"});
  expect_error({"run", write("d.toml", "[[stage]\n"), "--dry-run"}, 1, {"d.toml:1"});
  expect_error({"run", (folder.path() / "missing.toml").string()}, 1, {"missing.toml"});
  expect_error({"run", misspelt, "stage.0.stepz=3", "--dry-run"}, 1, {"stepz"});
  const std::string no_data = write("e.toml", "[[stage]]\nkind = \"pretrain\"\nfiles = [\"/nowhere/x.jsonl\"]\n");
  expect_error({"run", no_data, "runs=" + folder.path().string()}, 1, {"/nowhere/x.jsonl"});
}

TEST_F(CliTest, AFolderWithoutAModelIsNamed) {
  expect_error({"generate", "--model", folder.path().string(), "--prompt", "x"}, 1,
               {folder.path().string(), "config.json"});
  const std::string model = model_folder();
  fs::resize_file(fs::path(model) / "model.safetensors", 200);
  expect_error({"generate", "--model", model, "--prompt", "x"}, 1, {"model.safetensors"});
}

TEST_F(CliTest, GeneratedLogProbsEqualThoseOfTheTexts) {
  const std::string model = model_folder();
  const std::string prompts = write("prompts.jsonl", "{\"prompt\": \"the cat\"}\n\n{\"ids\": [70, 71]}\n");
  const Finished done = run_hone({"generate", "--model", model, "--prompts", prompts, "--max-tokens", "9", "--seed",
                                  "4", "--logprobs", "--json", "--ignore-eos"});
  ASSERT_EQ(done.code, 0) << done.err;
  const std::vector<Json> replies = rows(done.out);
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[1].at("prompt_ids").dump(), "[70, 71]");
  std::string in;
  for (const Json& reply : replies) {
    JsonArray ids = reply.at("prompt_ids").as_array();
    for (const Json& id : reply.at("ids").as_array()) ids.push_back(id);
    in += Json(JsonObject{{"ids", ids}}).dump() + "\n";
  }
  const Finished scored = run_hone({"logprobs", "--model", model, "--in", "-", "--out", "-"}, {}, in);
  ASSERT_EQ(scored.code, 0) << scored.err;
  const std::vector<Json> scores = rows(scored.out);
  ASSERT_EQ(scores.size(), replies.size());
  for (size_t i = 0; i < replies.size(); ++i) {
    const JsonArray& logp = scores[i].at("logp").as_array();
    const JsonArray& sampled = replies[i].at("logp").as_array();
    EXPECT_TRUE(logp[0].is_null());
    for (size_t t = 0; t < sampled.size(); ++t)
      EXPECT_EQ(sampled[t].as_double(), logp[logp.size() - sampled.size() + t].as_double());
  }
}

TEST_F(CliTest, RowsThatCannotBeReadNameFileAndLine) {
  const std::string model = model_folder();
  expect_error({"logprobs", "--model", model, "--in", write("bad.jsonl", "{\"text\": \"a cat\"}\n{\"text\": \"a\n")}, 1,
               {"bad.jsonl:2"});
  expect_error({"logprobs", "--model", model, "--in", write("id.jsonl", "{\"ids\": [1, 264]}\n")}, 1,
               {"id.jsonl:1", "264"});
  expect_error({"logprobs", "--model", model, "--in", write("none.jsonl", "{\"txt\": 1}\n")}, 1,
               {"none.jsonl:1", "prompt"});
  expect_error(
      {"logprobs", "--model", model, "--in", write("long.jsonl", "{\"text\": \"" + std::string(400, 'x') + "\"}\n")}, 1,
      {"long.jsonl:1", "32"});
}

TEST_F(CliTest, QuantizationReportsItsError) {
  const std::string model = model_folder(),
                    in = write("in.jsonl", "{\"text\": \"the cat sat on the log\"}\n{\"ids\": [1, 2, 3]}\n");
  const Finished done = run_hone({"quant-error", "--model", model, "--in", in, "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  for (const Json& row : rows(done.out)) {
    EXPECT_GT(row.at("tokens").as_int(), 2);
    EXPECT_GT(row.at("kl").as_double(), 0);
    EXPECT_LT(row.at("max_difference").as_double(), 1);
    EXPECT_NEAR(row.at("perplexity").as_double(), row.at("engine_perplexity").as_double(), 20);
  }
  EXPECT_NE(run_hone({"quant-error", "--model", model, "--in", in}).out.find("int8"), std::string::npos);
  expect_error({"quant-error", "--model", model, "--in", in, "--max-length", "1"}, 2, {"--max-length is 1"});
  expect_error({"generate", "--model", model, "--prompt", "the", "--quantization", "int4"}, 2,
               {"did you mean 'int8'", "none"});
  const auto replies = [&](const char* quantization) {
    return run_hone({"generate", "--model", model, "--prompt", "the", "--logprobs", "--json", "--quantization",
                     quantization})
        .out;
  };
  EXPECT_NE(replies("int8"), replies("none"));
  EXPECT_EQ(replies("fp8"), replies("fp8"));
}

TEST_F(CliTest, ExportsAModelFolderInAnotherDtypeAndKeepsAnExistingOne) {
  const std::string model = model_folder(), out = (folder.path() / "exported").string(),
                    half = (folder.path() / "half").string();
  const Finished done = run_hone({"export", "--model", model, "--out", out});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, out + "\n");
  EXPECT_TRUE(read_file(fs::path(out) / "model.safetensors") == read_file(fs::path(model) / "model.safetensors"));
  ASSERT_EQ(run_hone({"export", "--model", model, "--out", half, "--dtype", "bf16"}).code, 0);
  EXPECT_LT(fs::file_size(fs::path(half) / "model.safetensors"),
            0.6 * static_cast<double>(fs::file_size(fs::path(out) / "model.safetensors")));
  const auto replies = [&](const std::string& from) {
    return run_hone({"generate", "--model", from, "--prompt", "the", "--max-tokens", "4", "--temperature", "0",
                     "--json", "--logprobs"})
        .out;
  };
  EXPECT_EQ(replies(out), replies(model));
  EXPECT_NE(replies(half), replies(model));
  EXPECT_FALSE(replies(half).empty());
  expect_error({"export", "--model", model, "--out", out}, 1, {out, "exists; give a new folder"});
  expect_error({"export", "--model", folder.path().string(), "--out", half + "2"}, 1, {folder.path().string()});
  expect_error({"export", "--model", model, "--out", half + "2", "--dtype", "int8"}, 2,
               {"--dtype is 'int8'", "auto, f32 or bf16"});
}

TEST_F(CliTest, IdsNeedNoTokenizer) {
  const std::string model = model_folder();
  fs::remove(fs::path(model) / "tokenizer.json");
  const std::string ids = write("ids.jsonl", "{\"ids\": [5, 6, 7]}\n"),
                    text = write("text.jsonl", "{\"text\": \"a\"}\n");
  EXPECT_EQ(run_hone({"logprobs", "--model", model, "--in", ids}).code, 0);
  expect_error({"logprobs", "--model", model, "--in", text}, 1, {"no tokenizer"});
}

TEST_F(CliTest, TokenizerRoundTrip) {
  const std::string model = model_folder(), text = "the cat\r\n\tsat <|endoftext|> \xc3\xa9\xf0\x9f\x99\x82 ";
  const Finished ids = run_hone({"tokenizer", "encode", "--tokenizer", model, "--json"}, {}, text);
  ASSERT_EQ(ids.code, 0) << ids.err;
  EXPECT_EQ(run_hone({"tokenizer", "decode", "--tokenizer", model}, {}, ids.out).out, text);
  expect_error({"tokenizer", "encode"}, 2, {"--tokenizer"});
}

TEST_F(CliTest, RewardAddsScoreAndNote) {
  const std::string in = write("r.jsonl",
                               "{\"prompt\": \"2+2\", \"completion\": \"it is 4\", \"answer\": \"4\"}\n{\"prompt\": "
                               "\"2+2\", \"completion\": \"5\", \"answer\": \"4\"}\n");
  const Finished done = run_hone({"reward", "--reward", "number", "--in", in, "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(rows(done.out)[0].at("score").as_double(), 1);
  EXPECT_EQ(rows(done.out)[1].at("score").as_double(), 0);
  EXPECT_TRUE(rows(done.out)[1].find("note"));
  expect_error({"reward", "--reward", "nubmer", "--in", in, "--json"}, 1, {"nubmer", "number"});
}

TEST_F(CliTest, RewardSaysWhichRowsCouldNotBeScored) {
  std::string lines;
  for (int i = 0; i < 600; ++i) lines += "{\"completion\": \"c" + std::to_string(i) + "\"}\n";
  const std::string in = write("many.jsonl", lines);
  const std::string plugin = write("plugin.sh", R"(read -r line; echo '{"id": 0, "protocol": 1}'
n=0
while read -r line; do
  n=$((n + 1))
  case "$line" in *\"c7\"*) s='{"error": "odd"}';; *\"c9\"*) s=null;; *) s=2;; esac
  echo "{\"id\": $n, \"scores\": [$s]}"
done
)");
  const std::string reward = "{kind = 'process', command = ['sh', '" + plugin + "']}";
  const Finished done = run_hone({"reward", "--reward", reward, "--in", in, "--json"});
  EXPECT_EQ(done.code, 0);
  EXPECT_NE(done.err.find("1 of 600 rows could not be scored; the first, " + in + ":8: odd"), std::string::npos)
      << done.err;
  ASSERT_EQ(rows(done.out).size(), 600u);
  EXPECT_TRUE(rows(done.out)[7].at("score").is_null());
  EXPECT_EQ(rows(done.out)[7].at("failed"), Json(true));
  EXPECT_TRUE(rows(done.out)[9].at("score").is_null());
  EXPECT_FALSE(rows(done.out)[9].find("failed"));
  EXPECT_EQ(rows(done.out)[599].at("score").as_double(), 2);
  const Finished mean = run_hone({"reward", "--reward", reward, "--in", in});
  EXPECT_EQ(mean.out, "mean score 2 over 598 rows\n1 rows were skipped\n");
}

TEST_F(CliTest, ObjectivePrintsLossGradientAndAdvantages) {
  const std::string in = write(
      "o.json",
      R"({"logp": [[-1.0, -2.0], [-0.5, -0.7]], "behavior_logp": [[-1.0, -2.0], [-0.5, -0.7]], "mask": [[0, 1], [0, 1]], "rewards": [1, 0], "group_size": 2, "config": {}})");
  const Finished done = run_hone({"objective", "grpo", "--in", in});
  ASSERT_EQ(done.code, 0) << done.err;
  const Json out = parse_json(done.out, "output");
  EXPECT_EQ(out.at("grad").as_array().size(), 2u);
  EXPECT_LT(out.at("grad").as_array()[0].as_array()[1].as_double(), 0);
  EXPECT_GT(out.at("advantages").as_array()[0].as_double(), 0);
  EXPECT_TRUE(out.at("loss").is_number());
}

TEST_F(CliTest, UnwritableOutputsAreErrors) {
  const std::string model = model_folder(), in = write("in.jsonl", "{\"ids\": [5, 6]}\n");
  expect_error(
      {"logprobs", "--model", model, "--in", in, "--out", (folder.path() / "no" / "such" / "out.jsonl").string()}, 1,
      {"out.jsonl"});
  const Finished full = run_hone({"logprobs", "--model", model, "--in", in, "--out", "/dev/full"});
  EXPECT_EQ(full.code, 1);
  EXPECT_NE(full.err.find("/dev/full"), std::string::npos) << full.err;
}

}  // namespace
}  // namespace hone::test
