// The first row of every file of a source.
#include "data/first_rows.h"

#include <gtest/gtest.h>

#include "core/base/suggest.h"
#include "core/io/file.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone {
namespace {

class FirstRowsTest : public ::testing::Test {
 protected:
  std::string add(const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder.path() / name;
    std::filesystem::create_directories(path.parent_path());
    write_file_atomic(path, text);
    return path.string();
  }
  // The values of x that a check sees.
  static std::string seen(const RowSource& source) {
    std::vector<std::string> out;
    each_first_row(source, [&](const RowSource& one) {
      read_rows(one, [&](const Json& row, const std::string&) { out.push_back(row.at("x").dump()); });
    });
    return join(out, " ");
  }
  static RowSource source(std::vector<std::string> files) {
    RowSource out;
    out.files = std::move(files);
    return out;
  }
  test::TemporaryFolder folder;
};

TEST_F(FirstRowsTest, OfEachFileAndEachShardOfAFolder) {
  const std::string one = add("one.jsonl", "{\"x\": 1}\n{\"x\": 2}\n"), empty = add("empty.jsonl", "");
  add("set/train-00000-of-00002.jsonl", "{\"x\": 3}\n{\"x\": 4}\n");
  add("set/train-00001-of-00002.jsonl", "{\"x\": 5}\n");
  add("set/test-00000-of-00001.jsonl", "{\"x\": 6}\n");
  const std::string set = (folder.path() / "set").string();
  EXPECT_EQ(seen(source({one, empty, set})), "1 3 5");
  EXPECT_EQ(seen(source({set})), "3 5");
  EXPECT_EQ(seen(source({set + ":test"})), "6");
  EXPECT_EQ(seen(source({one})), "1");
}

// The rows after the first of a file, too, as far as the run reads them.
TEST_F(FirstRowsTest, ABrokenRowIsFoundInAnyPlace) {
  const std::string calls = add(
      "calls.jsonl",
      R"({"messages": [{"role": "user", "content": "x"}]})"
      "\n"
      R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{\"x\": 1"}}]}]})"
      "\n");
  const std::string cut = add("cut.jsonl", "{\"x\": 1}\n{\"x\": 2\n"), good = add("good.jsonl", "{\"x\": 1}\n");
  const auto error = [](const RowSource& rows) { return test::error_of([&] { check_all_rows(rows); }); };
  EXPECT_NE(
      error(source({calls})).find("calls.jsonl:2: messages[0].tool_calls[0].function.arguments:1:8: syntax error"),
      std::string::npos)
      << error(source({calls}));
  EXPECT_NE(error(source({good, cut})).find("cut.jsonl:2"), std::string::npos) << error(source({good, cut}));
  EXPECT_EQ(error(source({good})), "no error");
  RowSource first = source({calls});
  first.limit = 1;
  EXPECT_EQ(error(first), "no error");
  EXPECT_EQ(error(source({"-"})), "no error");
}

TEST_F(FirstRowsTest, AFolderThatCannotBeListedIsReported) {
  add("set/train-00001-of-00002.jsonl", "{\"x\": 5}\n");
  EXPECT_NE(test::error_of([&] { seen(source({(folder.path() / "set").string()})); }).find("shard 0 of 2"),
            std::string::npos);
}

}  // namespace
}  // namespace hone
