#include "core/io/jsonl.h"

#include <gtest/gtest.h>

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

TEST(Jsonl, IsKnownByItsName) {
  EXPECT_TRUE(is_jsonl("a/b.jsonl") && is_jsonl("b.jsonl.gz"));
  EXPECT_FALSE(is_jsonl("a.jsonl/b.txt") || is_jsonl("jsonl") || is_jsonl("a.json"));
}

}  // namespace
}  // namespace hone
