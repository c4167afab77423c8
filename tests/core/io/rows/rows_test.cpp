#include "core/io/rows/rows.h"

#include <gtest/gtest.h>

#include "core/io/file.h"
#include "core/io/rows/dataset_folder.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone {
namespace {

using test::error_of;

class DatasetFolderTest : public ::testing::Test {
 protected:
  void add(const std::string& name, const std::string& text = "{}") const {
    const std::filesystem::path path = folder.path() / name;
    std::filesystem::create_directories(path.parent_path());
    write_file_atomic(path, text);
  }
  // The files of a name below the folder, joined with spaces.
  std::string files(const std::string& suffix, const std::string& split = "train") const {
    std::string out;
    for (const std::string& file : row_files(folder.path().string() + suffix, split))
      out += (out.empty() ? "" : " ") + std::filesystem::path(file).lexically_relative(folder.path()).string();
    return out;
  }
  test::TemporaryFolder folder;
};

TEST_F(DatasetFolderTest, ShardsBelongToTheSplitOfTheirName) {
  add("data/train-00001-of-00002.parquet");
  add("data/train-00000-of-00002.parquet");
  add("data/test_sft-00000-of-00001.parquet");
  add("README.md", "no front matter");
  EXPECT_EQ(files(""), "data/train-00000-of-00002.parquet data/train-00001-of-00002.parquet");
  EXPECT_EQ(files(":test_sft"), "data/test_sft-00000-of-00001.parquet");
  EXPECT_EQ(files("", "test_sft"), "data/test_sft-00000-of-00001.parquet");
  EXPECT_NE(error_of([&] { files(":dev"); }).find("no split 'dev'; it has: test_sft, train"), std::string::npos);
}

TEST_F(DatasetFolderTest, AMissingShardIsAnErrorThatNamesIt) {
  add("data/train-00000-of-00003.parquet");
  add("data/train-00002-of-00003.parquet");
  EXPECT_NE(error_of([&] { files(""); }).find("shard 1 of 3 of data/train is missing"), std::string::npos);
}

TEST_F(DatasetFolderTest, FilesAndFoldersAreNamedForTheirSplit) {
  add("train.jsonl");
  add("my_dev.jsonl.gz");
  add("test/a.csv");
  add("test/b.csv");
  add("dataset_infos.json");
  add(".cache/train.jsonl");
  EXPECT_EQ(files(""), "train.jsonl");
  EXPECT_EQ(files(":validation"), "my_dev.jsonl.gz");
  EXPECT_EQ(files(":val"), "my_dev.jsonl.gz");
  EXPECT_EQ(files(":test"), "test/a.csv test/b.csv");
}

TEST_F(DatasetFolderTest, FilesWithoutASplitAreTrain) {
  add("part-00000-of-00002.jsonl");
  add("part-00001-of-00002.jsonl");
  EXPECT_EQ(files(""), "part-00000-of-00002.jsonl part-00001-of-00002.jsonl");
}

TEST_F(DatasetFolderTest, TheConfigurationsOfTheReadmeDecide) {
  add("main/train-00000-of-00001.parquet");
  add("main/test-00000-of-00001.parquet");
  add("socratic/train-00000-of-00001.parquet");
  add("README.md", R"(---
license: mit
configs:
- config_name: main
  data_files:
  - split: train
    path: main/train-*
  - split: test
    path:
    - "main/test-*"
- config_name: socratic
  data_files: socratic/*.parquet
dataset_info:
  features: x
---
# Text
)");
  EXPECT_EQ(files(":main:train"), "main/train-00000-of-00001.parquet");
  EXPECT_EQ(files(":main:test"), "main/test-00000-of-00001.parquet");
  EXPECT_EQ(files(":socratic:train"), "socratic/train-00000-of-00001.parquet");
  EXPECT_NE(error_of([&] { files(""); }).find("README.md has the configurations main, socratic; name one"),
            std::string::npos);
  EXPECT_NE(error_of([&] { files(":mian:train"); }).find("did you mean 'main'"), std::string::npos);
}

TEST_F(DatasetFolderTest, WhatCannotBeReadIsAnError) {
  EXPECT_NE(error_of([&] { files(""); }).find("has no Parquet, JSON Lines, JSON or CSV files"), std::string::npos);
  add("train.jsonl");
  add("train.csv", "a\n");
  EXPECT_NE(error_of([&] { files(""); }).find("files of several formats"), std::string::npos);
  add("data-00000-of-00001.arrow");
  EXPECT_NE(error_of([&] { files(""); }).find("does not read Arrow files"), std::string::npos);
}

TEST_F(DatasetFolderTest, RowsOfAllShardsComeInOrder) {
  add("train-00000-of-00002.jsonl", "{\"x\": 1}\n");
  add("train-00001-of-00002.jsonl", "{\"x\": 2}\n");
  std::string seen;
  each_row(folder.path().string(), [&](const Json& row, const std::string& where) {
    seen += row.at("x").dump() + where.substr(where.size() - 2) + " ";
  });
  EXPECT_EQ(seen, "1:1 2:1 ");
}

TEST(ReadmeConfigs, PatternsMayBeWrittenInSeveralWays) {
  const std::vector<DatasetFiles> found = readme_configs(
      "---\nconfigs:\n  - config_name: default\n    data_files:\n      - a.csv\n      - b.csv\n  - config_name: x\n"
      "    data_files: ['c.csv', \"d.csv\"]\n---\n");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].patterns, (std::vector<std::string>{"a.csv", "b.csv"}));
  EXPECT_TRUE(found[0].is_default);
  EXPECT_EQ(found[1].config, "x");
  EXPECT_EQ(found[1].patterns, (std::vector<std::string>{"c.csv", "d.csv"}));
  EXPECT_TRUE(readme_configs("# no front matter\nconfigs:\n- config_name: x\n").empty());
}

}  // namespace
}  // namespace hone
