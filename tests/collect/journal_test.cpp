#include "collect/journal.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/io/file.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

CollectedRow row_of(int64_t index, const std::string& text = "t") {
  CollectedRow out{.index = index, .id = concat("rows.jsonl:", index + 1), .digest = "d", .prompt = "p"};
  out.variables = JsonObject{};
  out.completions = {
      {.text = text, .finish_reason = "stop", .num_tokens = 3, .reward = 0.1, .reward_parts = {{"a", 0.1}}},
      {.text = "", .finish_reason = "status 500", .without_score = "completion"},
      {.text = "x",
       .messages = {{"assistant", "x", JsonObject{{"reasoning_content", "r"}}}},
       .finish_reason = "length",
       .num_tokens = 9,
       .without_score = "skipped"}};
  return out;
}

class JournalTest : public ::testing::Test {
 protected:
  std::vector<int64_t> open() {
    std::vector<int64_t> out;
    journal.emplace(file, [&](const CollectedRow& row) { out.push_back(row.index); });
    return out;
  }
  TemporaryFolder folder;
  fs::path file = folder.path() / "completions.jsonl";
  std::optional<CollectJournal> journal;
};

TEST_F(JournalTest, RowsReadBackAsTheyWere) {
  EXPECT_TRUE(open().empty());
  for (const int64_t index : {5, 1, 3}) journal->append(row_of(index));
  EXPECT_EQ(journal->read(1)->to_json(), row_of(1).to_json());
  EXPECT_FALSE(journal->read(2));
  EXPECT_EQ(open(), (std::vector<int64_t>{5, 1, 3}));
  EXPECT_EQ(journal->read(3)->to_json(), row_of(3).to_json());
}

TEST_F(JournalTest, SortedItHasTheLastLineOfEachRow) {
  open();
  journal->append(row_of(2, "old"));
  journal->append(row_of(1));
  journal->append(row_of(2, "new"));
  journal->sort();
  EXPECT_EQ(read_file(file), row_of(1).to_json().dump() + "\n" + row_of(2, "new").to_json().dump() + "\n");
  EXPECT_EQ(journal->read(2)->completions.front().text, "new");
  journal->append(row_of(0));
  EXPECT_EQ(journal->read(0)->index, 0);
  EXPECT_EQ(open(), (std::vector<int64_t>{1, 2, 0}));
}

// A process that is killed may leave any part of the last line.
TEST_F(JournalTest, AnIncompleteLastLineIsCutAndNothingElseIsLost) {
  open();
  journal->append(row_of(0));
  journal->append(row_of(1));
  const std::string whole = read_file(file);
  const size_t first = whole.find('\n') + 1;
  for (size_t size = first; size < whole.size(); size += 7) {
    std::ofstream(file, std::ios::binary) << whole.substr(0, size);
    EXPECT_EQ(open(), (std::vector<int64_t>{0})) << size;
    journal->append(row_of(1));
    EXPECT_EQ(read_file(file), whole) << size;
  }
}

TEST_F(JournalTest, ABrokenLineIsNamed) {
  const auto message = [&](const std::string& line) {
    std::ofstream(file, std::ios::binary) << row_of(0).to_json().dump() << "\n" << line << "\n";
    return error_of([&] { open(); });
  };
  EXPECT_NE(message("{\"row\": 1").find("completions.jsonl:2"), std::string::npos);
  EXPECT_NE(
      message("{\"row\": -1, \"id\": \"\", \"digest\": \"\", \"prompt\": \"\"}").find("completions.jsonl:2: row is -1"),
      std::string::npos);
  EXPECT_NE(message("{\"row\": 1, \"id\": 7}").find("completions.jsonl:2"), std::string::npos);
  EXPECT_NE(message("[]").find("completions.jsonl:2"), std::string::npos);
}

}  // namespace
}  // namespace hone::test
