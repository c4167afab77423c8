#include "posttrain/pairs.h"

#include <gtest/gtest.h>

#include "posttrain/preference_data.h"
#include "tests/model/characters.h"

namespace hone::test {
namespace {

// Replies "0", "1", ... with these rewards, all ended by a stop token.
Group make(const std::vector<double>& rewards) {
  Group out;
  out.task.prompt = "p", out.task.answer = "a";
  for (size_t i = 0; i < rewards.size(); ++i) {
    Sample& sample = out.samples.emplace_back();
    sample.reward = rewards[i];
    sample.completion.text = std::to_string(i);
    sample.completion.finish_reason = "stop";
  }
  return out;
}

// "chosen>rejected" of every pair.
std::vector<std::string> names(const std::vector<Json>& pairs) {
  std::vector<std::string> out;
  for (const Json& pair : pairs) out.push_back(pair.at("chosen").as_string() + ">" + pair.at("rejected").as_string());
  return out;
}

TEST(Pairs, TheBestMeetsTheWorstThenTheNext) {
  const Group group = make({0.5, 1, 0, 1, 0.2});
  EXPECT_EQ(names(pairs_of(group, 0, 1)), (std::vector<std::string>{"1>2"}));
  EXPECT_EQ(names(pairs_of(group, 0, 9)), (std::vector<std::string>{"1>2", "3>4"}));
  const Json row = pairs_of(group, 0, 1).at(0);
  EXPECT_EQ(row.at("prompt").as_string(), "p");
  EXPECT_EQ(row.at("answer").as_string(), "a");
  EXPECT_EQ(row.at("chosen_reward").as_double(), 1);
  EXPECT_EQ(row.at("rejected_reward").as_double(), 0);
}

TEST(Pairs, EqualRewardsMakeNoneAndAMarginMustBePassed) {
  EXPECT_TRUE(pairs_of(make({1, 1, 1}), 0, 1).empty());
  EXPECT_TRUE(pairs_of(make({1}), 0, 1).empty());
  EXPECT_TRUE(pairs_of(make({}), 0, 1).empty());
  EXPECT_TRUE(pairs_of(make({1, 0.5}), 0.5, 1).empty());
  EXPECT_EQ(pairs_of(make({1, 0.5}), 0.4, 1).size(), 1u);
}

TEST(Pairs, CompletionsWithoutAnEndOfTheirOwnTakeNoPart) {
  Group group = make({1, 0, 0.5});
  group.samples[1].completion.finish_reason = "length";
  EXPECT_EQ(names(pairs_of(group, 0, 2)), (std::vector<std::string>{"0>2"}));
}

TEST(Pairs, CompletionsThatNoRewardJudgedAreOnNoSide) {
  Group group = make({1, 0, 0.5});
  group.samples[1].scored = false;
  EXPECT_EQ(names(pairs_of(group, 0, 2)), (std::vector<std::string>{"0>2"}));
  group.samples[2].scored = false;
  EXPECT_TRUE(pairs_of(group, 0, 2).empty());
}

TEST(Pairs, APairOfMessagesIsOfMessagesAndIsReadAgain) {
  Group group = make({0, 1});
  group.task.prompt = "";
  group.task.messages = {{"user", "a", {}}, {"assistant", "b", JsonObject{{"name", "Ann"}}}, {"user", "c", {}}};
  const Json row = pairs_of(group, 0, 1).at(0);
  EXPECT_EQ(row.at("prompt").dump(),
            R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "name": "Ann"}, )"
            R"({"role": "user", "content": "c"}])");
  EXPECT_EQ(row.at("chosen").dump(), R"([{"role": "assistant", "content": "1"}])");
  EXPECT_EQ(row.at("rejected").dump(), R"([{"role": "assistant", "content": "0"}])");

  const TemporaryFolder folder;
  const Tokenizer tokenizer = character_tokenizer(folder.path());
  std::ofstream(folder.path() / "pairs.jsonl") << row.dump() << "\n";
  PreferenceSource source{.rows = {}, .margin = {}, .sample = {.format = {.chat = "plain", .system = ""}}};
  source.rows.files = {(folder.path() / "pairs.jsonl").string()};
  const Group read = load_preferences(source, tokenizer).at(0);
  EXPECT_EQ(read.task.messages.size(), 3u);
  EXPECT_EQ(read.samples[0].completion.text, "1");
  EXPECT_EQ(read.samples[1].completion.text, "0");
}

class Length : public Reward {
 public:
  RewardScore score(const Task&, const Completion& completion) const override {
    return {.score = static_cast<double>(completion.ids.size())};
  }
};

TEST(Pairs, SampledOnesAreTheSameEachTimeAndOrderedByReward) {
  const TemporaryFolder folder;
  const Tokenizer tokenizer = character_tokenizer(folder.path());
  const std::unique_ptr<Device> device = cpu_device();
  Context context(*device);
  const std::unique_ptr<Model> model = character_model(context, tokenizer);
  std::ofstream(folder.path() / "tasks.jsonl") << R"({"prompt": "ab"})"
                                               << "\n"
                                               << R"({"prompt": "12 3"})"
                                               << "\n";
  PairSource source;
  source.tasks.rows.files = {(folder.path() / "tasks.jsonl").string()};
  source.tasks.answer = "";
  source.actor.num_generations = 6;
  source.actor.sampling.max_tokens = 30;
  source.actor.reward.reward.set("", std::make_shared<Length>());
  source.pairs_per_prompt = 2;
  std::vector<Json> rows, again;
  const PairReport report =
      sample_pairs(context, *model, tokenizer, source, [&](const Json& row) { rows.push_back(row); });
  sample_pairs(context, *model, tokenizer, source, [&](const Json& row) { again.push_back(row); });
  EXPECT_EQ(rows, again);
  EXPECT_EQ(report.prompts, 2);
  EXPECT_EQ(report.replies, 12);
  EXPECT_EQ(report.pairs, static_cast<int64_t>(rows.size()));
  ASSERT_FALSE(rows.empty());
  for (const Json& row : rows) EXPECT_GT(row.at("chosen_reward").as_double(), row.at("rejected_reward").as_double());
}

}  // namespace
}  // namespace hone::test
