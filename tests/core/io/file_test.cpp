#include "core/io/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "core/config/config.h"
#include "core/io/jsonl.h"
#include "core/io/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone {
namespace {

void write_plain(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void write_gzip(const std::filesystem::path& path, const std::string& bytes) {
  const gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
}

using test::error_of;

TEST(ExpandPath, VariablesAndHome) {
  ::setenv("HONE_TEST_PLACE", "/data", 1);
  EXPECT_EQ(expand_path("${HONE_TEST_PLACE}/x${HONE_TEST_PLACE}"), "/data/x/data");
  EXPECT_EQ(expand_path("plain $x"), "plain $x");
  EXPECT_EQ(expand_path("~/x"), std::string(std::getenv("HOME")) + "/x");
  EXPECT_NE(error_of([] { expand_path("${HONE_TEST_UNSET}/x"); }).find("HONE_TEST_UNSET"), std::string::npos);
  EXPECT_THROW(expand_path("${OPEN"), Error);
}

TEST(ReadFile, PlainAndGzipAlike) {
  const test::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100000; ++i) text += std::to_string(i) + "\n";
  write_plain(folder.path() / "a", text);
  write_gzip(folder.path() / "b", text);  // recognized by content, not by name
  EXPECT_EQ(read_file(folder.path() / "a"), text);
  EXPECT_EQ(read_file(folder.path() / "b"), text);
  EXPECT_NE(error_of([&] { read_file(folder.path() / "b", 1000); }).find("larger than 1000"), std::string::npos);
}

TEST(ReadFile, ErrorsNameThePathAndTheReason) {
  const test::TemporaryFolder folder;
  EXPECT_NE(error_of([&] { read_file(folder.path() / "none"); }).find("none: cannot open: No such file"),
            std::string::npos);
  EXPECT_NE(error_of([&] { read_file(folder.path()); }).find("directory"), std::string::npos);
  write_gzip(folder.path() / "whole", std::string(100000, 'x') + "tail");
  write_plain(
      folder.path() / "cut", read_file("/dev/null") + [&] {
        std::ifstream in(folder.path() / "whole", std::ios::binary);
        std::string bytes{std::istreambuf_iterator<char>(in), {}};
        return bytes.substr(0, bytes.size() - 12);
      }());
  EXPECT_NE(error_of([&] { read_file(folder.path() / "cut"); }).find("cut: cannot read"), std::string::npos);
}

TEST(ReadFile, WhatIsNotARegularFileIsAnErrorAtOnce) {
  const test::TemporaryFolder folder;
  const std::filesystem::path pipe = folder.path() / "pipe", link = folder.path() / "link";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", link);
  for (const auto& [path, kind] : {std::pair<std::filesystem::path, const char*>{pipe, "pipe: is a FIFO, not a file"},
                                   {"/dev/zero", "/dev/zero: is a device, not a file"},
                                   {link, "link: is a device, not a file"},
                                   {folder.path(), "is a directory, not a file"}}) {
    EXPECT_NE(error_of([&] { read_file(path); }).find(kind), std::string::npos) << path;
    EXPECT_NE(error_of([&] { LineReader{path}; }).find(kind), std::string::npos) << path;
    EXPECT_NE(error_of([&] { read_beginning(path, 8); }).find(kind), std::string::npos) << path;
    EXPECT_NE(error_of([&] {
                SafetensorsReader reader(path);
              }).find(std::filesystem::is_directory(path) ? "no model.safetensors" : kind),
              std::string::npos)
        << path;
  }
  write_plain(folder.path() / "text", "abcdef");
  EXPECT_EQ(read_beginning(folder.path() / "text", 4), "abcd");
  EXPECT_EQ(read_beginning(folder.path() / "text", 40), "abcdef");
}

// 65 MiB of spaces in 64 kB of gzip. The limit of a config is 64 MiB, of a recipe 16 MiB.
TEST(ReadFile, AFileThatUnpacksToMoreThanItsKindMayHaveIsRefusedByName) {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "config.json";
  {
    const gzFile file = gzopen(path.c_str(), "wb");
    const std::string block(size_t{1} << 20, ' ');
    for (int i = 0; i < 65; ++i) gzwrite(file, block.data(), static_cast<unsigned>(block.size()));
    gzclose(file);
  }
  EXPECT_NE(error_of([&] { read_file(path); }).find("config.json: larger than 67108864 bytes once it is unpacked"),
            std::string::npos);
  EXPECT_NE(error_of([&] { Config::from_file(path.string()); }).find("config.json: larger than 16777216 bytes"),
            std::string::npos);
  EXPECT_EQ(read_file(path, max_document_bytes).size(), size_t{65} << 20);
}

TEST(LineReader, NumbersLinesAndForgivesEndings) {
  const test::TemporaryFolder folder;
  const std::string wide(700000, 'w');
  write_plain(folder.path() / "lines", "one\r\n\n" + wide + "\nlast");
  LineReader lines(folder.path() / "lines");
  std::string line;
  ASSERT_TRUE(lines.next(line));
  EXPECT_EQ(line, "one");
  ASSERT_TRUE(lines.next(line));
  EXPECT_EQ(line, "");
  ASSERT_TRUE(lines.next(line));
  EXPECT_EQ(line, wide);
  ASSERT_TRUE(lines.next(line));
  EXPECT_EQ(line, "last");
  EXPECT_EQ(lines.line_number(), 4);
  EXPECT_FALSE(lines.next(line));
}

TEST(Jsonl, AMalformedLineIsNamedByFileAndLine) {
  const test::TemporaryFolder folder;
  write_plain(folder.path() / "rows.jsonl", "{\"a\": 1}\n\n{\"a\": 2\n");
  int64_t rows = 0;
  const std::string error =
      error_of([&] { read_jsonl(folder.path() / "rows.jsonl", [&](const Json&, int64_t) { ++rows; }); });
  EXPECT_EQ(rows, 1);
  EXPECT_NE(error.find("rows.jsonl:3:"), std::string::npos) << error;
}

TEST(FileWriter, ADiskThatIsFullIsAnError) {
  FileWriter writer("/dev/full");
  writer.write("x");
  EXPECT_NE(error_of([&] { writer.flush(); }).find("/dev/full: cannot write: No space left"), std::string::npos);
}

TEST(WriteFileAtomic, AFailureLeavesTheOldFileAndNoTemporary) {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "state.json";
  write_file_atomic(path, "old");
  // For the next lines no file of this process may exceed 1000 bytes: the write fails as on a full disk.
  struct rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 1000;
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = error_of([&] { write_file_atomic(path, std::string(100000, 'n')); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_NE(error.find("state.json.tmp: cannot write: File too large"), std::string::npos) << error;
  EXPECT_EQ(read_file(path), "old");
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".tmp"));
  write_file_atomic(path, "new");
  EXPECT_EQ(read_file(path), "new");
}

TEST(WriteFileAtomic, WhatIsNoFileIsNotReplaced) {
  const test::TemporaryFolder folder;
  const std::filesystem::path pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(error_of([&] { write_file_atomic(pipe, "x"); }).find("pipe: cannot replace: it is not a file"),
            std::string::npos);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST(MakeFolder, SaysWhyNot) {
  const test::TemporaryFolder folder;
  make_folder(folder.path() / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(folder.path() / "a/b/c"));
  write_plain(folder.path() / "file", "x");
  EXPECT_NE(error_of([&] { make_folder(folder.path() / "file"); }).find("cannot make the folder"), std::string::npos);
  EXPECT_NE(error_of([&] { make_folder(folder.path() / "file/below"); }).find("cannot make the folder"),
            std::string::npos);
  EXPECT_NE(error_of([] { make_folder("/proc/hone"); }).find("/proc/hone: cannot make the folder"), std::string::npos);
  if (::geteuid() != 0) {
    std::filesystem::permissions(folder.path() / "a/b/c",
                                 std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
    EXPECT_NE(error_of([&] { make_folder(folder.path() / "a/b/c"); }).find("cannot write into the folder"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace hone
