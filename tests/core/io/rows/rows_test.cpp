#include "core/io/rows/rows.h"

#include <gtest/gtest.h>

#include "core/base/suggest.h"
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

TEST_F(DatasetFolderTest, AReadmeNamesFoldersAndSplitsInAnyStyle) {
  add("v1/train.jsonl");
  add("v1/test.jsonl");
  add("test_v2/part.jsonl");
  add("test_v2/dev.jsonl");
  add("README.md",
      "---\nconfigs:\n- config_name: one\n  data_files: {train: v1/train.*, test: [v1/test.jsonl]}\n"
      "- config_name: two\n  data_dir: test_v2\n"
      "- {config_name: three, data_dir: v1, data_files: [{split: validation, path: test.jsonl}]}\n"
      "- config_name: gone\n  data_files:\n  - split: train\n    path: v9/*\n---\n");
  EXPECT_EQ(files(":one:train"), "v1/train.jsonl");
  EXPECT_EQ(files(":one:test"), "v1/test.jsonl");
  EXPECT_EQ(files(":two:validation"), "test_v2/dev.jsonl");
  EXPECT_EQ(files(":three:dev"), "v1/test.jsonl");
  EXPECT_NE(error_of([&] { files(":gone:train"); }).find("README.md:11: the folder has no data file that matches v9/*"),
            std::string::npos);
}

// Every configuration as "config split patterns;", the default with a star.
std::string shown(const std::string& readme) {
  std::string out;
  for (const DatasetFiles& one : readme_configs(readme))
    out += concat(one.config, one.is_default ? "* " : " ", one.split, " ", join(one.patterns, " "), ";");
  return out;
}

TEST(ReadmeConfigs, PatternsMayBeWrittenInSeveralWays) {
  EXPECT_EQ(shown("---\nconfigs:\n  - config_name: default\n    data_files:\n      - a.csv\n      - b.csv\n"
                  "  - config_name: x\n    data_files: ['c.csv', \"d.csv\"]\n---\n"),
            "default* train a.csv b.csv;x train c.csv d.csv;");
  EXPECT_EQ(shown("# no front matter\nconfigs:\n- config_name: x\n"), "");
  EXPECT_EQ(shown("---\nconfigs:\n- config_name: x\n"), "");  // no end
  EXPECT_EQ(shown("---\nconfigs:\n---\n"), "");
  EXPECT_EQ(shown("\xef\xbb\xbf---\r\nlicense: mit\r\nconfigs:\r\n- config_name: x # the only one\r\n"
                  "  data_files: \"a#b/*.csv\" # quoted\r\nother: [\r\n---\r\n"),
            "x train a#b/*.csv;");
  // Flow style, also over several lines and with the bracket in the first column.
  EXPECT_EQ(shown("---\nconfigs: [{config_name: x, data_files: [{split: train, path: a/*}, {split: test, path: "
                  "['b/*', c/**]}]}]\n---\n"),
            "x train a/*;x test b/* c/**;");
  EXPECT_EQ(shown("---\nconfigs: [\n  {\n    config_name: x, # one\n    \"data_files\": {\n      \"train\": a.csv,\n"
                  "    },\n  },\n]\nlicense: mit\n---\n"),
            "x train a.csv;");
  // Maps from splits to paths; a list below `path` in the key's own column; texts of several lines; a default.
  EXPECT_EQ(
      shown("---\nconfigs:\n- config_name: x\n  description: >-\n    two\n    lines: here\n  default: true\n"
            "  data_files:\n    train:\n    - a.csv\n    - b.csv\n    \"test\": 'it''s.csv'\n"
            "-\n  config_name: y\n  note: a text\n    of two lines\n  data_files:\n  -   split: dev\n      path:\n"
            "      - c.csv\n---\n"),
      "x* train a.csv b.csv;x* test it's.csv;y dev c.csv;");
  EXPECT_EQ(shown("---\nconfigs:\n- config_name: x\n  data_dir: ./v1/\n- data_dir: v2\n  data_files: ./a.csv\n---\n"),
            "x  v1/**;default* train v2/a.csv;");
}

TEST(ReadmeConfigs, WhatIsMalformedIsAnErrorWithItsLine) {
  const auto error = [](const std::string& configs) {
    return error_of([&] { readme_configs("---\nlicense: mit\n" + configs + "\n---\n", "R.md"); });
  };
  EXPECT_EQ(error("configs: default"), "R.md:3: configs must be a list of maps with config_name and data_files");
  EXPECT_EQ(error("configs:\n- default"), "R.md:4: an entry of configs must be a map with config_name and data_files");
  EXPECT_EQ(error("configs:\n- config_name: x\n  data_files:\n  - split: train"),
            "R.md:6: data_files: the split 'train' has no path");
  EXPECT_EQ(error("configs:\n- config_name: x\n  data_files:\n  - split: train\n    path:"),
            "R.md:7: data_files: the path of the split 'train' must be a text or a list of texts");
  EXPECT_EQ(error("configs:\n- config_name: x\n  data_files: []"), "R.md:5: data_files: the split 'train' has no path");
  EXPECT_EQ(error("configs:\n- config_name: x\n  data_files: [a.csv, b.csv"),
            "R.md:6: the bracket of line 5 has no end");
  EXPECT_EQ(error("configs:\n- config_name: x\n  data_files: [a.csv b: c]"),
            "R.md:5: the bracket of line 5 needs ',' or ']' here, not ': c]'");
  EXPECT_EQ(error("configs:\n- config_name: 'x"), "R.md:4: the quote has no end on its line");
  EXPECT_EQ(error("configs:\n- config_name: x\n   data_files: a"),
            "R.md:5: 'data_files: a' belongs to the text above; a text has no keys");
  EXPECT_EQ(error("configs:\n- config_name: x\n\tdata_files: a"), "R.md:5: a tab indents the line; use spaces");
  EXPECT_EQ(error("configs:\n- config_name: x\n  config_name: y"), "R.md:5: the key 'config_name' occurs twice");
  EXPECT_EQ(error("configs:\n- config_name: x\n  data_files"),
            "R.md:5: 'data_files' stands where a key is expected (\"key: value\")");
  EXPECT_EQ(error("configs:\n- config_name: [x]"), "R.md:4: config_name must be a text");
  EXPECT_NE(error("configs: " + std::string(100, '[')).find("R.md:3: more than 64 levels"), std::string::npos);
}

}  // namespace
}  // namespace hone
