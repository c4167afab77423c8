#include "data/convert.h"

#include <gtest/gtest.h>

#include "core/io/file.h"
#include "core/io/rows/rows.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

Json convert(const std::string& row, const std::string& format) {
  return convert_conversation(parse_json(row, "row"), format, "a.jsonl:3");
}
std::string error(const std::string& row, const std::string& format) {
  return error_of([&] { convert(row, format); });
}

constexpr const char* kTurns = R"({"id": 5, "messages": [{"role": "system", "content": "S"},
    {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
    {"role": "assistant", "content": "d"}]})";
constexpr const char* kTools = R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]},
    {"role": "tool", "content": "r"}, {"role": "assistant", "content": "d", "weight": 0}],
    "tools": [{"type": "function", "function": {"name": "f"}}]})";

TEST(ConvertConversation, ThereAndBackGivesTheSameRow) {
  for (const char* format : {"openai", "sharegpt", "alpaca", "prompt_completion"}) {
    Json back = convert(convert(kTurns, format).dump(), "openai");
    EXPECT_EQ(back.at("messages"), parse_json(kTurns, "row").at("messages")) << format;
    EXPECT_EQ(back.at("id").as_int(), 5) << format;
    EXPECT_EQ(back.as_object().size(), 2u) << format << " " << back.dump();
  }
  for (const char* format : {"openai", "sharegpt", "prompt_completion"})
    EXPECT_EQ(convert(convert(kTools, format).dump(), "openai"), parse_json(kTools, "row")) << format;
}

TEST(ConvertConversation, EachFormHasItsColumns) {
  EXPECT_EQ(convert(kTurns, "alpaca").dump(), R"({"instruction": "c", "input": "", "output": "d", "system": "S", )"
                                              R"("history": [["a", "b"]], "id": 5})");
  EXPECT_EQ(convert(R"({"prompt": "a", "completion": "b"})", "sharegpt").dump(),
            R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})");
  EXPECT_EQ(convert(R"({"prompt": "a", "chosen": "b", "rejected": "c"})", "alpaca").dump(),
            R"({"instruction": "a", "input": "", "chosen": "b", "rejected": "c"})");
  EXPECT_EQ(
      convert(R"({"instruction": "a", "input": "i", "output": "b"})", "prompt_completion").dump(),
      R"({"prompt": [{"role": "user", "content": "a\ni"}], "completion": [{"role": "assistant", "content": "b"}]})");
}

TEST(ConvertConversation, WhatAFormCannotHoldIsAnErrorWithItsColumn) {
  EXPECT_NE(error(kTools, "alpaca").find("a.jsonl:3: column 'tools': alpaca cannot hold tools"), std::string::npos);
  EXPECT_NE(error(R"({"messages": [{"role": "user", "content": "a"}]})", "prompt_completion")
                .find("a.jsonl:3: column 'messages': prompt_completion cannot hold a conversation that does not end"),
            std::string::npos);
  EXPECT_NE(error(R"({"messages": [{"role": "user", "content": "a", "name": "Ann"}]})", "sharegpt")
                .find("column 'messages[0]': sharegpt cannot hold a message's member 'name'"),
            std::string::npos);
  EXPECT_NE(error(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
                      "prompt": "x"})",
                  "prompt_completion")
                .find("column 'prompt' of the row would be replaced"),
            std::string::npos);
  EXPECT_NE(error(R"({"question": "a"})", "openai").find("a.jsonl:3: the row is no conversation"), std::string::npos);
}

class ConvertRowsTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder.path() / name).string(); }
  JsonArray rows(const std::string& name) const {
    JsonArray out;
    each_row(path(name), [&](const Json& row, const std::string&) { out.push_back(row); });
    return out;
  }
  TemporaryFolder folder;
};

TEST_F(ConvertRowsTest, EveryContainerBecomesEveryOther) {
  write_file_atomic(path("a.csv"), "id,text\n1,\"x,\ny\"\n2,\n3,z\n");
  const JsonArray expected = rows("a.csv");
  const std::vector<std::string> names = {"b.jsonl", "b.json.gz", "b.tsv.zst", "b.parquet", "b.csv", "b.jsonl.zst"};
  std::string from = "a.csv";
  for (const std::string& to : names) {
    ConvertOptions options;
    options.inputs = {path(from)};
    options.output = path(to);
    EXPECT_EQ(convert_rows(options), 3);
    EXPECT_EQ(rows(to), expected) << from << " to " << to;
    from = to;
  }
}

TEST_F(ConvertRowsTest, SplitsLimitsAndFormsAreOptions) {
  std::filesystem::create_directories(path("set"));
  write_file_atomic(path("set/test.jsonl"), "{\"prompt\": \"a\", \"completion\": \"b\"}\n{}\n");
  ConvertOptions options{
      .inputs = {path("set")}, .output = path("out.json"), .format = "openai", .split = "test", .limit = 1};
  EXPECT_EQ(convert_rows(options), 1);
  EXPECT_EQ(rows("out.json").at(0).at("messages").as_array().size(), 2u);
  options.limit = 0;
  EXPECT_NE(error_of([&] { convert_rows(options); }).find("test.jsonl:2: the row is no conversation"),
            std::string::npos);
  EXPECT_EQ(rows("out.json").size(), 1u);  // the earlier file stays
  options.inputs = {path("out.json")};
  EXPECT_NE(error_of([&] { convert_rows(options); }).find("would replace this input"), std::string::npos);
}

}  // namespace
}  // namespace hone::test
