#include "posttrain/rl/collector.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/config/config.h"
#include "model/token_logprobs.h"
#include "tests/core/text/chat_tokenizer.h"
#include "tests/data/entries.h"
#include "tests/model/characters.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

// The score is the length of the completion. The part "seen" is 1 for each completion that was scored.
class Length : public Reward {
 public:
  RewardScore score(const Task&, const Completion& completion) const override {
    return {.score = static_cast<double>(completion.ids.size()), .parts = {{"seen", 1}}};
  }
};
class NotANumber : public Reward {
 public:
  RewardScore score(const Task&, const Completion&) const override { return {.score = std::nan("")}; }
};

class CollectorTest : public ::testing::Test {
 protected:
  CollectorTest() {
    for (const char* prompt : {"ab", "12 3", "c."}) {
      Task& task = tasks.emplace_back();
      task.id = prompt, task.prompt = prompt;
    }
    for (const Task& task : tasks) asked.push_back(&task);
    config.num_generations = 3;
    config.sampling.max_tokens = 5;
    config.sampling.temperature = 0.7;
    config.reward.reward.set("", std::make_shared<Length>());
  }
  Collector actor() { return Collector(sampler, tokenizer, config); }

  TemporaryFolder folder;
  Tokenizer tokenizer = character_tokenizer(folder.path());
  std::unique_ptr<Device> device = cpu_device();
  Context context{*device};
  std::unique_ptr<Model> model = character_model(context, tokenizer);
  LocalBackend sampler{context, *model, tokenizer, {}};
  std::vector<Task> tasks;
  std::vector<const Task*> asked;
  CollectorConfig config;
};

TEST_F(CollectorTest, GroupsHoldWhatALearnerNeeds) {
  sampler.set_policy_version(4);
  const std::vector<Group> groups = actor().gather(asked, 0);
  ASSERT_EQ(groups.size(), 3u);
  for (size_t g = 0; g < groups.size(); ++g) {
    EXPECT_EQ(groups[g].task.id, tasks[g].id);
    ASSERT_EQ(groups[g].samples.size(), 3u);
    const size_t prompt = PromptEncoder({}, tokenizer).prompt(tasks[g]).size();
    for (const Sample& sample : groups[g].samples) {
      ASSERT_EQ(sample.tokens.size(), prompt + sample.completion.ids.size());
      EXPECT_EQ(sample.weight_version, 4);
      EXPECT_EQ(sample.versions, std::vector<int64_t>(sample.tokens.size(), 4));
      EXPECT_EQ(sample.reward, static_cast<double>(sample.completion.ids.size()));
      EXPECT_EQ(sample.reward_parts.at("seen"), 1);
      const TokenLogprobs scores =
          compute_logprobs(context, *model, std::vector<std::vector<int32_t>>{sample.tokens}, {.temperature = 0.7})
              .front();
      for (size_t t = 0; t < sample.tokens.size(); ++t) {
        EXPECT_EQ(sample.columns[columns::mask][t], t < prompt ? 0 : 1);
        EXPECT_EQ(sample.columns[columns::behavior_logp][t], t < prompt ? 0 : scores.logp[t]);
      }
    }
  }
}

TEST_F(CollectorTest, BehaviorLogProbsAreOfTheDistributionThatWasDrawnFrom) {
  const auto settings = [](const std::string& text) { return Config::from_text(text, "test").as<SamplingParams>(); };
  // With top_k = 1 the sampled token's probability is 1. Truncation raises the probability of the tokens that it
  // keeps.
  config.sampling = settings("top_k = 1\nmax_tokens = 5");
  for (const Group& group : actor().gather(asked, 0))
    for (const Sample& sample : group.samples)
      for (const float logp : sample.columns.find(columns::behavior_logp)) EXPECT_EQ(logp, 0);
  for (const char* text :
       {"top_k = 3\nmax_tokens = 5\ntemperature = 0.7", "top_p = 0.5\nmax_tokens = 5", "min_p = 0.5\nmax_tokens = 5",
        "min_tokens = 5\nmax_tokens = 5", "max_tokens = 5\nstructured = { regex = \"[0-9]*\" }"}) {
    config.sampling = settings(text);
    double above = 0;
    for (const Group& group : actor().gather(asked, 0))
      for (const Sample& sample : group.samples) {
        const std::vector<std::vector<int32_t>> sequences = {sample.tokens};
        const TokenLogprobs own =
            compute_logprobs(context, *model, sequences, {.temperature = config.sampling.temperature})[0];
        for (size_t t = 0; t < sample.tokens.size(); ++t) {
          if (sample.columns[columns::mask][t] == 0) continue;
          EXPECT_GE(sample.columns[columns::behavior_logp][t], own.logp[t] - 1e-5f) << text;
          above += static_cast<double>(sample.columns[columns::behavior_logp][t] - own.logp[t]);
        }
      }
    EXPECT_GT(above, 0.1) << text;
  }
  CompletionOutput completion;
  completion.ids = {1, 2}, completion.logp = {-1, -2}, completion.truncated_logp = {-0.5f, 0};
  EXPECT_EQ(entries(to_training_sample({.prompt = {0}, .sampling = settings("top_p = 0.9")}, completion),
                    columns::behavior_logp),
            (std::vector<float>{0, -0.5f, 0}));
  EXPECT_EQ(entries(to_training_sample({.prompt = {0}, .sampling = settings("temperature = 0.9")}, completion),
                    columns::behavior_logp),
            (std::vector<float>{0, -1, -2}));
  completion.truncated_logp.clear();
  EXPECT_THROW(to_training_sample({.prompt = {0}, .sampling = settings("top_p = 0.9")}, completion), Error)
      << "a worker that does not say";
}

// The template's end of turn is not the tokenizer's eos, and rows of messages need no chat format in the recipe.
TEST_F(CollectorTest, ARepliesEndIsTheChatTemplatesEndOfTurn) {
  const Tokenizer chat =
      ChatTokenizer{.chat_template =
                        "{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content }}<|im_end|>{% endfor %}"
                        "{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}"}
          .make();
  const int32_t end = *chat.find("<|im_end|>");
  const std::unique_ptr<Model> talker = character_model(context, chat);
  LocalBackend own(context, *talker, chat, {});
  config.sampling.max_tokens = 20;
  config.sampling.logit_bias = {{.id = end, .bias = 4}};
  Task& messages = tasks[1];
  messages.prompt = "";
  messages.messages = {{"user", "hi", {}}};
  const std::vector<Group> groups = Collector(own, chat, config).gather(asked, 0);
  EXPECT_EQ(groups[1].task.rendered, "<|im_start|>user:hi<|im_end|><|im_start|>assistant:");
  int ended = 0;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      const std::vector<int32_t>& ids = sample.completion.ids;
      const auto at = std::ranges::find(ids, end);
      EXPECT_TRUE(at == ids.end() || at + 1 == ids.end());
      EXPECT_EQ(sample.completion.text.find("<|im_end|>"), std::string::npos);
      ended += at != ids.end();
    }
  }
  EXPECT_GT(ended, 0);
}

TEST_F(CollectorTest, APromptThatATemplateRefusesIsNamed) {
  const Tokenizer chat = ChatTokenizer{.chat_template = "{{ raise_exception('no system role') }}"}.make();
  config.format.chat = "template";
  const std::string error = error_of([&] { Collector(sampler, chat, config).gather(asked, 0); });
  EXPECT_TRUE(error.find("ab: ") != std::string::npos && error.ends_with("template line 1: no system role")) << error;
}

TEST_F(CollectorTest, DrawsDependOnTheRequestsNumberAlone) {
  const std::vector<Group> together = actor().gather(asked, 10);
  const Group alone = actor().gather(std::span(asked).subspan(1, 1), 11).at(0);
  const Group other = actor().gather(std::span(asked).subspan(1, 1), 12).at(0);
  bool differs = false;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(alone.samples[i].tokens, together[1].samples[i].tokens);
    differs = differs || other.samples[i].tokens != alone.samples[i].tokens;
  }
  EXPECT_TRUE(differs);
  const uint64_t ids[] = {12, 10, 11};
  const std::vector<Group> numbered = actor().gather(asked, ids);
  EXPECT_NE(numbered[1].samples[0].tokens, together[1].samples[0].tokens);
  const Task* one[] = {asked[1]};
  const uint64_t own[] = {11};
  EXPECT_EQ(actor().gather(one, own).at(0).samples[2].tokens, together[1].samples[2].tokens);
}

TEST_F(CollectorTest, APromptThatDoesNotFitIsCountedAndTrainsNothing) {
  tasks[1].prompt = std::string(50, 'a');
  Collector one = actor();
  const std::vector<Group> groups = one.gather(asked, 0);
  EXPECT_EQ(one.failed_completions(), 3);
  for (const Sample& sample : groups[1].samples) {
    EXPECT_EQ(sample.tokens.size(), sample.columns.find(columns::mask).size());
    EXPECT_FALSE(sample.scored);
    for (const float mask : sample.columns.find(columns::mask)) EXPECT_EQ(mask, 0);
  }
  EXPECT_GT(groups[2].samples[0].completion.ids.size(), 0u);
}

TEST_F(CollectorTest, AScoreThatIsNoNumberIsAnErrorNamingTheTask) {
  config.reward.reward.set("", std::make_shared<NotANumber>());
  try {
    actor().gather(asked, 0);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the score of ab is nan"), std::string::npos) << error.what();
  }
}

TEST_F(CollectorTest, ARoundUsesNothingThatWasComputedWithOtherWeights) {
  tasks[0].prompt = "ab 12 ab 12 ab 12 ab 12";  // longer than a KV block
  actor().gather(asked, 0);
  model->initialize(context, 99);
  sampler.set_policy_version(1);
  LocalBackend other(context, *model, tokenizer, {});
  const std::vector<Group> groups = actor().gather(asked, 0),
                           fresh = Collector(other, tokenizer, config).gather(asked, 0);
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t i = 0; i < groups[g].samples.size(); ++i)
      EXPECT_EQ(entries(groups[g].samples[i], columns::behavior_logp),
                entries(fresh[g].samples[i], columns::behavior_logp));
}

}  // namespace
}  // namespace hone::test
