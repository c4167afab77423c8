// run.json: errors name what is wrong with it, and name a recipe key that an unfinished run cannot change.
#include "run/run_state.h"

#include <gtest/gtest.h>

#include "core/io/file.h"
#include "run/input_digests.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"
#include "train/stage.h"

namespace hone::test {
namespace {

constexpr const char* recipe_text = R"(
seed = 3
[model]
hidden_size = 32
[[stage]]
kind = "tokenizer"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
vocab_size = 270
[[stage]]
kind = "pretrain"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
batch_size = 8
steps = 12
[[stage]]
kind = "sft"
files = ["a.jsonl"]
batch_size = 4
steps = 5
)";

Recipe recipe_with(const std::vector<std::string>& overrides = {}) {
  return read_recipe(Config::from_text(recipe_text, "recipe.toml", overrides));
}

Json done_stage(const std::string& name) {
  return JsonObject{{"name", name}, {"kind", name},   {"steps", 0},         {"kept_step", 0},
                    {"tokens", 0},  {"seconds", 0.5}, {"eval", JsonArray{}}};
}
Json changed(Json stage, const std::string& member, const Json& value) {
  stage.set(member, value);
  return stage;
}

class RunStateTest : public ::testing::Test {
 protected:
  // A run whose tokenizer stage is done; its pretrain stage has a checkpoint.
  RunStateTest() {
    state.stages_done = 1;
    state.evaluated = true;
    state.stages = JsonArray{done_stage("tokenizer")};
    state.save(folder.path(), recipe_with());
    std::filesystem::create_directories(folder.path() / "checkpoints" / "pretrain" / "step-5");
  }
  std::string error_with(const std::string& member, const Json& value) {
    Json json = parse_json(read_file(path()), "run.json");
    json.set(member, value);
    const TemporaryFolder other;
    write_file_atomic(other.path() / "run.json", json.dump());
    return error_of([&] { RunState::load(other.path(), recipe_with()); });
  }
  std::string error_of_change(const std::vector<std::string>& overrides) {
    const Recipe recipe = recipe_with(overrides);
    return error_of([&] { check_same_recipe(RunState::load(folder.path(), recipe), folder.path(), recipe); });
  }
  std::filesystem::path path() const { return folder.path() / "run.json"; }
  TemporaryFolder folder;
  RunState state;
};

TEST_F(RunStateTest, ReadsWhatItWrote) {
  const RunState read = RunState::load(folder.path(), recipe_with());
  EXPECT_EQ(read.stages_done, 1);
  EXPECT_TRUE(read.evaluated);
  EXPECT_EQ(read.recipe.dump(), state.recipe.dump());
}

TEST_F(RunStateTest, AMemberThatDoesNotFitIsNamedWithTheFile) {
  for (const auto& [member, value, words] : std::vector<std::tuple<std::string, Json, std::string>>{
           {"stages_done", 99, "run.json: stages_done is 99, the recipe has 3 stages"},
           {"stages_done", -1, "run.json: stages_done is -1"},
           {"stages_done", 2, "run.json: stages_done is 2, stages lists 1"},
           {"stages_done", "one", "run.json: stages_done: expected an integer"},
           {"stages_done", 1e300, "run.json: stages_done: expected an integer"},
           {"evaluated", 1, "run.json: evaluated: expected a boolean"},
           {"initial", JsonObject{}, "run.json: initial: expected an array"},
           {"stages", JsonArray{done_stage("sft")},
            "run.json: stages[0].name is 'sft', the recipe's stage in this place is 'tokenizer'"},
           {"stages", JsonArray{3}, "run.json: stages[0]: expected an object"},
           {"stages", JsonArray{JsonObject{{"name", "tokenizer"}}}, "run.json: stages[0]: member 'steps' is missing"},
           {"stages", JsonArray{changed(done_stage("tokenizer"), "tokens", "many")},
            "run.json: stages[0].tokens: expected an integer"},
           {"stages", JsonArray{changed(done_stage("tokenizer"), "seconds", "long")},
            "run.json: stages[0].seconds: expected a number"},
           {"stages", JsonArray{changed(done_stage("tokenizer"), "planned_steps", -2)},
            "run.json: stages[0].planned_steps is negative"},
           {"stages", JsonArray{changed(done_stage("tokenizer"), "eval", JsonArray{5})},
            "run.json: stages[0].eval's result: expected an object"},
           {"initial", JsonArray{5}, "run.json: initial's result: expected an object"},
           {"log", JsonObject{}, "run.json: log: member 'metrics_bytes' is missing"},
           {"log", JsonObject{{"metrics_bytes", -4}, {"samples_bytes", 0}},
            "run.json: log.metrics_bytes is negative"}}) {
    const std::string error = error_with(member, value);
    EXPECT_NE(error.find(words), std::string::npos) << words << "\n" << error;
  }
}

// A stage counts as done only while the model that it saved exists.
TEST_F(RunStateTest, ADoneStageHasTheCheckpointThatTheNextOneStartsFrom) {
  state.stages_done = 2;
  state.stages = JsonArray{done_stage("tokenizer"), changed(done_stage("pretrain"), "kept_step", 7)};
  state.save(folder.path(), recipe_with());
  const auto error = [&] { return error_of([&] { RunState::load(folder.path(), recipe_with()); }); };
  EXPECT_NE(error().find("run.json: stages[1].kept_step is 7, and there is no checkpoint"), std::string::npos)
      << error();
  std::filesystem::create_directories(folder.path() / "checkpoints" / "pretrain" / "step-7");
  EXPECT_EQ(error(), "no error");
}

TEST_F(RunStateTest, ADamagedRecipeIsNamedWithTheFile) {
  state.recipe.set("stage", JsonArray{JsonObject{}});
  const Recipe recipe = recipe_with();
  const std::string error = error_of([&] { check_same_recipe(state, folder.path(), recipe); });
  EXPECT_NE(error.find("run.json: recipe.stage[0]: member 'name' is missing"), std::string::npos) << error;
}

TEST_F(RunStateTest, AKeyThatTheRunIsMadeOfCannotChange) {
  for (const auto& [change, key] : std::vector<std::pair<std::string, std::string>>{
           {"model.hidden_size=64", "model.hidden_size is 64, but the run began with 32"},
           {"model.num_hidden_layers=7", "model.num_hidden_layers is 7"},
           {"model.lora.r=4", "model.lora.r is 4"},
           {"seed=4", "seed is 4"},
           {"dtype=\"f32\"", "dtype is \"f32\""},
           {"stage.tokenizer.vocab_size=280", "stage.tokenizer.vocab_size is 280"},
           {"stage.pretrain.batch_size=9", "stage.pretrain.batch_size is 9"},
           {"stage.pretrain.optimizer=\"sgd\"", "stage.pretrain.optimizer is \"sgd\""},
           {"stage.pretrain.generator.digits=2", "stage.pretrain.generator.digits is 2"}}) {
    const std::string error = error_of_change({change});
    EXPECT_NE(error.find(key), std::string::npos) << change << "\n" << error;
    EXPECT_NE(error.find("set it back, or start a new run"), std::string::npos) << error;
  }
}

// The run's recipe has keys of the former optimizer or objective. Before the kind was compared, they were "unknown".
TEST_F(RunStateTest, TheKindOfABegunStageCannotChangeAndTheErrorSaysSo) {
  const Recipe recipe = recipe_with();
  write_file_atomic(folder.path() / "recipe.toml", to_toml([&](Fields& f) { Recipe(recipe).fields(f); }));
  std::filesystem::create_directories(folder.path() / "checkpoints" / "sft" / "step-2");
  const auto error_of_override = [&](const std::string& change) {
    return error_of([&] { read_run_recipe(folder.path(), {&change, 1}); });
  };
  for (const auto& [change, words] : std::vector<std::pair<std::string, std::string>>{
           {"stage.pretrain.optimizer=sgd", "stage.pretrain.optimizer is \"sgd\", but the run began with \"adamw\""},
           {"stage.sft.objective=kto", "stage.sft.objective is \"kto\", but the run began with \"sft\""},
           {"stage.sft.kind=preference", "stage.sft.kind is \"preference\", but the run began with \"sft\""},
           {"stage.tokenizer.kind=sft", "stage.tokenizer.kind is \"sft\", but the run began with \"tokenizer\""}}) {
    const std::string error = error_of_override(change);
    EXPECT_NE(error.find(words), std::string::npos) << change << "\n" << error;
    EXPECT_NE(error.find("set it back, or start a new run"), std::string::npos) << error;
  }
  EXPECT_EQ(error_of_override("stage.pretrain.learning_rate=1e-4"), "no error");
}

// A stage that has not begun may change its kind and its keys.
TEST_F(RunStateTest, KeysOfAFormerKindAreExplained) {
  const Recipe recipe = recipe_with();
  write_file_atomic(folder.path() / "recipe.toml", to_toml([&](Fields& f) { Recipe(recipe).fields(f); }));
  const std::string change = "stage.sft.optimizer=sgd", error = error_of([&] {
                                                          read_run_recipe(folder.path(), {&change, 1});
                                                        });
  EXPECT_NE(error.find("unknown key"), std::string::npos) << error;
  EXPECT_NE(error.find("stage.sft.optimizer was \"adamw\": remove the keys of that kind"), std::string::npos) << error;
}

class MovedInputs : public ::testing::Test {
 protected:
  MovedInputs() {
    write_model(folder.path() / "model", "weights");
    state.evaluated = true;
    state.inputs = input_digests(recipe_from("model"));
    state.save(folder.path(), recipe_from("model"));
  }
  static void write_model(const std::filesystem::path& at, const std::string& weights) {
    std::filesystem::create_directories(at);
    write_file_atomic(at / "config.json", "{}");
    write_file_atomic(at / "tokenizer.json", "{\"model\": {}}");
    std::string file(1 << 20, 'x');
    file.replace(1 << 19, weights.size(), weights);
    write_file_atomic(at / "model.safetensors", file);
  }
  Recipe recipe_from(const std::string& name) const {
    return recipe_with({concat("model={path=\"", (folder.path() / name).string(), "\"}")});
  }
  std::string error_with(const std::string& name) const {
    const Recipe recipe = recipe_from(name);
    return error_of([&] { check_same_recipe(RunState::load(folder.path(), recipe), folder.path(), recipe); });
  }
  TemporaryFolder folder;
  RunState state;
};

TEST_F(MovedInputs, AModelMayMove) {
  std::filesystem::rename(folder.path() / "model", folder.path() / "moved");
  EXPECT_EQ(error_with("moved"), "no error");
}

// The reference of the first stage would be read from it.
TEST_F(MovedInputs, AnotherModelIsRefused) {
  write_model(folder.path() / "other", std::string(1 << 15, 'y'));
  EXPECT_NE(error_with("other").find("recipe.toml: model.path: the contents of its files have changed"),
            std::string::npos)
      << error_with("other");
}

TEST_F(MovedInputs, AnotherTokenizerIsRefused) {
  write_file_atomic(folder.path() / "model" / "tokenizer.json", "{\"model\": {\"type\": \"BPE\"}}");
  EXPECT_NE(error_with("model").find("recipe.toml: tokenizer: the contents of its files have changed"),
            std::string::npos)
      << error_with("model");
}

TEST_F(MovedInputs, BeforeTheFirstStepAnythingMayChange) {
  write_model(folder.path() / "other", std::string(1 << 15, 'y'));
  state.evaluated = false;
  state.save(folder.path(), recipe_from("model"));
  EXPECT_EQ(error_with("other"), "no error");
}

// A run whose sft stage has begun.
class ChangedRows : public ::testing::Test {
 protected:
  ChangedRows() {
    write("a.jsonl", "{\"prompt\": \"1\", \"completion\": \"2\"}\n");
    write("held.jsonl", "{\"prompt\": \"3\", \"completion\": \"4\"}\n");
    state.stages_done = 2;
    state.evaluated = true;
    state.stages = JsonArray{done_stage("tokenizer"), done_stage("pretrain")};
    std::filesystem::create_directories(folder.path() / "checkpoints" / "pretrain" / "step-0");
    std::filesystem::create_directories(folder.path() / "checkpoints" / "sft" / "step-2");
  }
  std::string path(const std::string& name) const { return (folder.path() / name).string(); }
  void write(const std::string& name, const std::string& text) const { write_file_atomic(path(name), text); }
  Recipe with_files(const std::string& a, const std::string& held) const {
    return recipe_with(
        {concat("stage.sft.files=[\"", path(a), "\"]"), concat("stage.sft.eval_files=[\"", path(held), "\"]")});
  }
  // The run begins its stage with the first recipe and goes on with the second.
  void begin(const Recipe& recipe) {
    state.inputs = row_digests(recipe.stage[2]);
    state.save(folder.path(), recipe);
  }
  std::string resume_error(const Recipe& recipe) const {
    return error_of([&] { check_same_recipe(RunState::load(folder.path(), recipe), folder.path(), recipe); });
  }
  TemporaryFolder folder;
  RunState state;
};

// The number of rows does not show it.
TEST_F(ChangedRows, AreRefusedWithTheFile) {
  begin(with_files("a.jsonl", "held.jsonl"));
  EXPECT_EQ(resume_error(with_files("a.jsonl", "held.jsonl")), "no error");
  write("a.jsonl", "{\"prompt\": \"1\", \"completion\": \"9\"}\n");
  const std::string error = resume_error(with_files("a.jsonl", "held.jsonl"));
  EXPECT_NE(error.find(concat("recipe.toml: stage.sft.files: the contents of ", path("a.jsonl"), " have changed")),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("restore them, or start a new run"), std::string::npos) << error;
}

TEST_F(ChangedRows, HeldOutOnesToo) {
  begin(with_files("a.jsonl", "held.jsonl"));
  write("held.jsonl", "{\"prompt\": \"3\", \"completion\": \"5\"}\n");
  const std::string error = resume_error(with_files("a.jsonl", "held.jsonl"));
  EXPECT_NE(error.find(concat("stage.sft.eval_files: the contents of ", path("held.jsonl"))), std::string::npos)
      << error;
}

TEST_F(ChangedRows, FilesMayMove) {
  begin(with_files("a.jsonl", "held.jsonl"));
  std::filesystem::rename(path("a.jsonl"), path("b.jsonl"));
  EXPECT_EQ(resume_error(with_files("b.jsonl", "held.jsonl")), "no error");
}

// The stage's own check reports the missing file.
TEST_F(ChangedRows, AMissingFileIsNoChangedOne) {
  begin(with_files("a.jsonl", "held.jsonl"));
  std::filesystem::remove(path("a.jsonl"));
  EXPECT_EQ(resume_error(with_files("a.jsonl", "held.jsonl")), "no error");
}

TEST_F(ChangedRows, AShardOfAFolderAndASourcesFile) {
  std::filesystem::create_directories(folder.path() / "set");
  for (const char* shard : {"set/train-00000-of-00002.jsonl", "set/train-00001-of-00002.jsonl"})
    write(shard, "{\"prompt\": \"1\", \"completion\": \"2\"}\n");
  const std::string keys = concat("stage.sft.source=[{name=\"one\", files=[\"", path("a.jsonl"),
                                  "\"]}, {name=\"two\", files=[\"", path("set"), "\"]}]");
  const Recipe recipe = recipe_with({"stage.sft.files=[]", keys});
  begin(recipe);
  EXPECT_EQ(resume_error(recipe), "no error");
  write("set/train-00001-of-00002.jsonl", "{\"prompt\": \"1\", \"completion\": \"3\"}\n");
  const std::string error = resume_error(recipe);
  EXPECT_NE(error.find(concat("stage.sft.source.1.files: the contents of ", path("set/train-00001-of-00002.jsonl"))),
            std::string::npos)
      << error;
}

// It may read other rows.
TEST_F(ChangedRows, AStageThatHasNotBegunIsNotCompared) {
  begin(with_files("a.jsonl", "held.jsonl"));
  std::filesystem::remove_all(folder.path() / "checkpoints" / "sft");
  write("a.jsonl", "{\"prompt\": \"1\", \"completion\": \"9\"}\n");
  EXPECT_EQ(resume_error(with_files("a.jsonl", "held.jsonl")), "no error");
}

TEST_F(RunStateTest, OtherKeysMayChangeAndSoMayStagesThatHaveNotBegun) {
  EXPECT_EQ(error_of_change({}), "no error");
  for (const char* change : {"stage.pretrain.steps=20", "stage.pretrain.learning_rate=1e-5",
                             "stage.pretrain.micro_batch_tokens=512", "threads=1", "runs=\"elsewhere\"",
                             "model.save_dtype=\"bf16\"", "stage.sft.batch_size=9", "stage.sft.files=[\"b.jsonl\"]"})
    EXPECT_EQ(error_of_change({change}), "no error") << change;
}

TEST_F(RunStateTest, ARunThatHasMadeNothingYetMayChange) {
  RunState fresh;
  fresh.save(folder.path(), recipe_with());
  std::filesystem::remove_all(folder.path() / "checkpoints");
  EXPECT_EQ(error_of_change({"model.hidden_size=64", "stage.pretrain.batch_size=9"}), "no error");
}

TEST_F(RunStateTest, AStageThatHasBegunStaysInTheRecipe) {
  const std::string text = recipe_text;
  const auto shortened = [&](const std::string& stage) {
    return text.substr(0, text.find("[[stage]]\nkind = \"" + stage));
  };
  const auto error_for = [&](const std::string& shorter) {
    const Recipe recipe = read_recipe(Config::from_text(shorter, "recipe.toml"));
    return error_of([&] { check_same_recipe(RunState::load(folder.path(), recipe), folder.path(), recipe); });
  };
  EXPECT_EQ(error_for(shortened("sft")), "no error");
  EXPECT_NE(error_for(shortened("pretrain")).find("stage.pretrain"), std::string::npos)
      << error_for(shortened("pretrain"));
}

// Run folders from before renamings resume: the same values under other names are no change.
TEST(RunState, OldNamesInRunJsonAreTodaysKeys) {
  const std::string text =
      "[[stage]]\nkind = \"unpaired_preference\"\nfiles = [\"a.jsonl\"]\noverlong_rows = \"error\"\n";
  const Recipe recipe = read_recipe(Config::from_text(text, "recipe.toml"));
  const TemporaryFolder folder;
  RunState state;
  state.evaluated = true;
  state.save(folder.path(), recipe);
  std::filesystem::create_directories(folder.path() / "checkpoints" / "kto" / "step-5");
  const std::string path = (folder.path() / "run.json").string();
  std::string json = read_file(path);
  for (const auto& [now, before] : {std::pair{"\"unpaired_preference\"", "\"labelled\""},
                                    {"\"overlong_rows\"", "\"too_long\""},
                                    {"\"max_num_seqs\"", "\"max_sequences\""}}) {
    ASSERT_NE(json.find(now), std::string::npos) << now;
    json.replace(json.find(now), std::string(now).size(), before);
  }
  write_file_atomic(path, json);
  const auto error_with = [&](const std::string& resumed_text) {
    const Recipe resumed = read_recipe(Config::from_text(resumed_text, "recipe.toml"));
    return error_of([&] { check_same_recipe(RunState::load(folder.path(), resumed), folder.path(), resumed); });
  };
  EXPECT_EQ(error_with(text), "no error");
  std::string changed = text;
  changed.replace(changed.find("\"error\""), 7, "\"skip\"");
  EXPECT_NE(error_with(changed).find("stage.kto.overlong_rows is \"skip\", but the run began with \"error\""),
            std::string::npos)
      << error_with(changed);
  // recipe.toml keeps the old names, whichever of them run.json has.
  write_file_atomic(folder.path() / "recipe.toml",
                    "[[stage]]\nkind = \"labelled\"\nfiles = [\"a.jsonl\"]\ntoo_long = \"error\"\n");
  EXPECT_EQ(error_of([&] { read_run_recipe(folder.path(), {}); }), "no error");
  state.save(folder.path(), recipe);
  EXPECT_EQ(error_of([&] { read_run_recipe(folder.path(), {}); }), "no error");
}

}  // namespace
}  // namespace hone::test
