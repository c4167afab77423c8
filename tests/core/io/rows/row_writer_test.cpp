#include "core/io/rows/row_writer.h"

#include <gtest/gtest.h>

#include "core/io/file.h"
#include "core/io/rows/row_reader.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone {
namespace {

using test::error_of;

JsonArray parse_rows(const std::string& lines) { return parse_json(lines, "rows").as_array(); }

class RowWriterTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder.path() / name).string(); }
  void write(const std::string& name, const JsonArray& rows) const {
    const std::unique_ptr<RowWriter> writer = create_row_file(path(name));
    for (int pass = writer->needs_survey() ? 0 : 1; pass < 2; ++pass)
      for (size_t i = 0; i < rows.size(); ++i) {
        const std::string where = concat("rows.jsonl:", i + 1);
        pass == 0 ? writer->survey(rows[i], where) : writer->write(rows[i], where);
      }
    writer->finish();
  }
  JsonArray read(const std::string& name) const {
    JsonArray out;
    const std::unique_ptr<RowReader> reader = open_row_file(path(name));
    for (Json row; reader->next(row);) out.push_back(row);
    return out;
  }
  std::string error(const std::string& name, const std::string& rows) const {
    return error_of([&] { write(name, parse_rows(rows)); });
  }
  test::TemporaryFolder folder;
};

TEST_F(RowWriterTest, EveryNestedContainerGivesItsRowsBack) {
  const JsonArray rows = parse_rows(R"([
    {"id": 1, "score": 0.5, "ok": true, "text": "two\nlines \"quoted\" é", "tags": ["a", null, ""], "none": null,
     "messages": [{"role": "user", "content": "hi", "calls": [[1], []]}, {"role": "tool", "content": null, "calls": null}],
     "meta": {"a": {"b": null}}},
    {"id": -9223372036854775807, "score": -1e300, "ok": false, "text": "", "tags": [], "none": null, "messages": [],
     "meta": null},
    {"id": null, "score": null, "ok": null, "text": null, "tags": null, "none": null, "messages": null,
     "meta": {"a": null}}])");
  for (const char* name :
       {"a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.json", "a.json.zst", "a.parquet", "a.parquet.gz"}) {
    write(name, rows);
    EXPECT_EQ(read(name), rows) << name;
    EXPECT_FALSE(std::filesystem::exists(path(name) + ".tmp")) << name;
  }
}

TEST_F(RowWriterTest, ParquetHasSeveralRowGroups) {
  JsonArray rows;
  for (int i = 0; i < 70; ++i) rows.push_back(JsonObject{{"i", i}, {"text", std::string(size_t{1} << 20, 'x')}});
  write("a.parquet", rows);
  EXPECT_EQ(read("a.parquet"), rows);
}

TEST_F(RowWriterTest, CsvQuotesWhatItMust) {
  const JsonArray rows =
      parse_rows(R"([{"a, b": "x,\"y\"", "c": "1\r\n2"}, {"a, b": "", "c": "\tt"}, {"a, b": "007", "c": " s "}])");
  for (const char* name : {"a.csv", "a.tsv", "a.csv.gz"}) {
    write(name, rows);
    EXPECT_EQ(read(name), rows) << name;
  }
  const JsonArray one = parse_rows(R"([{"a": ""}, {"a": "x"}])");
  write("one.csv", one);
  EXPECT_EQ(read("one.csv"), one);
  write("numbers.csv", parse_rows(R"([{"a": 1.5, "b": true}])"));
  EXPECT_EQ(read_file(path("numbers.csv")), "a,b\n1.5,true\n");
}

TEST_F(RowWriterTest, WhatCsvCannotHoldIsAnErrorWithRowAndColumn) {
  EXPECT_NE(error("a.csv", R"([{"a": "x"}, {"a": ["y"]}])").find("rows.jsonl:2: column 'a' is an array"),
            std::string::npos);
  EXPECT_NE(error("a.csv", R"([{"a": null}])").find("rows.jsonl:1: column 'a' is null"), std::string::npos);
  EXPECT_NE(error("a.csv", R"([{"a": "x", "b": "y"}, {"a": "x"}])").find("rows.jsonl:2: column 'b' is missing"),
            std::string::npos);
}

TEST_F(RowWriterTest, WhatParquetCannotHoldIsAnErrorWithRowAndColumn) {
  EXPECT_NE(error("a.parquet", R"([{"a": {"b": "x"}}, {"a": {"b": 1}}])")
                .find("rows.jsonl:2: column 'a.b' is an integer, in earlier rows it has texts"),
            std::string::npos);
  EXPECT_NE(error("a.parquet", R"([{"a": {}}])").find("column 'a' has objects without members"), std::string::npos);
  EXPECT_NE(
      error("a.parquet", R"([{"a": 9007199254740993}, {"a": 0.5}])").find("rows.jsonl:1: column 'a' has an integer"),
      std::string::npos);
  write("b.parquet", parse_rows(R"([{"a": 1}, {"a": 0.5}])"));
  EXPECT_EQ(read("b.parquet"), parse_rows(R"([{"a": 1.0}, {"a": 0.5}])"));
}

TEST_F(RowWriterTest, AFileThatIsNotFinishedLeavesTheOldOne) {
  write_file_atomic(path("a.jsonl"), "{\"old\": 1}\n");
  {
    const std::unique_ptr<RowWriter> writer = create_row_file(path("a.jsonl"));
    writer->write(JsonObject{{"new", 1}}, "");
  }
  EXPECT_EQ(read_file(path("a.jsonl")), "{\"old\": 1}\n");
  EXPECT_FALSE(std::filesystem::exists(path("a.jsonl.tmp")));
  EXPECT_NE(error_of([&] { create_row_file(path("a.docx")); }).find("must end in .jsonl"), std::string::npos);
}

}  // namespace
}  // namespace hone
