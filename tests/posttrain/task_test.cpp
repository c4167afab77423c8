// Evaluation: every task in configs/tasks reads, and runs on the data it names where that is there; each kind counts what it says it counts.
#include "posttrain/eval/task.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "core/config.h"
#include "core/model/score.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

constexpr const char* characters = R"({"char_ords": [97, 98, 99, 32, 46], "model_max_length": 64})";
constexpr const char* shape = R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
  "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 16, "max_position_embeddings": 12, "rms_norm_eps": 1e-6, "initializer_range": 0.5})";

// A random model of twelve positions over the characters "abc .".
class EvalTest : public ::testing::Test {
 protected:
  EvalTest() {
    std::ofstream(folder.path() / "tokenizer_config.json") << characters;
    tokenizer.emplace(Tokenizer::load(folder.path()));
    model = make_model(parse_json(shape, "config.json"), "config.json");
    model->allocate(context, DType::f32, false);
    model->initialise(context, 7);
  }
  EvalResult run(const std::string& task, const std::string& rows, const EvalOptions& options = {}) {
    std::ofstream(folder.path() / "rows.jsonl") << rows;
    EvalModel on{context, *model, *tokenizer, {}, [this](Json row) { records.push_back(std::move(row)); }};
    return Config::from_text("files = ['" + (folder.path() / "rows.jsonl").string() + "']\n" + task, "task.toml")
        .as<EvalTaskSpec>()
        .task->run(on, options);
  }
  // Log-probability of tail behind head, each encoded by itself.
  double logp(const std::string& head, const std::string& tail) {
    std::vector<int32_t> ids = tokenizer->encode_document(head);
    const size_t given = ids.size();
    for (const int32_t id : tokenizer->encode(tail)) ids.push_back(id);
    double sum = 0;
    const std::vector<TokenScores> scores = score_sequences(context, *model, std::vector<std::vector<int32_t>>{ids}, {});
    for (size_t t = given; t < ids.size(); ++t) sum += scores[0].logp[t];
    return sum;
  }

  TemporaryFolder folder;
  std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context{*device};
  std::optional<Tokenizer> tokenizer;
  std::unique_ptr<Model> model;
  std::vector<Json> records;
};

TEST_F(EvalTest, AChoiceIsScoredBehindItsPrompt) {
  run("kind = 'multiple_choice'\nprompt = '{q}'\nchoice = '{choice}'", R"({"q": "ab", "choices": ["c", "a."], "gold": 1})");
  const JsonArray& found = records.at(0).at("logp").as_array();
  EXPECT_NEAR(found[0].as_double(), logp("ab", "c"), 1e-6);
  EXPECT_NEAR(found[1].as_double(), logp("ab", "a."), 1e-6);
}

TEST_F(EvalTest, AContinuationIsScoredBehindEveryChoice) {
  run("kind = 'multiple_choice'\nprompt = ''\nchoice = '{choice}'\ncontinuation = ' {rest}'",
      R"({"choices": ["ab", "ba"], "rest": "c.", "gold": 0})");
  const JsonArray& found = records.at(0).at("logp").as_array();
  EXPECT_NEAR(found[0].as_double(), logp("ab", " c."), 1e-6);
  EXPECT_NEAR(found[1].as_double(), logp("ba", " c."), 1e-6);
}

TEST_F(EvalTest, TheRightChoiceIsAnIndexALetterOrAText) {
  const std::string task = "kind = 'multiple_choice'\nprompt = 'a'\nchoice = '{choice}'";
  for (const char* gold : {"1", "\"B\"", "\"b\""}) run(task, concat(R"({"choices": ["a", "b"], "gold": )", gold, "}"));
  for (const Json& row : records) EXPECT_EQ(row.at("gold").as_int(), 1);
  for (const char* gold : {"2", "\"C\"", "\"x\"", "-1"})
    EXPECT_THROW(run(task, concat(R"({"choices": ["a", "b"], "gold": )", gold, "}")), Error) << gold;
}

TEST_F(EvalTest, APromptThatDoesNotFitLosesItsBeginningAndIsCounted) {
  const EvalResult result =
      run("kind = 'multiple_choice'\nprompt = '{q}'\nchoice = '{choice}'", R"({"q": "cccccaabbaabbaa", "choices": ["c", "b"], "gold": 0})");
  EXPECT_EQ(result.metrics.at("cut"), 1);
  EXPECT_NEAR(records.at(0).at("logp").as_array()[0].as_double(), logp("caabbaabbaa", "c"), 1e-6);
}

TEST_F(EvalTest, PerplexityIsTheMeanOverPredictedTokensAndBitsAreABytes) {
  const EvalResult result = run("kind = 'perplexity'", R"({"text": "abcab"})");
  const double nats = -logp("a", "bcab");
  EXPECT_NEAR(result.metrics.at("nats_per_token"), nats / 4, 1e-6);
  EXPECT_NEAR(result.metrics.at("bits_per_byte"), nats / std::log(2.0) / 5, 1e-6);
}

TEST_F(EvalTest, ALongDocumentIsReadInWindows) {
  const EvalResult result = run("kind = 'perplexity'", R"({"text": "abcabcabcabcabc"})");
  EXPECT_EQ(result.metrics.at("predicted_tokens"), 14);
  EXPECT_NEAR(result.metrics.at("nats_per_token") * 14, -logp("a", "bcabcabcabc") - logp("c", "abc"), 1e-5);
}

TEST_F(EvalTest, MaxLengthCutsADocumentAndItsBytes) {
  const EvalResult result = run("kind = 'perplexity'\nmax_length = 3", R"({"text": "abcab"})");
  EXPECT_NEAR(result.metrics.at("bits_per_byte"), -logp("a", "bc") / std::log(2.0) / 3, 1e-6);
}

TEST_F(EvalTest, WhatFollowsThePromptCountsAlone) {
  const EvalResult fits = run("kind = 'perplexity'\nprompt = '{p}'\ntext = '{t}'", R"({"p": "abc", "t": " ca"})");
  EXPECT_NEAR(fits.metrics.at("nats_per_token"), -logp("abc", " ca") / 3, 1e-6);
  const EvalResult cut = run("kind = 'perplexity'\nprompt = '{p}'\ntext = '{t}'", R"({"p": "cccccabcabcabc", "t": " ca"})");
  EXPECT_NEAR(cut.metrics.at("nats_per_token"), -logp("abcabcabc", " ca") / 3, 1e-6);
}

TEST(EvalTasks, EveryTaskFileReads) {
  ::setenv("HONE_DATA", "/nowhere", 0);
  ASSERT_FALSE(known_eval_tasks().empty());
  for (const std::string& name : known_eval_tasks()) EXPECT_EQ(load_eval_task(name).name, name);
}

TEST(EvalTasks, EveryTaskRunsOnItsFirstRows) {
  HONE_SHARED_OR_SKIP(data, "data");
  ::setenv("HONE_DATA", data.c_str(), 1);
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context(*device);
  for (const std::string& name : known_eval_tasks()) {
    const auto folder = data / "weights" / (name == "digit_completion" ? "verl_random_llama" : "stories260K");
    const auto model = load_model(context, folder);
    const Tokenizer tokenizer = Tokenizer::load(folder);
    EvalModel on{context, *model, tokenizer, {}, {}};
    const EvalResult result = load_eval_task(name).task->run(on, {.limit = 2});
    EXPECT_EQ(result.num_problems, 2) << name;
    EXPECT_GT(result.num_tokens, 0) << name;
    for (const auto& [metric, value] : result.metrics) EXPECT_TRUE(std::isfinite(value)) << name << " " << metric;
  }
}

}  // namespace
}  // namespace hone::test
