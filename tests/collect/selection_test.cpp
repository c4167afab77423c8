#include "collect/selection.h"

#include <gtest/gtest.h>

#include "core/config/config.h"
#include "posttrain/preference_data.h"
#include "tests/model/characters.h"

namespace hone::test {
namespace {

// Completions "0", "1", ... with these rewards, all ended by a stop token.
CollectedRow make(const std::vector<double>& rewards) {
  CollectedRow out{.id = "rows.jsonl:1", .digest = "d", .prompt = "p", .answer = "a"};
  for (size_t i = 0; i < rewards.size(); ++i)
    out.completions.push_back(
        {.text = std::to_string(i), .finish_reason = "stop", .num_tokens = 2, .reward = rewards[i]});
  return out;
}

SelectionConfig with(const std::string& toml) { return Config::from_text(toml, "test.toml").as<SelectionConfig>(); }

// "chosen>rejected" of every pair.
std::vector<std::string> pair_names(const CollectedRow& row, const std::string& toml = "") {
  std::vector<std::string> out;
  for (const Json& pair : pairs_of(row, JsonObject{}, with(toml)))
    out.push_back(pair.at("chosen").as_string() + ">" + pair.at("rejected").as_string());
  return out;
}

// The completions of the SFT rows.
std::vector<std::string> sft_names(const CollectedRow& row, const std::string& toml = "", bool scored = true) {
  std::vector<std::string> out;
  for (const Json& one : sft_rows(row, JsonObject{}, with(toml), scored))
    out.push_back(one.at("completion").as_string());
  return out;
}

using Names = std::vector<std::string>;

TEST(Pairs, TheBestMeetsTheWorstThenTheNext) {
  const CollectedRow row = make({0.5, 1, 0, 1, 0.2});
  EXPECT_EQ(pair_names(row), (Names{"1>2"}));
  EXPECT_EQ(pair_names(row, "pairs_per_prompt = 9"), (Names{"1>2", "3>4"}));
  const Json pair = pairs_of(row, JsonObject{}, {}).at(0);
  EXPECT_EQ(pair.at("prompt").as_string(), "p");
  EXPECT_EQ(pair.at("answer").as_string(), "a");
  EXPECT_EQ(pair.at("id").as_string(), "rows.jsonl:1");
  EXPECT_EQ(pair.at("chosen_reward").as_double(), 1);
  EXPECT_EQ(pair.at("rejected_reward").as_double(), 0);
}

TEST(Pairs, EqualRewardsMakeNoneAndAMarginMustBePassed) {
  EXPECT_TRUE(pair_names(make({1, 1, 1})).empty());
  EXPECT_TRUE(pair_names(make({1})).empty());
  EXPECT_TRUE(pair_names(make({})).empty());
  EXPECT_TRUE(pair_names(make({1, 0.5}), "margin = 0.5").empty());
  EXPECT_EQ(pair_names(make({1, 0.5}), "margin = 0.4").size(), 1u);
}

TEST(Pairs, CompletionsWithoutAnEndOfTheirOwnTakeNoPart) {
  CollectedRow row = make({1, 0, 0.5});
  for (const char* reason : {"length", "max_turns", "content_filter"}) {
    row.completions[1].finish_reason = reason;
    EXPECT_EQ(pair_names(row, "accept_truncated = true"), (Names{"0>2"})) << reason;
  }
}

TEST(Pairs, CompletionsWithoutAScoreAreOnNoSide) {
  for (const char* reason : {"completion", "reward", "environment", "skipped"}) {
    CollectedRow row = make({1, 0, 0.5});
    row.completions[1].without_score = reason;
    EXPECT_EQ(pair_names(row), (Names{"0>2"})) << reason;
    row.completions[2].without_score = reason;
    EXPECT_TRUE(pair_names(row).empty()) << reason;
  }
}

TEST(Pairs, IdenticalCompletionsAreOneSide) {
  CollectedRow row = make({1, 1, 0, 0});
  row.completions[1].text = "0";
  row.completions[3].text = "2";
  EXPECT_EQ(pair_names(row, "pairs_per_prompt = 2"), (Names{"0>2"}));
  EXPECT_EQ(pair_names(row, "pairs_per_prompt = 2\ndeduplicate = false"), (Names{"0>2", "0>2"}));
}

TEST(Pairs, APairOfMessagesIsOfMessagesAndIsReadAgain) {
  Task task;
  task.id = "t";
  task.messages = {{"user", "a", {}}, {"assistant", "b", JsonObject{{"name", "Ann"}}}, {"user", "c", {}}};
  task.columns = JsonObject{};
  CollectedRow row = start_row(0, task, prompt_messages(task, {}));
  row.completions = make({0, 1}).completions;
  const Json pair = pairs_of(row, JsonObject{}, {}).at(0);
  EXPECT_EQ(pair.at("prompt").dump(),
            R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "name": "Ann"}, )"
            R"({"role": "user", "content": "c"}])");
  EXPECT_EQ(pair.at("chosen").dump(), R"([{"role": "assistant", "content": "1"}])");
  EXPECT_EQ(pair.at("rejected").dump(), R"([{"role": "assistant", "content": "0"}])");

  const TemporaryFolder folder;
  const Tokenizer tokenizer = character_tokenizer(folder.path());
  std::ofstream(folder.path() / "pairs.jsonl") << pair.dump() << "\n";
  PreferenceSource source{.rows = {}, .margin = {}, .sample = {.format = {.chat = "plain", .system = ""}}};
  source.rows.files = {(folder.path() / "pairs.jsonl").string()};
  const Group read = load_preferences(source, tokenizer).at(0);
  EXPECT_EQ(read.task.messages.size(), 3u);
  EXPECT_EQ(read.samples[0].completion.text, "1");
  EXPECT_EQ(read.samples[1].completion.text, "0");
}

TEST(SftRows, AcceptsWhatPassesAndTheBestOfN) {
  const CollectedRow row = make({0.5, 1, 0, 2, 1});
  EXPECT_EQ(sft_names(row), (Names{"3", "1", "4"}));
  EXPECT_EQ(sft_names(row, "threshold = 0.5"), (Names{"3", "1", "4", "0"}));
  EXPECT_EQ(sft_names(row, "sft_per_prompt = 2"), (Names{"3", "1"}));
  EXPECT_EQ(sft_names(row, "threshold = 3"), (Names{}));
  EXPECT_EQ(sft_names(row, "threshold = 3\nsft = 'best_of_n'"), (Names{"3"}));
  EXPECT_EQ(sft_names(row, "sft = 'best_of_n'\nsft_per_prompt = 2"), (Names{"3", "1"}));
}

TEST(SftRows, LeavesOutFailuresCutOnesAndCopies) {
  CollectedRow row = make({1, 1, 1, 1, 1});
  row.completions[0].without_score = "reward";
  row.completions[1].finish_reason = "length";
  row.completions[3].text = "2";
  EXPECT_EQ(sft_names(row), (Names{"2", "4"}));
  EXPECT_EQ(sft_names(row, "accept_truncated = true"), (Names{"1", "2", "4"}));
  EXPECT_EQ(sft_names(row, "deduplicate = false"), (Names{"2", "2", "4"}));
}

TEST(SftRows, WithoutARewardAreAllThatEnded) {
  CollectedRow row = make({0, 0, 0});
  for (CollectedCompletion& completion : row.completions) completion.reward.reset();
  row.completions[1].without_score = "completion";
  EXPECT_EQ(sft_names(row, "", false), (Names{"0", "2"}));
  EXPECT_EQ(sft_rows(row, JsonObject{}, {}, false).at(0).find("reward"), nullptr);
}

TEST(SftRows, AreConversationsWithTheirVariablesAndColumns) {
  Task task;
  task.prompt = "q";
  task.columns = JsonObject{{"tools", JsonArray{JsonObject{{"name", "f"}}}}, {"level", 3}};
  PromptFormat format{.chat = "chatml", .system = "Be brief."};
  CollectedRow row = start_row(4, task, prompt_messages(task, format));
  row.completions = make({1}).completions;
  const Json data_row = JsonObject{{"level", 3}, {"other", 4}};
  const Json pair = sft_rows(row, data_row, with("keep_columns = ['level', 'absent']"), true).at(0);
  EXPECT_EQ(pair.at("prompt").dump(),
            R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "q"}])");
  EXPECT_EQ(pair.at("completion").dump(), R"([{"role": "assistant", "content": "0"}])");
  EXPECT_EQ(pair.at("tools").dump(), R"([{"name": "f"}])");
  EXPECT_EQ(pair.at("level").as_int(), 3);
  EXPECT_EQ(pair.find("absent"), nullptr);
  const Json conversation = sft_rows(row, data_row, with("sft_format = 'messages'"), true).at(0);
  EXPECT_EQ(conversation.at("messages").as_array().size(), 3u);
  EXPECT_EQ(conversation.find("prompt"), nullptr);
  // A text is a message of the user.
  EXPECT_EQ(sft_rows(make({1}), data_row, with("sft_format = 'messages'"), true).at(0).at("messages").dump(),
            R"([{"role": "user", "content": "p"}, {"role": "assistant", "content": "0"}])");
}

TEST(Tasks, KeepTheirColumnsAndHavePassRates) {
  CollectedRow row = make({1, 0, 1, 0, 0});
  row.completions[4].without_score = "reward";
  const Json data_row = JsonObject{{"question", "q"}, {"pass_rate", 9}};
  const Json task = task_row(row, data_row, {}).value();
  EXPECT_EQ(task.dump(), R"({"question": "q", "pass_rate": 0.5, "num_passed": 2, "num_scored": 4, "num_failed": 1})");
  EXPECT_TRUE(task_row(row, data_row, with("min_pass_rate = 0.5\nmax_pass_rate = 0.5")));
  EXPECT_FALSE(task_row(row, data_row, with("min_pass_rate = 0.6")));
  EXPECT_FALSE(task_row(row, data_row, with("max_pass_rate = 0.4")));
  for (CollectedCompletion& completion : row.completions) completion.without_score = "completion";
  EXPECT_FALSE(task_row(row, data_row, {})) << "failures are no pass rate of 0";
}

TEST(RowCounts, FailuresAreCountedAndAreNoScores) {
  CollectedRow row = make({1, 0, 1, 1, 1, 1});
  row.completions[1].text = "0";
  row.completions[2].without_score = "reward";
  row.completions[3].without_score = "completion";
  row.completions[4].without_score = "skipped";
  row.completions[5].without_score = "environment";
  const RowCounts counts = count_row(row, {});
  EXPECT_EQ(counts.completions, 6);
  EXPECT_EQ(counts.scored, 2);
  EXPECT_EQ(counts.passed, 1);
  EXPECT_EQ(counts.reward, 1);
  EXPECT_EQ(counts.skipped, 1);
  EXPECT_EQ(counts.duplicates, 1);
  EXPECT_EQ(counts.failed(), 3);
}

}  // namespace
}  // namespace hone::test
