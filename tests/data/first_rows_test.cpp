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

TEST_F(FirstRowsTest, AFolderThatCannotBeListedIsReported) {
  add("set/train-00001-of-00002.jsonl", "{\"x\": 5}\n");
  EXPECT_NE(test::error_of([&] { seen(source({(folder.path() / "set").string()})); }).find("shard 0 of 2"),
            std::string::npos);
}

}  // namespace
}  // namespace hone
