// The recipes and tasks on real data: real weights give the values of an independent implementation, and training
// learns.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/io/file.h"
#include "tests/e2e/recipe_run.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

std::string stories(const fs::path& data) { return (data / "weights" / "stories260K").string(); }

Json reference_row(const fs::path& data, const std::string& kind) {
  Json out;
  read_jsonl(fs::path(stories(data)) / "reference.jsonl", [&](const Json& row, int64_t) {
    if (row.at("kind").as_string() == kind) out = row;
  });
  return out;
}

Json hone_json(const fs::path& data, const std::vector<std::string>& arguments) {
  const Finished done = run_hone(arguments, {"HONE_DATA=" + data.string()});
  EXPECT_EQ(done.code, 0) << done.err;
  return done.code == 0 ? parse_json(done.out, "hone's output") : Json(JsonObject{});
}

TEST(RealWeights, EvalGivesTheNatsPerTokenOfAnIndependentForward) {
  HONE_SHARED_OR_SKIP(data, "data");
  const Json expected = reference_row(data, "val_nll");
  const Json result =
      hone_json(data, {"eval", "--model", stories(data), "--task", "tinystories", "--limit", "60", "--json"});
  const Json& metrics = result.at("metrics");
  EXPECT_EQ(metrics.at("predicted_tokens").as_double(), expected.at("tokens").as_double());
  EXPECT_NEAR(metrics.at("nats_per_token").as_double(), expected.at("mean_nll").as_double(), 1e-4);
  EXPECT_NEAR(metrics.at("bits_per_byte").as_double(), 0.885, 0.001);
}

TEST(RealWeights, GenerateTellsTheGreedyStory) {
  HONE_SHARED_OR_SKIP(data, "data");
  const Json expected = reference_row(data, "greedy");
  JsonArray story = expected.at("output_ids").as_array();
  const JsonArray prompt = expected.at("input_ids").as_array();
  story.erase(story.begin(), story.begin() + static_cast<std::ptrdiff_t>(prompt.size()));
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "prompts.jsonl") << Json(JsonObject{{"ids", prompt}}).dump() << "\n";
  const Json reply =
      hone_json(data, {"generate", "--model", stories(data), "--prompts", (folder.path() / "prompts.jsonl").string(),
                       "--temperature", "0", "--max-tokens", std::to_string(story.size()), "--json"});
  EXPECT_EQ(reply.at("ids"), Json(story));
}

TEST(RealTasks, AllOfGsm8kFromStartToReport) {
  HONE_SHARED_OR_SKIP(data, "data");
  const TemporaryFolder folder;
  std::string task = read_file(source_folder() / "configs" / "tasks" / "gsm8k.toml");
  const size_t longest = task.find("max_tokens = 256");
  ASSERT_NE(longest, std::string::npos);
  std::ofstream(folder.path() / "short.toml") << task.replace(longest, 16, "max_tokens = 3");
  const fs::path out = folder.path() / "evaluation";
  const Json result =
      hone_json(data, {"eval", "--model", stories(data), "--task", (folder.path() / "short.toml").string(),
                       "--num-fewshot", "0", "--out", out.string(), "--json"});
  EXPECT_EQ(result.at("num_problems").as_int(), 1319);
  EXPECT_EQ(result.at("ci95").as_array().size(), 2u);
  int64_t right = 0, rows = 0;
  read_jsonl(out / "samples_short.jsonl", [&](const Json& row, int64_t) {
    right += row.at("correct").as_bool();
    EXPECT_FALSE(row.at("target").as_string().empty());
    ++rows;
  });
  EXPECT_EQ(rows, 1319);
  EXPECT_NEAR(result.at("accuracy").as_double(), static_cast<double>(right) / 1319, 1e-12);
}

TEST(RealRecipes, SftOnInstructionsLowersTheLossAndDpoTellsChosenFromRejected) {
  HONE_SHARED_OR_SKIP(data, "data");
  const RecipeRun sft(data, "rasbt_sft", {"stage.sft.steps=60"});
  const auto [loss_before, loss_after] = sft.first_and_last("loss", 5);
  EXPECT_LT(loss_after, loss_before - 1);
  const RecipeRun dpo(
      data, "rasbt_dpo",
      {"stage.dpo.steps=40", "model.path=" + (sft.path() / "checkpoints" / "sft" / "step-60").string()});
  EXPECT_GT(dpo.first_and_last("rewards/accuracies", 10).second, 0.75);
  EXPECT_GT(dpo.first_and_last("rewards/margins", 10).second, 0.5);
}

TEST(RealRecipes, GrpoRaisesTheRewardFromRandomWeights) {
  HONE_SHARED_OR_SKIP(data, "data");
  const RecipeRun grpo(data, "digit_completion",
                       {"stage.grpo.steps=30", "stage.grpo.lr_scheduler_type=constant", "eval=[]"});
  const auto [before, after] = grpo.first_and_last("reward", 10);
  EXPECT_LT(grpo.first_and_last("reward", 2).first, 0.03);
  EXPECT_GT(after, before + 0.05);
  EXPECT_EQ(grpo.first_and_last("sampling/sampling_logp_difference/max", 15), std::pair(0.0, 0.0));
}

// Matrix products on the CPU use the stack register for data; a handler's frame there would corrupt the heap. One
// signal stops the run at the end of its step. A second one ends the process at once, by that signal.
TEST(RealRecipes, SignalsInTheMiddleOfAStepStopTheRunAndNothingElse) {
  HONE_SHARED_OR_SKIP(data, "data");
  for (const int signals : {1, 2}) {
    const TemporaryFolder folder;
    Process process({"run", (source_folder() / "configs" / "digit_completion.toml").string(),
                     "runs=" + folder.path().string(), "name=run", "eval=[]"},
                    {"HONE_DATA=" + data.string()});
    for (int i = 0; i < 600 && !fs::exists(folder.path() / "run" / "metrics.jsonl"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    process.signal(SIGTERM);
    if (signals == 2) process.signal(SIGINT);  // two equal signals may arrive as one
    const Finished stopped = process.wait();
    if (signals == 1)
      EXPECT_EQ(stopped.code, 1) << stopped.err;
    else
      EXPECT_TRUE(stopped.code == 128 + SIGTERM || stopped.code == 128 + SIGINT) << stopped.code;
    EXPECT_EQ(stopped.err.find("hone run --resume") != std::string::npos, signals == 1) << stopped.err;
  }
}

TEST(RealRecipes, SftSpeaksAChatFormatOfTheRecipe) {
  HONE_SHARED_OR_SKIP(data, "data");
  const RecipeRun sft(data, "rasbt_sft", {"stage.sft.chat=plain", "stage.sft.steps=20", "stage.sft.limit=200"});
  const auto [before, after] = sft.first_and_last("loss", 4);
  EXPECT_LT(after, before - 0.5);
}

TEST(RealRecipes, PretrainingOnStoriesLowersBitsPerByte) {
  HONE_SHARED_OR_SKIP(data, "data");
  const RecipeRun run(data, "tinystories",
                      {"stage.pretrain.steps=25", "stage.pretrain.warmup_steps=5", "model.hidden_size=64",
                       "model.num_attention_heads=2", "model.intermediate_size=160", "model.num_hidden_layers=2",
                       "model.initializer_range=0.12", "eval.0.limit=40"});
  const auto [before, after] = run.first_and_last("eval/tinystories/bits_per_byte", 1);
  EXPECT_LT(after, before - 0.5);
}

}  // namespace
}  // namespace hone::test
