#include "posttrain/reward_model.h"

#include <cmath>

#include "core/io/file.h"
#include "data/prompt.h"
#include "rewards/reward.h"
#include "tests/data/entries.h"
#include "tests/model/characters.h"
#include "tests/train/rig.h"
#include "train/json/objective_json.h"

namespace hone::test {
namespace {

// A folder with the character model, a value head and a tokenizer, and a score computed without the reward model.
class RewardModelTest : public ::testing::Test {
 protected:
  RewardModelTest() {
    for (size_t i = 0; i < head.size(); ++i) head[i] = 0.1f * static_cast<float>(i % 7) - 0.3f;
    save_model(context, *model, folder.path(), DType::f32, JsonObject{}, head);
    write_classifier_config(folder.path(), tokenizer);
  }
  // The head's product with the last token's hidden state, in double precision.
  double score_by_hand(const std::vector<int32_t>& tokens) {
    const ScratchScope scope(context);
    const std::vector<BatchPart> parts{{.tokens = tokens}};
    const std::vector<int32_t> last{static_cast<int32_t>(tokens.size()) - 1};
    const Tensor hidden = infer(context, *model, pack_batch(context, context.scratch(), parts),
                                upload(context, context.scratch(), std::span<const int32_t>(last)), nullptr);
    double sum = 0;
    for (size_t i = 0; i < head.size(); ++i) sum += double{head[i]} * hidden.as<float>()[i];
    return sum;
  }

  TemporaryFolder folder;
  Tokenizer tokenizer = character_tokenizer(folder.path());
  std::unique_ptr<Device> device = cpu_device();
  Context context{*device};
  std::unique_ptr<Model> model = character_model(context, tokenizer);
  std::vector<float> head = std::vector<float>(static_cast<size_t>(model->shape().hidden_size));
};

// A resumed run loads the folder and writes it again.
TEST_F(RewardModelTest, AFolderSavedAgainHasTheSameConfig) {
  const std::string before = read_file(folder.path() / "config.json");
  const std::unique_ptr<Model> loaded = load_model(context, folder.path());
  save_model(context, *loaded, folder.path(), DType::f32, JsonObject{}, head);
  write_classifier_config(folder.path(), tokenizer);
  EXPECT_EQ(read_file(folder.path() / "config.json"), before);
}

TEST_F(RewardModelTest, AScoreIsTheHeadsProductWithTheLastHiddenStateWhateverIsScoredBesideIt) {
  RewardModel reward_model(folder.path(), "cpu");
  const std::vector<std::vector<int32_t>> texts{
      tokenizer.encode("a b"), {}, tokenizer.encode("123.456"), tokenizer.encode("c")};
  const std::vector<double> together = reward_model.score(texts);
  ASSERT_EQ(together.size(), 4u);
  EXPECT_EQ(together[1], 0);
  for (const size_t i : {0, 2, 3}) {
    EXPECT_NEAR(together[i], score_by_hand(texts[i]), 1e-5) << i;
    EXPECT_EQ(together[i], reward_model.score({{texts[i]}})[0]) << i;
  }
}

TEST_F(RewardModelTest, OfATextLongerThanTheModelsPositionsTheEndCounts) {
  RewardModel reward_model(folder.path(), "cpu");
  const auto positions = static_cast<size_t>(model->shape().max_positions);
  std::vector<int32_t> text = tokenizer.encode(std::string(positions + 9, 'b') + "c");
  const double score = reward_model.score({{text}})[0];
  text.erase(text.begin(), text.end() - static_cast<std::ptrdiff_t>(positions));
  EXPECT_EQ(score, reward_model.score({{text}})[0]);
}

TEST_F(RewardModelTest, TheTrainersValueOfASampleIsItsScoreBitForBit) {
  const std::unique_ptr<Model> trained = load_model(context, folder.path(), {.gradients = true});
  Trainer trainer(context, *trained, {});
  trainer.set_value_head(head);
  Sample sample;
  sample.tokens = tokenizer.encode("a1b2"), sample.columns.set(columns::mask, {0, 0, 1, 1});
  const std::vector<int32_t> text = sample.tokens;
  add_score_position(sample);
  EXPECT_EQ(entries(sample, columns::mask), (std::vector<float>{0, 0, 0, 0, 1}));
  const Sample* one = &sample;
  EXPECT_EQ(trainer.values({&one, 1})[0].back(), RewardModel(folder.path(), "cpu").score({{text}})[0]);
}

TEST_F(RewardModelTest, ItsFolderIsASequenceClassifiersAndAFolderWithoutAHeadIsRefused) {
  const Json config = parse_json(read_file(folder.path() / "config.json"), "config.json");
  EXPECT_EQ(config.at("architectures").as_array().at(0).as_string(), "LlamaForSequenceClassification");
  EXPECT_EQ(config.at("num_labels").as_int(), 1);
  const SafetensorsReader file(folder.path());
  EXPECT_EQ(file.at("score.weight").dim(0), 1);
  EXPECT_EQ(file.at("score.weight").dim(1), model->shape().hidden_size);
  save_model(context, *model, folder.path(), DType::f32);
  EXPECT_THROW(RewardModel(folder.path(), "cpu"), Error);
}

TEST_F(RewardModelTest, AsARewardItScoresPromptAndCompletionTheSameAloneAndInGroups) {
  const std::shared_ptr<const Reward> reward =
      make_reward("{kind = 'reward_model', device = 'cpu', path = '" + folder.path().string() + "'}");
  EXPECT_FALSE(reward->on_host());
  Task task;
  task.prompt = "a b";
  const std::vector<Completion> completions{{.ids = {}, .text = " c", .finish_reason = "stop"},
                                            {.ids = {}, .text = "", .finish_reason = "stop"}};
  std::vector<RewardScore> scores(2), again(2);
  const GroupScores groups[] = {{task, completions, scores}, {task, completions, again}};
  reward->score_groups(groups);
  PromptEncoder encoder({}, tokenizer);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(scores[i].score, score_by_hand(encoder.sample("a b", completions[i].text).tokens), 1e-5);
    EXPECT_EQ(scores[i].score, again[i].score);
    EXPECT_EQ(scores[i].score, reward->score(task, completions[i]).score);
  }
  EXPECT_NE(scores[0].score, scores[1].score);
  EXPECT_TRUE(std::isfinite(
      reward->score(task, {.ids = {}, .text = std::string(100000, '1') + "\xff", .finish_reason = "length"}).score));
}

TEST_F(RewardModelTest, ACompletionThatWasCutOffGetsNoEndAndPaysThePenalty) {
  const auto score = [&](const std::string& keys, const Task& task, const char* finish_reason) {
    const auto reward =
        make_reward("{kind = 'reward_model', device = 'cpu', path = '" + folder.path().string() + "'" + keys + "}");
    return reward->score(task, {.ids = {}, .text = " c1", .finish_reason = finish_reason}).score;
  };
  const auto without_end = [&](PromptFormat format, const Task& task) {
    std::vector<int32_t> tokens = PromptEncoder(format, tokenizer).prompt(task);
    for (const int32_t id : tokenizer.encode(" c1")) tokens.push_back(id);
    return tokens;
  };
  Task text, messages;
  text.prompt = "a b";
  messages.messages = {{"user", "a b", {}}};
  EXPECT_NEAR(score("", text, "stop"), score_by_hand(PromptEncoder({}, tokenizer).sample("a b", " c1").tokens), 1e-5);
  EXPECT_NEAR(score("", text, "length"), score_by_hand(without_end({}, text)), 1e-5);
  EXPECT_NE(score("", text, "length"), score("", text, "stop"));
  const PromptFormat chat{.chat = "plain", .system = ""};
  EXPECT_NEAR(score(", chat = 'plain'", text, "length"), score_by_hand(without_end(chat, text)), 1e-5);
  EXPECT_NEAR(score(", chat = 'plain'", messages, "length"), score_by_hand(without_end(chat, messages)), 1e-5);
  EXPECT_NE(score(", chat = 'plain'", messages, "length"), score(", chat = 'plain'", messages, "stop"));
  EXPECT_NEAR(score(", missing_eos_penalty = 1.5", text, "length"), score("", text, "length") - 1.5, 1e-12);
  EXPECT_EQ(score(", missing_eos_penalty = 1.5", text, "stop"), score("", text, "stop"));
  EXPECT_THROW(score(", missing_eos_penalty = -1", text, "stop"), Error);
}

TEST(BradleyTerryLoss, FollowsItsFormula) {
  // Scores are the values of the last masked tokens: 0.5 and -0.25, then -1 and 2; the first pair's margin is 0.3.
  const Json input =
      parse_json(R"({"logp": [[-1, -1], [-1, -1, -1], [-1, -1], [-1, -1]], "mask": [[0, 1], [0, 0, 1], [0, 1], [0, 1]],
                                    "value": [[9, 0.5], [9, 9, -0.25], [9, -1], [9, 2]],
                                    "advantages": [[0, 0.3], [0, 0, 0], [0, 0], [0, 0]], "config": {"center_rewards_coefficient": 0.01}})",
                 "x.json");
  const Json out = evaluate_objective("bradley_terry", input, "x.json");
  const auto softplus = [](double x) { return std::log(1 + std::exp(x)); };
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_NEAR(out.at("loss").as_double(), (softplus(-0.45) + 0.01 * 0.0625 + softplus(3) + 0.01) / 2, 1e-7);
  const auto grad = [&](size_t s, size_t t) { return out.at("grad_value").as_array()[s].as_array()[t].as_double(); };
  EXPECT_NEAR(grad(0, 1), (-sigmoid(-0.45) + 0.02 * 0.25) / 2, 1e-7);
  EXPECT_NEAR(grad(1, 2), (sigmoid(-0.45) + 0.02 * 0.25) / 2, 1e-7);
  EXPECT_NEAR(grad(2, 1), (-sigmoid(3) + 0.02) / 2, 1e-7);
  EXPECT_EQ(grad(0, 0), 0);
  const Json& metrics = out.at("metrics");
  EXPECT_EQ(metrics.at("accuracy").as_double(), 0.5);
  EXPECT_NEAR(metrics.at("margin").as_double(), (0.75 - 3) / 2, 1e-7);
  EXPECT_NEAR(metrics.at("mean_reward").as_double(), 1.25 / 4, 1e-7);
  EXPECT_EQ(metrics.at("min_reward").as_double(), -1);
  EXPECT_EQ(metrics.at("max_reward").as_double(), 2);
}

}  // namespace
}  // namespace hone::test
