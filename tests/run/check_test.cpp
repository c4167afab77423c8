// Everything that would stop a run later is found before it computes anything, with the place of its key.
#include "run/recipe/check.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/config/config.h"
#include "core/io/file.h"
#include "tests/rollout/tiny_draft.h"
#include "tests/support/errors.h"
#include "tests/support/recipe_text.h"
#include "tests/support/support.h"

namespace hone {
namespace {

constexpr const char* recipe_text = R"(runs = "FOLDER/runs"
[model]
hidden_size = 32
intermediate_size = 64
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 64
[[eval]]
task = "FOLDER/task.toml"
[[stage]]
kind = "tokenizer"
files = ["FOLDER/corpus.jsonl"]
vocab_size = 300
[[stage]]
kind = "pretrain"
files = ["FOLDER/corpus.jsonl"]
steps = 1
[[stage]]
kind = "sft"
files = ["FOLDER/train.jsonl", "FOLDER/more.jsonl"]
prompt = "Q: {question}"
completion = " {answer}"
steps = 1
[[stage]]
kind = "rl"
files = ["FOLDER/train.jsonl"]
prompt = "Q: {question}"
reward = { kind = "exact" }
prompts_per_step = 2
num_generations = 2
steps = 1
)";

constexpr const char* task_text = R"(kind = "generate"
files = ["FOLDER/train.jsonl"]
prompt = "Q: {question}"
answer = "{answer}"
reward = { kind = "exact" }
)";

class RecipeCheck : public ::testing::Test {
 protected:
  RecipeCheck() {
    write("corpus.jsonl", "{\"text\": \"a b c\"}\n");
    write("train.jsonl", "{\"question\": \"1 + 1?\", \"answer\": \"2\", \"domain\": \"sums\"}\n");
    write("more.jsonl", "{\"question\": \"1 + 2?\", \"answer\": \"3\"}\n");
    write("task.toml", task_text);
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string with_folder(std::string text) const { return test::in_folder(std::move(text), folder_.path()); }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    write_file_atomic(folder_.path() / name, with_folder(text));
  }
  Recipe read(std::vector<std::string> overrides) const {
    for (std::string& one : overrides) one = with_folder(one);
    Recipe out = read_recipe(Config::from_text(with_folder(recipe_text), "recipe.toml", overrides));
    out.source = "recipe.toml";
    return out;
  }
  std::string error_of(const std::vector<std::string>& overrides) const {
    return test::error_of([&] { check_recipe(read(overrides)); });
  }
  void expect(const std::vector<std::string>& overrides, const std::vector<std::string>& words) const {
    const std::string error = error_of(overrides);
    for (const std::string& word : words) EXPECT_NE(error.find(with_folder(word)), std::string::npos) << error;
  }

  test::TemporaryFolder folder_;
};

TEST_F(RecipeCheck, AGoodRecipeHasNoProblemsAndNothingIsWritten) {
  EXPECT_EQ(error_of({}), "no error");
  EXPECT_FALSE(std::filesystem::exists(path("runs")));
}

TEST_F(RecipeCheck, AMissingFileOfALaterStageHasItsLineAndTheNearestName) {
  std::filesystem::rename(path("more.jsonl"), path("moor.jsonl"));
  expect({}, {"recipe.toml:20:", "stage sft: FOLDER/more.jsonl: cannot open", "did you mean 'moor.jsonl'?"});
  std::filesystem::rename(path("moor.jsonl"), path("more.jsonl"));
  std::filesystem::create_directory(path("empty"));
  expect({"stage.rl.files=FOLDER/empty"},
         {"override 'stage.rl.files=", "FOLDER/empty: the folder has no Parquet, JSON Lines, JSON or CSV files"});
  write("broken.jsonl", "{\"question\": \n");
  expect({"stage.rl.files=FOLDER/broken.jsonl"}, {"broken.jsonl:1:"});
  write("empty.jsonl", "");
  expect({"stage.rl.files=FOLDER/empty.jsonl"}, {"has no rows"});
  expect({"stage.sft.eval_files=FOLDER/none.jsonl"}, {"none.jsonl: cannot open"});
  expect({"stage.pretrain.text_key=txet"}, {"corpus.jsonl:1", "txet"});
  expect({"stage.0.files=FOLDER/corpse.jsonl"}, {"stage tokenizer: ", "did you mean 'corpus.jsonl'?"});
}

TEST_F(RecipeCheck, AnUnknownColumnHasTheLineOfItsTemplate) {
  std::string text = with_folder(recipe_text);
  text.replace(text.find("Q: {question}"), 13, "Q: {quesion}");
  const std::string error = test::error_of([&] { check_recipe(read_recipe(Config::from_text(text, "recipe.toml"))); });
  for (const char* word : {"recipe.toml:21:10: stage sft: ", "train.jsonl:1: ", "unknown column", "'quesion'",
                           "did you mean 'question'?", "it has: question, answer, domain"})
    EXPECT_NE(error.find(word), std::string::npos) << error;
  expect({"stage.rl.answer='{anwser}'"},
         {"override 'stage.rl.answer='{anwser}'': stage grpo", "did you mean 'answer'?"});
  expect({"stage.rl.prompt='{question'"}, {"a { without }"});
}

// The engine would refuse every request of the first step.
TEST_F(RecipeCheck, AKvCacheThatHoldsNoRequestIsFoundAtTheStart) {
  expect({"rollout.kv_cache_tokens=32", "stage.rl.sampling.max_tokens=32"},
         {"sampling.max_tokens=32", "a prompt of 1 token and sampling.max_tokens = 32 take 33 tokens",
          "rollout.kv_cache_tokens is 32: lower max_tokens or raise kv_cache_tokens"});
  EXPECT_EQ(error_of({"rollout.kv_cache_tokens=48", "stage.rl.sampling.max_tokens=32"}), "no error");
  EXPECT_EQ(error_of({"rollout.kv_cache_tokens=64", "stage.rl.sampling.max_tokens=1000"}), "no error");
}

// With files that give the model's shape, and in families that do not have a key, the key would be ignored.
TEST_F(RecipeCheck, KeysOfAShapeThatChangeNothingAreErrors) {
  expect({"model.path=FOLDER/none"},
         {"recipe.toml:3:15: hidden_size has no effect: path gives the model's shape; remove hidden_size or path",
          "recipe.toml:4:21: intermediate_size has no effect"});
  expect({"stage.sft.decay_type=linear"},
         {"override 'stage.sft.decay_type=linear': stage sft: decay_type has no effect with lr_scheduler_type = "});
  expect({"stage.sft.lr_scheduler_type=linear", "stage.sft.decay_ratio=0.5"},
         {"stage sft: decay_ratio has no effect with lr_scheduler_type = linear: it is for wsd"});
  EXPECT_EQ(error_of({"stage.sft.lr_scheduler_type=wsd", "stage.sft.decay_ratio=0.5"}), "no error");
  write_file_atomic(path("config.json"), make_model(read({}).model.make_config(300), "test")->config().dump());
  const auto refuses = [&](const std::string& keys, const std::string& from, const std::string& key) {
    expect({"model={" + keys + ", " + from + "='FOLDER/config.json'}"},
           {concat(": ", key, " has no effect: ", from, " gives the model's ")});
  };
  EXPECT_EQ(error_of({"model={config='FOLDER/config.json', init={depth_scaled=true}}"}), "no error");
  for (const char* from : {"path", "config"})
    for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{{"family", "'qwen3'"},
                                                                                     {"hidden_size", "64"},
                                                                                     {"intermediate_size", "64"},
                                                                                     {"num_hidden_layers", "2"},
                                                                                     {"num_attention_heads", "2"},
                                                                                     {"num_key_value_heads", "2"},
                                                                                     {"head_dim", "16"},
                                                                                     {"vocab_size", "300"},
                                                                                     {"max_position_embeddings", "64"},
                                                                                     {"rope_theta", "5000.0"},
                                                                                     {"rms_norm_eps", "1e-5"},
                                                                                     {"initializer_range", "0.01"},
                                                                                     {"tie_word_embeddings", "false"}})
      refuses(key + "=" + value, from, key);
  refuses("init={depth_scaled=true}", "path", "init");
  refuses("config='FOLDER/config.json'", "path", "config");
}

TEST_F(RecipeCheck, KeysThatAFamilyDoesNotReadAreErrors) {
  const std::string inner = "model.router.moe_intermediate_size=48",
                    shared = "model.router.shared_expert_intermediate_size=16";
  const auto with = [](const std::string& family, const std::string& key) {
    return std::vector<std::string>{"model.family=" + family, "model.num_hidden_layers=4", "model.router.num_experts=4",
                                    key};
  };
  for (const char* family : {"mixtral", "olmoe", "gpt_oss"})
    expect(with(family, inner),
           {concat("override '", inner, "': moe_intermediate_size has no effect: the experts of the family ", family,
                   " have the width model.intermediate_size; set that key instead")});
  for (const char* family : {"qwen3_moe", "deepseek_v3"})
    expect(with(family, shared),
           {concat("override '", shared, "': shared_expert_intermediate_size has no effect: the family ", family,
                   " has no shared expert with a gate; remove the key, or choose qwen2_moe or hone_decoder")});
  for (const char* family : {"qwen2_moe", "qwen3_moe", "deepseek_v3"})
    EXPECT_EQ(error_of(with(family, inner)), "no error") << family;
  EXPECT_EQ(error_of(with("qwen2_moe", shared)), "no error");
  for (const char* key : {"rope_theta=5000.0", "rms_norm_eps=1e-5", "head_dim=32", "num_key_value_heads=1"}) {
    const std::string name = std::string(key).substr(0, std::string_view(key).find('='));
    EXPECT_EQ(error_of({concat("model.", key)}), "no error") << key;
    expect({"model.family=gpt2", concat("model.", key)},
           {concat("override 'model.", key, "': ", name,
                   " has no effect: layers of the family gpt2 do not have it; remove the key")});
  }
}

TEST_F(RecipeCheck, AdaptersThatNoStageTrainsAreAnError) {
  EXPECT_EQ(error_of({"model.lora.r=2"}), "no error");
  expect({"model.lora.r=2", "eval=[]",
          "stage=[{kind='tokenizer', files=['FOLDER/corpus.jsonl'], vocab_size=300}, "
          "{kind='pretrain', files=['FOLDER/corpus.jsonl'], steps=1}]"},
         {"override 'model.lora.r=2': model.lora has no effect: no stage of the recipe trains adapters"});
  expect({"model.lora.lora_alpha=4.0"}, {"model.lora has no effect: it has no r"});
  expect({"model.lora.merge=true"}, {"model.lora has no effect: it has no r"});
  EXPECT_EQ(error_of({"model.lora.lora_alpha=4.0", "model.lora.r=0"}), "no error");  // r switches adapters off
}

// What a later stage, or a step, would refuse.
TEST_F(RecipeCheck, KeysThatDoNotFitTheModelsLayersAreFoundAtTheStart) {
  const std::vector<std::string> deepseek{"model.family=deepseek_v3", "model.router.num_experts=4",
                                          "model.num_hidden_layers=4"};
  const auto and_with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), deepseek.begin(), deepseek.end());
    return more;
  };
  expect(and_with({"rollout.kv_cache_dtype=fp8"}), {"override 'rollout.kv_cache_dtype=fp8'", "latents"});
  const std::string rate = "model.router.bias_update_rate=0.01";
  EXPECT_EQ(error_of(and_with({rate, "parallel.zero=3", "parallel.ranks=2"})), "no error");
  EXPECT_NE(test::error_of([&] { read({"model.router.shared_expert_intermediate_size=-4"}); }).find("must be in [0, "),
            std::string::npos);
  EXPECT_NE(test::error_of([&] { read({"model.router.moe_intermediate_size=4"}); }).find("without num_experts"),
            std::string::npos);
}

// Names of parameters are known before the weights are.
TEST_F(RecipeCheck, ParameterGroupsMatchTensorsOfTheModel) {
  const auto with_group = [&](const std::string& match, const std::string& more = "") {
    std::string text = with_folder(recipe_text);
    const std::string before = "[[stage]]\nkind = \"sft\"";
    text.insert(text.find(before), concat("[[stage.groups]]\nmatch = \"", match, "\"\n", more));
    return test::error_of([&] { check_recipe(read_recipe(Config::from_text(text, "recipe.toml"))); });
  };
  EXPECT_EQ(with_group("*q_proj*"), "no error");
  const std::string none = with_group("*qproj*");
  for (const char* word : {"recipe.toml:19:9: stage pretrain: '*qproj*' matches no trained parameter; near it are ",
                           "model.layers.0.self_attn.q_proj.weight"})
    EXPECT_NE(none.find(word), std::string::npos) << none;
  const std::string malformed = with_group("(q_proj");
  EXPECT_NE(malformed.find("recipe.toml:19:9: match = '(q_proj' is no regular expression"), std::string::npos)
      << malformed;
  const std::string taken = with_group("*", "[[stage.groups]]\nmatch = \"*norm*\"\n");
  EXPECT_NE(taken.find("recipe.toml:21:9: stage pretrain: '*norm*' takes no parameter: groups before it"),
            std::string::npos)
      << taken;
}

TEST_F(RecipeCheck, AnOptimizerGoesOnWithOneOfItsKind) {
  EXPECT_EQ(error_of({"stage.sft.optimizer_from=previous"}), "no error");
  expect({"stage.sft.optimizer_from=previous", "stage.sft.optimizer=muon"},
         {"stage sft: optimizer_from = previous: the optimizer of stage pretrain is adamw, and this stage's is muon"});
  expect({"stage.sft.optimizer_from=previous", "stage.sft.moments=bf16"},
         {"override 'stage.sft.moments=bf16': stage sft: optimizer_from = previous: the moments of stage pretrain are "
          "f32, and this stage's are bf16: use the same"});
  expect({"stage.pretrain.optimizer_from=previous"},
         {"stage pretrain: optimizer_from = previous: no stage before this one trains, and the recipe has no "
          "model.path"});
  expect({"stage.sft.optimizer_from=first"}, {"optimizer_from is 'first': it must be previous, or empty"});
  expect({"stage.sft.optimizer_from=previous", "model.lora.r=2"},
         {"stage pretrain trains weights, and this stage trains the others"});
}

TEST_F(RecipeCheck, AllProblemsAreReportedAtOnce) {
  const std::string error = error_of({"stage.sft.prompt='{quesion}'", "stage.rl.files=FOLDER/none.jsonl",
                                      "eval.0.task=gsm8kk", "runs=FOLDER/train.jsonl/runs"});
  EXPECT_EQ(error.find("4 problems:\n  "), 0u) << error;
  for (const char* word : {"'quesion'", "none.jsonl", "gsm8kk", "it is a file"})
    EXPECT_NE(error.find(word), std::string::npos) << error;
}

// The recipe with sources in the place of a stage's files.
constexpr const char* with_sources = R"(
[[stage]]
kind = "sft"
name = "mixed"
steps = 1
prompt = "Q: {question}"
completion = " {answer}"
[[stage.source]]
name = "one"
files = ["FOLDER/train.jsonl"]
when = { column = "domain", equals = "sums" }
[[stage.source]]
name = "two"
files = ["FOLDER/more.jsonl"]
[[stage]]
kind = "rl"
name = "mixed_rl"
prompt = "Q: {question}"
prompts_per_step = 2
num_generations = 2
steps = 1
[[stage.source]]
name = "one"
files = ["FOLDER/train.jsonl"]
reward = { kind = "exact" }
[[stage.source]]
name = "two"
files = ["FOLDER/more.jsonl"]
reward = { kind = "number" }
)";

TEST_F(RecipeCheck, EverySourceIsCheckedAndNamed) {
  const auto problem = [&](const std::vector<std::string>& overrides) {
    std::vector<std::string> placed;
    for (const std::string& one : overrides) placed.push_back(with_folder(one));
    return test::error_of([&] {
      check_recipe(
          read_recipe(Config::from_text(with_folder(std::string(recipe_text) + with_sources), "recipe.toml", placed)));
    });
  };
  const auto expect_words = [&](const std::vector<std::string>& overrides, const std::vector<std::string>& words) {
    const std::string error = problem(overrides);
    for (const std::string& word : words) EXPECT_NE(error.find(with_folder(word)), std::string::npos) << error;
  };
  EXPECT_EQ(problem({}), "no error");
  expect_words({"stage.mixed.source.1.files=FOLDER/none.jsonl"},
               {"override 'stage.mixed.source.1.files=", "stage mixed: source two: FOLDER/none.jsonl: cannot open"});
  expect_words({"stage.mixed_rl.source.two.prompt='{quesion}'"},
               {"stage mixed_rl: source two: ", "more.jsonl:1: ", "did you mean 'question'?"});
  expect_words({"stage.mixed.source.one.when.equals=words"}, {"source one: ", "has no rows that `when` takes"});
  expect_words({"stage.mixed.source.two.chat=llama3"}, {"override 'stage.mixed.source.two.chat=llama3': stage mixed"});
  expect_words({"stage.mixed_rl.source.two.reward={}"}, {"source two: rl: the stage needs a reward"});
  expect_words({"stage.mixed_rl.source.two.reward={kind='python', path='none.py'}"}, {"source two: ", "none.py"});
  expect_words({"stage.mixed_rl.source.two.reward={kind='nmber'}"}, {"did you mean 'number'?"});
}

TEST_F(RecipeCheck, AFileWithoutARowThatWhenTakesIsNoProblemBesideOthers) {
  EXPECT_EQ(error_of({"stage.sft.when.column=domain"}), "no error");  // more.jsonl has no such column
  expect({"stage.sft.when.column=domian"}, {"has no rows that `when` takes"});
}

TEST_F(RecipeCheck, ChatFormatsAreTriedOnTheFirstRow) {
  expect({"stage.sft.chat=template"}, {"override 'stage.sft.chat=template': stage sft", "chat format template"});
  expect({"stage.rl.chat=template"}, {"override 'stage.rl.chat=template': stage grpo", "chat format template"});
  expect({"stage.rl.chat=llama3"}, {"override 'stage.rl.chat=llama3': stage grpo"});
  EXPECT_EQ(error_of({"stage.rl.chat=plain"}), "no error");
}

TEST_F(RecipeCheck, EvaluationTasksAreMadeUpToTheirFirstPrompt) {
  write("task.toml", std::string(task_text) + "num_fewshot = 3\nfewshot = { files = [\"FOLDER/more.jsonl\"] }\n");
  expect({}, {"recipe.toml:9:8: ", "3 examples are needed"});
  std::string text = task_text;
  text.replace(text.find("{answer}"), 8, "{anser}");
  write("task.toml", text);
  expect({}, {"train.jsonl:1", "'anser'", "did you mean 'answer'?"});
  write("choices.toml", "kind = \"multiple_choice\"\nfiles = [\"FOLDER/train.jsonl\"]\nprompt = \"{question}\"\n");
  expect({"eval.0.task=FOLDER/choices.toml"}, {"train.jsonl:1", "choices"});
  write("likely.toml", "kind = \"loglikelihood\"\nfiles = [\"FOLDER/train.jsonl\"]\nprompt = \"{question}\"\n");
  expect({"eval.0.task=FOLDER/likely.toml"}, {"'continuation'"});
  write("text.toml", "kind = \"perplexity\"\nfiles = [\"FOLDER/train.jsonl\"]\n");
  expect({"eval.0.task=FOLDER/text.toml"}, {"'text'"});
}

TEST_F(RecipeCheck, RewardsAreTried) {
  expect({"stage.rl.reward={kind = 'process', command = ['/nowhere/judge']}"}, {"/nowhere/judge: cannot be started"});
  expect({"stage.rl.reward={kind = 'process', command = ['true']}"}, {"stage grpo: process: true: "});
  expect({"stage.rl.reward={kind = 'library', path = 'FOLDER/none.so'}"}, {"none.so: cannot open"});
  expect({"stage.rl.reward={kind = 'http', url = 'ftp://x'}", "stage.rl.steps=2"}, {"ftp"});
  expect({"stage.rl.reward={kind = 'composite', parts = [{kind = 'exact', when = {column = 'domain', equals = 'x'}}]}"},
         {"no part applies to FOLDER/train.jsonl:1", "needs column 'domain', which is \"sums\""});
  expect({"stage.rl.reward={kind = 'composite', parts = [{kind = 'exact'}, "
          "{kind = 'library', path = 'FOLDER/none.so'}]}"},
         {"composite: library: ", "none.so"});
  expect({"stage.rl.reward={kind = 'reward_model', path = 'FOLDER/none'}"}, {"no such folder"});
}

TEST_F(RecipeCheck, ReferencesThatCannotFollowThePolicy) {
  EXPECT_EQ(error_of({"stage.rl.beta=0.1", "stage.rl.sync_ref_model=true"}), "no error");
  expect({"stage.rl.sync_ref_model=true"},
         {"override 'stage.rl.sync_ref_model=true'", "the stage's objective keeps none"});
  expect({"stage.rl.beta=0.1", "stage.rl.sync_ref_model=true", "model.lora.r=2"},
         {"override 'stage.rl.sync_ref_model=true': stage grpo: sync_ref_model updates a reference with weights of its "
          "own; with adapters (model.lora)"});
  expect({"stage.rl.beta=0.1", "stage.rl.sync_ref_model=true", "stage.rl.ref_model_mixup_alpha=1.5"},
         {"ref_model_mixup_alpha must be in [0, 1]"});
  expect({"stage.rl.ref_model_sync_steps=0"}, {"ref_model_sync_steps must be positive"});
}

TEST_F(RecipeCheck, KeysOfOnlinePairsAndOfAWarmUp) {
  expect({"stage.rl.critic_warmup=2"}, {"override 'stage.rl.critic_warmup=2'", "grpo has no critic to warm up"});
  expect({"stage.rl.objective=ppo", "stage.rl.critic_warmup=-1"}, {"critic_warmup must be 0 or more"});
  EXPECT_EQ(error_of({"stage.rl.objective=ppo", "stage.rl.critic_warmup=1"}), "no error");
  const auto online = [](std::vector<std::string> keys) {
    for (std::string& key : keys) key = "stage.3." + key;
    keys.insert(keys.begin(), "stage.3.kind=online_dpo");
    return keys;
  };
  EXPECT_EQ(error_of(online({})), "no error");
  EXPECT_EQ(error_of(online({"objective=simpo", "margin=-1", "pairs_per_prompt=2"})), "no error");
  expect(online({"num_generations=1"}), {"override 'stage.3.num_generations=1'", "a pair needs two completions"});
  expect(online({"margin=-0.5"}), {"margin must be 0 or more, or -1"});
  expect(online({"pairs_per_prompt=0"}), {"pairs_per_prompt must be positive"});
  expect(online({"missing_eos_penalty=-1"}), {"missing_eos_penalty must be 0 or more"});
  expect(online({"objective=grpo"}), {"grpo learns from", "its objectives are dpo, orpo, simpo"});
  expect(online({"critic_warmup=1"}), {"critic_warmup"});
  expect({"stage.rl.objective=dpo"}, {"dpo learns from pairs", "kind = \"online_dpo\" samples them"});
}

TEST_F(RecipeCheck, PythonFunctionsAreImportedAndTheirParametersCompared) {
  if (std::system("python3 --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3";
  write("rewards.py",
        "def good(completions, question, **columns):\n    return [0.0] * len(completions)\n"
        "def asks(completions, anser):\n    return [0.0] * len(completions)\n"
        "def defaults(completions, anser=None):\n    return [0.0] * len(completions)\n");
  write("broken.py", "def good(:\n");
  const auto reward = [](const std::string& file, const std::string& function) {
    return "stage.rl.reward={kind = 'python', path = 'FOLDER/" + file + "', function = '" + function + "'}";
  };
  EXPECT_EQ(error_of({reward("rewards.py", "good")}), "no error");
  EXPECT_EQ(error_of({reward("rewards.py", "defaults")}), "no error");
  expect({reward("rewards.py", "asks")}, {"rewards.py", "parameter anser", "did you mean answer?"});
  expect({reward("rewards.py", "god")}, {"no function god; did you mean good?"});
  expect({reward("broken.py", "good")}, {"broken.py", "SyntaxError"});
  expect({reward("reward.py", "good")}, {"reward.py: cannot open", "did you mean 'rewards.py'?"});
}

TEST_F(RecipeCheck, WhatAnEarlierStageWritesIsNotMissing) {
  const std::string model = "stage.rl.reward={kind = 'reward_model', path = 'FOLDER/runs/run/checkpoints/";
  EXPECT_EQ(error_of({model + "sft/step-1'}"}), "no error");
  expect({model + "grpo/step-1'}"}, {"no such folder"});
}

TEST_F(RecipeCheck, ModelsBesideThePolicyAreRead) {
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context(*device);
  test::save_stranger(context, 270, 40, path("draft"));
  expect({"rollout.speculative.method=draft_model", "rollout.speculative.model=FOLDER/drift"},
         {"rollout.speculative.model", "did you mean 'draft'?"});
  EXPECT_EQ(error_of({"rollout.speculative.method=draft_model", "rollout.speculative.model=FOLDER/draft"}), "no error");
  std::filesystem::remove(path("draft/model.safetensors"));
  expect({"rollout.speculative.method=draft_model", "rollout.speculative.model=FOLDER/draft"}, {"draft"});
  expect({"rollout.speculative.method=mtp"}, {"rollout.speculative.method", "this one has none"});
  EXPECT_EQ(error_of({"rollout.speculative.method=mtp", "model.num_nextn_predict_layers=1"}), "no error");
  expect({"model={path='FOLDER/train.jsonl'}"}, {"override 'model={path=", "not a model folder"});
  expect({"model.vocab_size=280"}, {"recipe.toml:13:14", "300", "280"});
}

TEST_F(RecipeCheck, AResumedRunChecksTheStagesThatAreNotDone) {
  const auto resumed = [&](int64_t stages_done) {
    return test::error_of([&] { check_resumed(read({}), path("runs/run"), stages_done, {}); });
  };
  std::filesystem::remove(path("more.jsonl"));
  write("runs/run/tokenizer/tokenizer.json", "no JSON");
  EXPECT_NE(resumed(0).find("more.jsonl"), std::string::npos) << resumed(0);
  std::filesystem::remove_all(path("runs/run/tokenizer"));
  EXPECT_NE(resumed(2).find("more.jsonl"), std::string::npos) << resumed(2);
  EXPECT_EQ(resumed(3).find("more.jsonl"), std::string::npos) << resumed(3);
  // A begun pretrain stage reads its own tokens.
  write("more.jsonl", "{\"question\": \"1 + 2?\", \"answer\": \"3\"}\n");
  std::filesystem::remove(path("corpus.jsonl"));
  EXPECT_NE(resumed(1).find("corpus.jsonl"), std::string::npos) << resumed(1);
  write("runs/run/data/pretrain/tokens.bin", "tokens");
  EXPECT_EQ(resumed(1).find("corpus.jsonl"), std::string::npos) << resumed(1);
}

}  // namespace
}  // namespace hone
