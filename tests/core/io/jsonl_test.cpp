#include "core/io/jsonl.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone {
namespace {

TEST(JsonlReader, GivesRowsWithTheirPlace) {
  const test::TemporaryFolder folder;
  write_file_atomic(folder.path() / "rows.jsonl", "{\"a\": 1}\r\n\n  \n[2]\n{\"a\n");
  JsonlReader rows(folder.path() / "rows.jsonl");
  Json row;
  ASSERT_TRUE(rows.next(row));
  EXPECT_EQ(row.at("a").as_int(), 1);
  ASSERT_TRUE(rows.next(row));
  EXPECT_EQ(row.dump(), "[2]");
  EXPECT_EQ(rows.where(), (folder.path() / "rows.jsonl").string() + ":4");
  EXPECT_THROW(rows.next(row), Error);
}

TEST(JsonlWriter, WhatItWritesReadsBackAndAppends) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "rows.jsonl";
  for (const auto mode : {FileWriter::Mode::truncate, FileWriter::Mode::append}) {
    JsonlWriter out(path, mode);
    out.write(JsonObject{{"x", 0.1}});
    out.flush();
  }
  int64_t count = 0;
  read_jsonl(path, [&](const Json& row, int64_t line) {
    EXPECT_EQ(row.at("x").as_double(), 0.1);
    EXPECT_EQ(line, ++count);
  });
  EXPECT_EQ(count, 2);
  JsonlWriter full("/dev/full");
  full.write(Json(1));
  EXPECT_THROW(full.flush(), Error);
}

// flush() ends a gzip member or zstd frame, so that a reader may come in between, and an appended file is complete.
TEST(JsonlWriter, CompressesByTheNameOfTheFile) {
  const test::TemporaryFolder folder;
  for (const char* name : {"rows.jsonl.gz", "rows.jsonl.zst"}) {
    const auto path = folder.path() / name;
    int64_t written = 0;
    for (const auto mode : {FileWriter::Mode::truncate, FileWriter::Mode::append}) {
      JsonlWriter out(path, mode);
      for (int i = 0; i < 2; ++i) {
        out.write(JsonObject{{"x", written++}});
        out.flush();
        int64_t seen = 0;
        read_jsonl(path, [&](const Json& row, int64_t) { EXPECT_EQ(row.at("x").as_int(), seen++); });
        EXPECT_EQ(seen, written) << name;
      }
    }
    EXPECT_EQ(compression_of_content(read_beginning(path, 4)), compression_of_name(name));
  }
}

TEST(JsonlReader, SkipsAByteOrderMark) {
  const test::TemporaryFolder folder;
  write_file_atomic(folder.path() / "rows.jsonl", "\xEF\xBB\xBF{\"a\": 1}\n");
  Json row;
  ASSERT_TRUE(JsonlReader(folder.path() / "rows.jsonl").next(row));
  EXPECT_EQ(row.at("a").as_int(), 1);
}

TEST(JsonlReader, SaysThatATextIsUtf16) {
  const test::TemporaryFolder folder;
  write_file_atomic(folder.path() / "rows.jsonl", std::string("\xFF\xFE{\0", 4));
  Json row;
  EXPECT_NE(test::error_of([&] { JsonlReader(folder.path() / "rows.jsonl").next(row); }).find("the text is UTF-16"),
            std::string::npos);
}

}  // namespace
}  // namespace hone
