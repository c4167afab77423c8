#include "data/conversation.h"

#include <gtest/gtest.h>

#include "core/io/file.h"
#include "data/dataset.h"
#include "tests/core/text/chat_tokenizer.h"
#include "tests/core/text/tokenizer/character_tokenizer.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

Json row_of(const std::string& text, const ConversationColumns& columns = {}) {
  return with_conversation(parse_json(text, "row"), columns, "a.jsonl:7");
}
std::string error(const std::string& text, const ConversationColumns& columns = {}) {
  return error_of([&] { row_of(text, columns); });
}

TEST(Conversation, EveryFormBecomesMessages) {
  const std::string openai =
      R"([{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}])";
  const Json expected = parse_json(openai, "m");
  EXPECT_EQ(row_of("{\"messages\": " + openai + "}").at("messages"), expected);
  EXPECT_EQ(row_of("{\"conversations\": " + openai + "}").at("messages"), expected);
  EXPECT_EQ(row_of(R"({"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}],
                       "system": "S"})")
                .at("messages"),
            expected);
  EXPECT_EQ(row_of(R"({"conversation": [{"from": "system", "value": "S"}, {"from": "user", "value": "Q"},
                       {"from": "assistant", "value": "A"}]})")
                .at("messages"),
            expected);
  const Json alpaca = row_of(R"({"instruction": "Q", "input": "", "output": "A", "system": "S"})");
  EXPECT_EQ(alpaca.at("prompt"), Json(JsonArray{expected.as_array()[0], expected.as_array()[1]}));
  EXPECT_EQ(alpaca.at("completion"), Json(JsonArray{expected.as_array()[2]}));
}

TEST(Conversation, ContentPartsAreJoinedAndImagesAreRefused) {
  EXPECT_EQ(row_of(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
                       {"type": "text", "text": "b"}]}]})")
                .at("messages")
                .as_array()[0]
                .at("content")
                .as_string(),
            "ab");
  EXPECT_NE(error(R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]})")
                .find("a.jsonl:7: messages[0].content[0] is of the type 'image_url'; hone trains on text only"),
            std::string::npos);
}

TEST(Conversation, AlpacaHasInputAndHistory) {
  const Json row = row_of(R"({"instruction": "Add", "input": "1 2", "output": "3", "history": [["Hi", "Hello"]]})");
  EXPECT_EQ(row.at("prompt").dump(),
            R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}, )"
            R"({"role": "user", "content": "Add\n1 2"}])");
  EXPECT_NE(error(R"({"instruction": "a", "output": "b", "history": [["x"]]})").find("a.jsonl:7: history must be"),
            std::string::npos);
}

TEST(Conversation, CallsOfToolsHaveObjectsAsArguments) {
  const Json messages = row_of(R"({"conversations": [{"from": "human", "value": "Q"},
      {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},
      {"from": "observation", "value": "2"}, {"from": "gpt", "value": "A"}],
      "tools": "[{\"name\": \"f\"}]"})")
                            .at("messages");
  const Json& call = messages.as_array()[1];
  EXPECT_EQ(call.at("role").as_string(), "assistant");
  EXPECT_EQ(call.at("tool_calls").dump(),
            R"([{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}])");
  EXPECT_EQ(messages.as_array()[2].at("role").as_string(), "tool");
  EXPECT_EQ(messages.as_array()[0].at("tools").dump(), R"([{"name": "f"}])");
  const Json openai = row_of(R"({"messages": [{"role": "assistant", "content": null, "name": null,
      "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]}]})")
                          .at("messages")
                          .as_array()[0];
  EXPECT_EQ(openai.find("name"), nullptr);  // a null member is an absent one
  EXPECT_EQ(openai.at("tool_calls").as_array()[0].at("function").at("arguments").dump(), R"({"x": 1})");
}

TEST(Conversation, ACallsArgumentsAreAnObjectOrItsJsonText) {
  const auto call = [](const std::string& arguments) {
    return R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "",
      "tool_calls": [{"function": {"name": "f", "arguments": )" +
           arguments + "}}]}]}";
  };
  const auto arguments = [&](const std::string& text) {
    return row_of(call(text))
        .at("messages")
        .as_array()[1]
        .at("tool_calls")
        .as_array()[0]
        .at("function")
        .at("arguments")
        .dump();
  };
  EXPECT_EQ(arguments(R"({"x": 1})"), R"({"x": 1})");
  EXPECT_EQ(arguments(R"("{\"x\": 1}")"), R"({"x": 1})");
  for (const char* none : {R"("")", R"(" ")", "null", "{}", R"("{}")"}) EXPECT_EQ(arguments(none), "{}") << none;
  const std::string where = "a.jsonl:7: messages[1].tool_calls[0].function.arguments";
  for (const auto& [broken, words] : std::vector<std::pair<std::string, std::string>>{
           {R"("{\"x\": 1")", ":1:8: syntax error"},
           {R"("Paris")", ":1:1: syntax error"},
           {R"("[1]")", " must be an object or its JSON text, not an array"},
           {"[1]", " must be an object or its JSON text, not an array"},
           {"3", " must be an object or its JSON text, not an integer"}})
    EXPECT_NE(error(call(broken)).find(where + words), std::string::npos) << error(call(broken));
}

TEST(Conversation, BrokenRowsAreErrorsWithRowAndColumn) {
  EXPECT_NE(error(R"({"messages": [{"role": "usr", "content": "x"}]})").find("messages[0].role is 'usr'; did you mean"),
            std::string::npos);
  EXPECT_NE(error(R"({"messages": [{"role": "user", "content": null}]})")
                .find("a.jsonl:7: messages[0].content must be a text, not null"),
            std::string::npos);
  EXPECT_NE(error(R"({"messages": []})").find("messages is empty"), std::string::npos);
  EXPECT_NE(error(R"({"conversations": [{"from": "human", "role": "user", "value": "x"}]})")
                .find("conversations[0] has both role and from"),
            std::string::npos);
  EXPECT_NE(
      error(R"({"messages": [{"role": "user", "content": "x"}], "conversations": [{"from": "gpt", "value": "x"}]})")
          .find("the columns 'messages' and 'conversations' both hold a conversation"),
      std::string::npos);
  EXPECT_NE(error(R"({"conversations": [{"from": "system", "value": "x"}], "system": "y"})").find("keep one of them"),
            std::string::npos);
  EXPECT_NE(error(R"({"x": 1})", {.formatting = "alpaca", .messages_column = {}})
                .find("needs a column instruction; the row has: x"),
            std::string::npos);
  EXPECT_NE(error(R"({"x": 1})", {.messages_column = "dialog"}).find("no column 'dialog'"), std::string::npos);
}

TEST(Conversation, TheKeysDecideOverTheColumns) {
  const char* both =
      R"({"instruction": "a", "output": "b", "dialog": [{"from": "human", "value": "Q"}], "prompt": "p"})";
  EXPECT_EQ(row_of(both), parse_json(both, "row"));  // the row has a prompt
  EXPECT_EQ(row_of(both, {.formatting = "alpaca", .messages_column = {}}).at("prompt").dump(),
            R"([{"role": "user", "content": "a"}])");
  EXPECT_EQ(row_of(both, {.messages_column = "dialog"}).at("messages").dump(), R"([{"role": "user", "content": "Q"}])");
  const char* messages = R"({"messages": [{"role": "human", "content": "Q"}]})";
  EXPECT_EQ(row_of(messages, {.formatting = "none", .messages_column = {}}), parse_json(messages, "row"));
}

TEST(Conversation, ANullConversationIsNone) {
  EXPECT_EQ(row_of(R"({"messages": null, "prompt": "a", "completion": "b"})").dump(),
            R"({"prompt": "a", "completion": "b"})");
  EXPECT_EQ(row_of(R"({"prompt": null, "chosen": "a", "rejected": "b"})").dump(),
            R"({"chosen": "a", "rejected": "b"})");
}

TEST(Conversation, ListsMayBeTheTextOfJson) {
  const Json row = row_of(R"({"messages": " [{\"role\": \"user\", \"content\": \"Q\"}]"})");
  EXPECT_EQ(row.at("messages").dump(), R"([{"role": "user", "content": "Q"}])");
}

class ConversationStageTest : public ::testing::Test {
 protected:
  RowSource rows(const std::string& text) const {
    write_file_atomic(folder.path() / "rows.jsonl", text);
    RowSource out;
    out.files = {(folder.path() / "rows.jsonl").string()};
    return out;
  }
  TemporaryFolder folder;
  Tokenizer tokenizer = character_tokenizer(folder.path());
};

TEST_F(ConversationStageTest, SftTrainsOnTheMessagesThatAreSwitchedOn) {
  SftSource source;
  source.rows =
      rows(R"({"conversations": [{"from": "human", "value": "ab"}, {"from": "gpt", "value": "12", "train": false},)"
           R"( {"from": "human", "value": "3"}, {"from": "gpt", "value": "567", "weight": 1}]})");
  const Sample sample = load_sft(source, tokenizer).at(0);
  std::string trained;
  for (size_t t = 0; t < sample.tokens.size(); ++t)
    if (sample.columns.find(columns::mask)[t] != 0) trained += tokenizer.token_bytes(sample.tokens[t]);
  EXPECT_NE(trained.find("567"), std::string::npos) << trained;
  EXPECT_EQ(trained.find('1'), std::string::npos);
  EXPECT_EQ(trained.find('3'), std::string::npos);

  source.rows =
      rows(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "loss": 0}]})");
  EXPECT_NE(error_of([&] { load_sft(source, tokenizer); }).find("rows.jsonl:1: the loss is off for all"),
            std::string::npos);
  source.rows = rows(R"({"messages": [{"role": "user", "content": "a", "train": true}]})");
  EXPECT_NE(error_of([&] { load_sft(source, tokenizer); }).find("messages[0].train is on, but the role is 'user'"),
            std::string::npos);
}

TEST_F(ConversationStageTest, TasksEndBeforeTheReply) {
  TaskSource source;
  source.answer = "";
  source.rows = rows(R"({"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]})");
  const Task task = load_tasks(source).at(0);
  ASSERT_EQ(task.messages.size(), 1u);
  EXPECT_EQ(task.messages[0].content, "Q");
  source.rows = rows(R"({"instruction": "Q", "output": "A"})");
  source.answer = "{output}";
  EXPECT_EQ(load_tasks(source).at(0).messages.at(0).content, "Q");
  EXPECT_EQ(load_tasks(source).at(0).answer, "A");
}

}  // namespace
}  // namespace hone::test
