#include "posttrain/preference_data.h"

#include <gtest/gtest.h>

#include "core/io/file.h"
#include "posttrain/losses/pair_loss.h"
#include "tests/data/entries.h"
#include "tests/model/characters.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

// {'role': r, 'content': c} messages as a list in JSON.
std::string chat(std::initializer_list<std::pair<const char*, const char*>> turns) {
  JsonArray out;
  for (const auto& [role, content] : turns) out.push_back(JsonObject{{"role", role}, {"content", content}});
  return Json(out).dump();
}

class PreferenceDataTest : public ::testing::Test {
 protected:
  RowSource rows(const std::string& text) const {
    write_file_atomic(folder.path() / "rows.jsonl", text);
    return {.files = {(folder.path() / "rows.jsonl").string()}, .generator = {}};
  }
  PreferenceSource pairs(const std::string& text) const {
    PreferenceSource out{.rows = rows(text), .margin = {}, .sample = {.format = {.chat = "plain", .system = ""}}};
    return out;
  }
  // The text that is trained on, without its end token.
  std::string trained(const Sample& sample) const {
    std::vector<int32_t> ids;
    for (size_t t = 0; t < sample.tokens.size(); ++t)
      if (sample.columns[columns::mask][t] != 0) ids.push_back(sample.tokens[t]);
    return text(ids);
  }
  std::string text(const std::vector<int32_t>& ids) const { return tokenizer.decode(ids, true); }
  std::string error_of(const std::string& text_of_rows) const {
    return test::error_of([&] { load_preferences(pairs(text_of_rows), tokenizer); });
  }
  TemporaryFolder folder;
  Tokenizer tokenizer = character_tokenizer(folder.path());
};

TEST_F(PreferenceDataTest, APairIsChosenThenRejectedAndIsSkippedWhole) {
  PreferenceSource source = pairs(
      "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"cc\"}\n{\"prompt\": \"a\", \"chosen\": \"b\", "
      "\"rejected\": \"cccccccccccc\"}\n");
  source.sample = {.format = {}, .max_length = 8};
  const std::vector<Group> found = load_preferences(source, tokenizer);
  ASSERT_EQ(found.size(), 1u);
  ASSERT_EQ(found[0].samples.size(), 2u);
  EXPECT_EQ(found[0].samples[0].completion.text, "b");
  EXPECT_EQ(found[0].samples[1].completion.text, "cc");
}

TEST_F(PreferenceDataTest, EveryFormOfAConversationalPairGivesTheSameSamples) {
  const std::string prompt = chat({{"user", "a"}, {"assistant", "b"}, {"user", "aa"}}),
                    good = chat({{"assistant", "cb"}}), bad = chat({{"assistant", "cc"}});
  const std::string whole_good = chat({{"user", "a"}, {"assistant", "b"}, {"user", "aa"}, {"assistant", "cb"}}),
                    whole_bad = chat({{"user", "a"}, {"assistant", "b"}, {"user", "aa"}, {"assistant", "cc"}});
  const std::vector<Group> found = load_preferences(
      pairs("{\"prompt\": " + prompt + ", \"chosen\": " + good + ", \"rejected\": " + bad +
            "}\n" +                                                                         // TRL, explicit prompt
            "{\"chosen\": " + whole_good + ", \"rejected\": " + whole_bad + "}\n" +         // TRL, implicit prompt
            "{\"messages\": " + prompt + ", \"chosen\": \"cb\", \"rejected\": \"cc\"}\n" +  // messages and two texts
            "{\"prompt\": " + prompt + ", \"chosen\": \"cb\", \"rejected\": \"cc\"}\n" +
            // UltraFeedback, with the whole of chosen as messages
            "{\"prompt\": \"aa\", \"messages\": " + whole_good + ", \"chosen\": " + whole_good +
            ", \"rejected\": " + whole_bad + "}\n" +
            // LLaMA-Factory: ShareGPT's and Alpaca's pairs
            R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"},)"
            R"( {"from": "human", "value": "aa"}], "chosen": {"from": "gpt", "value": "cb"},)"
            R"( "rejected": {"from": "gpt", "value": "cc"}})"
            "\n"
            R"({"instruction": "aa", "history": [["a", "b"]], "chosen": "cb", "rejected": "cc"})"),
      tokenizer);
  ASSERT_EQ(found.size(), 7u);
  for (const Group& group : found) {
    EXPECT_EQ(trained(group.samples[0]), "cb");  // not the assistant's earlier turn
    EXPECT_EQ(trained(group.samples[1]), "cc");
    EXPECT_EQ(group.samples[0].completion.text, "cb");
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(group.samples[i].tokens, found[0].samples[i].tokens);
      EXPECT_EQ(entries(group.samples[i], columns::mask), entries(found[0].samples[i], columns::mask));
    }
  }
}

// UltraFeedback repeats the question: as a text and in both conversations.
TEST_F(PreferenceDataTest, APromptThatTheConversationsRepeatIsAskedOnce) {
  const std::string good = chat({{"user", "a"}, {"assistant", "cb"}}), bad = chat({{"user", "a"}, {"assistant", "cc"}});
  const std::vector<Group> found = load_preferences(
      pairs("{\"chosen\": " + good + ", \"rejected\": " + bad + "}\n" + "{\"prompt\": \"a\", \"chosen\": " + good +
            ", \"rejected\": " + bad + "}\n" + "{\"prompt\": " + chat({{"user", "a"}}) + ", \"chosen\": " + good +
            ", \"rejected\": " + bad + "}\n"),
      tokenizer);
  ASSERT_EQ(found.size(), 3u);
  for (const Group& group : found) {
    EXPECT_EQ(text(group.samples[0].tokens), text(found[0].samples[0].tokens));
    EXPECT_EQ(trained(group.samples[0]), "cb");
    EXPECT_EQ(trained(group.samples[1]), "cc");
  }
}

TEST_F(PreferenceDataTest, MessagesThatDifferInAToolCallAreNotTheSame) {
  const auto row = [](const char* call) {
    return std::string(
               R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [{"name": ")") +
           call + R"("}]}, {"role": "tool", "content": "b"}, {"role": "assistant", "content": "c"}])";
  };
  const std::vector<Group> found =
      load_preferences(pairs("{\"chosen\": " + row("f") + ", \"rejected\": " + row("g") + "}\n"), tokenizer);
  EXPECT_EQ(found.at(0).task.messages.size(), 1u);
}

TEST_F(PreferenceDataTest, ConversationsThatShareNothingAreRefusedByName) {
  const std::string a = chat({{"user", "a"}, {"assistant", "b"}}), b = chat({{"user", "c"}, {"assistant", "b"}});
  for (const auto& [chosen, rejected] : {std::pair{a, b}, std::pair{a, a}})
    EXPECT_NE(error_of("{\"chosen\": " + chosen + ", \"rejected\": " + rejected + "}\n")
                  .find("rows.jsonl:1: without a prompt"),
              std::string::npos);
  EXPECT_NE(error_of("{\"chosen\": \"b\", \"rejected\": \"c\"}\n").find("no member 'prompt'"), std::string::npos);
}

TEST_F(PreferenceDataTest, AMarginIsAColumnAndMustBeANumber) {
  const auto margin_of = [&](const std::string& value) {
    PreferenceSource source =
        pairs("{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\", \"by\": " + value + "}\n");
    source.margin = "{by}";
    const std::vector<Group> found = load_preferences(source, tokenizer);
    EXPECT_EQ(entries(found.at(0).samples[1], columns::margin).size(), 1u) << "a pair's samples have the same columns";
    return entries(found.at(0).samples[0], columns::margin).at(0);
  };
  EXPECT_EQ(margin_of("1.5"), 1.5);
  EXPECT_EQ(margin_of("-2"), -2);
  for (const char* value : {"\"much\"", "\"nan\"", "\"1.5 \"", "\"\"", "\"1e999\""})
    EXPECT_THROW(margin_of(value), Error) << value;
}

TEST_F(PreferenceDataTest, LabelledCompletionsComeWithACompletionOfAnotherPrompt) {
  UnpairedSource source;
  source.rows = rows(
      "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}\n{\"prompt\": \"a\", \"completion\": \"bb\", "
      "\"label\": false}\n"
      "{\"prompt\": \"c\", \"completion\": \"ccc\", \"label\": 1}\n");
  const std::vector<Group> found = load_unpaired(source, tokenizer);
  ASSERT_EQ(found.size(), 3u);
  const auto check = [&](const Group& group, double reward, const char* completion, const char* other) {
    ASSERT_EQ(group.samples.size(), 2u);
    EXPECT_EQ(group.samples[0].reward, reward);
    EXPECT_EQ(trained(group.samples[0]), completion);
    EXPECT_EQ(trained(group.samples[1]), other);
    const std::string whole = text(group.samples[1].tokens);
    EXPECT_EQ(whole.substr(0, 1), group.task.prompt);
  };
  check(found[0], 1, "b", "ccc");   // wraps around to the last group
  check(found[1], 0, "bb", "ccc");  // skips the completion of the same prompt
  check(found[2], 1, "ccc", "bb");
}

TEST_F(PreferenceDataTest, APairedRowIsTwoLabelledCompletions) {
  UnpairedSource source;
  source.rows = rows("{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n");
  const std::vector<Group> found = load_unpaired(source, tokenizer);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].samples[0].reward, 1);
  EXPECT_EQ(trained(found[0].samples[0]), "b");
  EXPECT_EQ(found[1].samples[0].reward, 0);
  EXPECT_EQ(trained(found[1].samples[0]), "c");
}

TEST_F(PreferenceDataTest, TheLastMessageIsTheLabelledReply) {
  UnpairedSource source;
  source.sample.format.chat = "plain";
  source.rows =
      rows("{\"messages\": " + chat({{"user", "a"}, {"assistant", "b"}, {"user", "aa"}, {"assistant", "cc"}}) +
           ", \"label\": false}\n");
  EXPECT_EQ(trained(load_unpaired(source, tokenizer).at(0).samples[0]), "cc");
  source.rows = rows("{\"messages\": " + chat({{"user", "a"}}) + ", \"label\": false}\n");
  EXPECT_THROW(load_unpaired(source, tokenizer), Error);
  source.rows = rows("{\"prompt\": \"a\", \"completion\": \"b\", \"label\": \"maybe\"}\n");
  EXPECT_THROW(load_unpaired(source, tokenizer), Error);
}

}  // namespace
}  // namespace hone::test
