#include "core/io/compressed_writer.h"

#include <gtest/gtest.h>

#include "core/io/file.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

// Text that is longer than every buffer and does not compress to nothing.
std::string long_text() {
  std::string out;
  uint32_t x = 1;
  for (int i = 0; i < 300000; ++i) {
    x = x * 1664525u + 1013904223u;
    out += static_cast<char>('a' + (x >> 24) % 26);
  }
  return out;
}

TEST(ReplacedFile, WritesWhatReadersUnpack) {
  const TemporaryFolder folder;
  const std::string text = long_text();
  for (const auto& [piece, end] : {std::pair{size_t{1} << 20, ".gz"}, {size_t{1000}, ".gz"}, {size_t{1000}, ".zst"}}) {
    const fs::path path = folder.path() / concat(piece, end);
    ReplacedFile writer(path);
    for (size_t at = 0; at < text.size(); at += piece) writer.write(std::string_view(text).substr(at, piece));
    writer.finish();
    EXPECT_EQ(read_file(path), text) << path;
    EXPECT_LT(fs::file_size(path), text.size());
  }
}

TEST(ReplacedFile, EqualTextsGiveEqualBytes) {
  const TemporaryFolder folder;
  for (const char* name : {"a.gz", "other-name.gz"}) {
    ReplacedFile writer(folder.path() / name);
    writer.write("some rows\n");
    writer.finish();
  }
  EXPECT_EQ(read_beginning(folder.path() / "a.gz", 4096), read_beginning(folder.path() / "other-name.gz", 4096));
}

TEST(ReplacedFile, AFileThatIsNotFinishedNeverAppearsAndTheOldOneStays) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a.gz";
  {
    ReplacedFile writer(path);
    writer.write("old");
    EXPECT_FALSE(fs::exists(path));
    writer.finish();
  }
  { ReplacedFile(path).write("new"); }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_FALSE(fs::exists(path.string() + ".tmp"));
}

TEST(ReplacedFile, AnEmptyFileIsValid) {
  const TemporaryFolder folder;
  ReplacedFile writer(folder.path() / "a.gz");
  writer.finish();
  EXPECT_EQ(read_file(folder.path() / "a.gz"), "");
}

}  // namespace
}  // namespace hone::test
