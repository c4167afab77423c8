#include "core/io/rows/row_reader.h"

#include <gtest/gtest.h>

#include "core/io/compression.h"
#include "core/io/file.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone {
namespace {

using test::error_of;

class RowReaderTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder.path() / name).string(); }
  // The rows of a file with this text, each as "where row" without the folder.
  std::string rows(const std::string& name, const std::string& text) const {
    write_file_atomic(path(name), text);
    const std::unique_ptr<RowReader> reader = open_row_file(path(name));
    std::string out;
    for (Json row; reader->next(row);)
      out += reader->where().substr(folder.path().string().size() + 1) + " " + row.dump() + "\n";
    return out;
  }
  std::string error(const std::string& name, const std::string& text) const {
    return error_of([&] { rows(name, text); });
  }
  test::TemporaryFolder folder;
};

TEST_F(RowReaderTest, TheNameSaysTheFormat) {
  EXPECT_EQ(row_format_of_name("a/b.JSONL.gz"), RowFormat::jsonl);
  EXPECT_EQ(row_format_of_name("b.ndjson"), RowFormat::jsonl);
  EXPECT_EQ(row_format_of_name("b.json.zst"), RowFormat::json);
  EXPECT_EQ(row_format_of_name("b.tsv"), RowFormat::csv);
  EXPECT_EQ(row_format_of_name("b.parquet"), RowFormat::parquet);
  EXPECT_EQ(row_format_of_name("b.txt.gz"), RowFormat::text);
  EXPECT_EQ(row_format_of_name("a.jsonl/b"), RowFormat::unknown);
}

TEST_F(RowReaderTest, AFileOfAnotherNameIsKnownByItsContent) {
  EXPECT_EQ(rows("a", "{\"x\": 1}\n{\"x\": 2}\n"), "a:1 {\"x\": 1}\na:2 {\"x\": 2}\n");
  EXPECT_EQ(rows("b.data", " \n[{\"x\": 1}]"), "b.data row 1 {\"x\": 1}\n");
  EXPECT_EQ(rows("c.txt", "two\nlines"), "c.txt {\"text\": \"two\\nlines\"}\n");
}

TEST_F(RowReaderTest, EveryTextFormatMayBeCompressed) {
  for (const Compression compression : {Compression::gzip, Compression::zstd}) {
    const std::string end = compression == Compression::gzip ? ".gz" : ".zst";
    EXPECT_NE(rows("a.csv" + end, pack(compression, "x\n1\n")).find("{\"x\": \"1\"}"), std::string::npos);
    EXPECT_NE(rows("a.json" + end, pack(compression, "[{\"x\": 1}]")).find("{\"x\": 1}"), std::string::npos);
    EXPECT_NE(rows("a.jsonl" + end, pack(compression, "{\"x\": 1}")).find("{\"x\": 1}"), std::string::npos);
    const std::string cut = pack(compression, "{\"x\": 1}").substr(0, 12);
    EXPECT_NE(error("cut.jsonl" + end, cut).find("cut.jsonl" + end + ": cannot read"), std::string::npos);
  }
}

TEST_F(RowReaderTest, JsonIsAnArrayOrObjectsOneAfterAnother) {
  EXPECT_EQ(rows("a.json", "\xEF\xBB\xBF [ {\"x\": \"]},\\\"\\\\\"},\n {\"y\": [{}]} ]\n"),
            "a.json row 1 {\"x\": \"]},\\\"\\\\\"}\na.json row 2 {\"y\": [{}]}\n");
  EXPECT_EQ(rows("b.json", "{\n \"x\": 1\n}\n{\"x\": 2}{\"x\": 3}"),
            "b.json row 1 {\"x\": 1}\nb.json row 2 {\"x\": 2}\nb.json row 3 {\"x\": 3}\n");
  EXPECT_EQ(rows("c.json", "[]"), "");
  EXPECT_EQ(rows("d.json", ""), "");
}

TEST_F(RowReaderTest, BrokenJsonIsAnErrorWithItsRow) {
  const auto has = [&](const std::string& text, const std::string& part) {
    EXPECT_NE(error("a.json", text).find(part), std::string::npos) << text << " " << error("a.json", text);
  };
  has("[{\"x\": 1}", "a.json:1: the file ends inside the array, after row 1");
  has("[{\"x\": 1}, {\"x\"", "a.json row 2: the file ends inside the row, which begins on line 1");
  has("[{\"x\": 1} {\"x\": 2}]", "a.json:1: expected a comma or ] after row 1");
  has("[{\"x\": 1},]", "a.json:1: a value is missing after the comma");
  has("[{\"x\": 1}]\n[]", "a.json:2: text after the end of the array");
  has("[{\"x\": 1}, {\"x\": }]", "a.json row 2:1:7: ");
  has("[{\"x\": 1}, 2]", "a.json row 2: a row must be an object, this is an integer");
  has("{\"x\": 1} tail", "a.json row 2");
}

TEST_F(RowReaderTest, CsvFollowsRfc4180) {
  EXPECT_EQ(rows("a.csv", "\xEF\xBB\xBFname,text\r\n\"a, b\",\"two\r\nlines\"\r\n\r\n007,\"say \"\"hi\"\"\"\r\n"),
            "a.csv:2 {\"name\": \"a, b\", \"text\": \"two\\r\\nlines\"}\n"
            "a.csv:5 {\"name\": \"007\", \"text\": \"say \\\"hi\\\"\"}\n");
  EXPECT_EQ(rows("b.csv", "a,b\n1.50,\n"), "b.csv:2 {\"a\": \"1.50\", \"b\": \"\"}\n");
  EXPECT_EQ(rows("c.csv", ",b\n0,x"), "c.csv:2 {\"Unnamed: 0\": \"0\", \"b\": \"x\"}\n");
  EXPECT_EQ(rows("d.csv", "a\n\"\"\nx\n"), "d.csv:2 {\"a\": \"\"}\nd.csv:3 {\"a\": \"x\"}\n");
}

TEST_F(RowReaderTest, TheDelimiterIsThatOfTheNameOrOfTheHeader) {
  EXPECT_EQ(rows("a.tsv", "a,b\tc\n1,2\t3\n"), "a.tsv:2 {\"a,b\": \"1,2\", \"c\": \"3\"}\n");
  EXPECT_EQ(rows("b.csv", "a;\"x,y,z\";c\n1,5;2;3\n"), "b.csv:2 {\"a\": \"1,5\", \"x,y,z\": \"2\", \"c\": \"3\"}\n");
  EXPECT_EQ(rows("c.csv", "a\tb\n1\t2\n"), "c.csv:2 {\"a\": \"1\", \"b\": \"2\"}\n");
  EXPECT_EQ(rows("d.csv", "a|b\n1|2\n"), "d.csv:2 {\"a\": \"1\", \"b\": \"2\"}\n");
}

TEST_F(RowReaderTest, BrokenCsvIsAnErrorWithItsLine) {
  EXPECT_NE(error("a.csv", "a,b\n1,2\n1,2,3\n").find("a.csv:3: the row has 3 fields, the header 2"), std::string::npos);
  EXPECT_NE(error("a.csv", "a,b\n1,\"2\n3,4\n").find("a.csv:2: field 2 begins with a quote that is never closed"),
            std::string::npos);
  EXPECT_NE(error("a.csv", "a,b\n\"1\"x,2\n").find("a.csv:2: text after the closing quote of field 1"),
            std::string::npos);
  EXPECT_NE(error("a.csv", "a,a\n1,2\n").find("a.csv:1: the column 'a' is named twice"), std::string::npos);
  EXPECT_NE(error("a.csv", "").find("a.csv: the file is empty"), std::string::npos);
  EXPECT_NE(error("a.csv", "a\n\xE9t\xE9\n").find("a.csv:2: column 'a' is not UTF-8"), std::string::npos);
}

}  // namespace
}  // namespace hone
