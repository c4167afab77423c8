#include "core/io/byte_source.h"

#include <gtest/gtest.h>

#include "core/io/compression.h"
#include "core/io/file.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone {
namespace {

using test::error_of;

class ByteSourceTest : public ::testing::TestWithParam<Compression> {
 protected:
  std::string read(const std::string& bytes) const {
    write_file_atomic(folder.path() / "file", bytes);
    return read_file(folder.path() / "file");
  }
  static std::string text(size_t lines) {
    std::string out;
    for (size_t i = 0; i < lines; ++i) out += std::to_string(i * i) + "\n";
    return out;
  }
  test::TemporaryFolder folder;
};

INSTANTIATE_TEST_SUITE_P(Formats, ByteSourceTest, ::testing::Values(Compression::gzip, Compression::zstd));

TEST_P(ByteSourceTest, UnpacksSeveralMembersOrFrames) {
  const std::string a = text(100000), b = text(7);
  EXPECT_EQ(read(pack(GetParam(), a) + pack(GetParam(), b) + pack(GetParam(), "")), a + b);
  EXPECT_EQ(read(pack(GetParam(), "")), "");
}

TEST_P(ByteSourceTest, EveryTruncationIsAnError) {
  const std::string packed = pack(GetParam(), text(200));
  for (size_t size = 4; size < packed.size(); ++size)
    EXPECT_NE(error_of([&] { read(packed.substr(0, size)); }).find("file: cannot read"), std::string::npos) << size;
  const std::string second = packed + packed.substr(0, packed.size() / 2);
  EXPECT_NE(error_of([&] { read(second); }).find("the compressed data end early"), std::string::npos);
}

TEST_P(ByteSourceTest, DamageIsAnError) {
  std::string packed = pack(GetParam(), text(2000));
  packed[packed.size() / 2] = static_cast<char>(packed[packed.size() / 2] ^ 0x55);
  EXPECT_NE(error_of([&] { read(packed); }).find("file: cannot read"), std::string::npos);
}

TEST_P(ByteSourceTest, AFileThatUnpacksToMoreThanItsLimitIsRefused) {
  const std::string packed = pack(GetParam(), std::string(size_t{1} << 20, ' '));
  write_file_atomic(folder.path() / "file", packed);
  EXPECT_NE(error_of([&] { read_file(folder.path() / "file", 1000); }).find("larger than 1000"), std::string::npos);
  EXPECT_NE(error_of([&] { unpack(GetParam(), packed, 1000); }).find("more than 1000 bytes"), std::string::npos);
}

TEST_F(ByteSourceTest, ZeroesAfterAGzipMemberArePaddingAndOtherBytesAreNot) {
  const std::string packed = pack(Compression::gzip, "text");
  EXPECT_EQ(read(packed + std::string(512, '\0')), "text");
  EXPECT_NE(error_of([&] { read(packed + "more"); }).find("the gzip data are damaged"), std::string::npos);
}

TEST(TextCursor, CountsLinesAndRefusesUtf16) {
  const test::TemporaryFolder folder;
  write_file_atomic(folder.path() / "a", "\xEF\xBB\xBFx\ny");
  TextCursor text(folder.path() / "a");
  EXPECT_EQ(text.get(), 'x');
  EXPECT_EQ(text.line(), 1);
  EXPECT_EQ(text.get(), '\n');
  EXPECT_EQ(text.line(), 2);
  EXPECT_EQ(text.get(), 'y');
  EXPECT_EQ(text.get(), TextCursor::end);
  write_file_atomic(folder.path() / "b", std::string_view("\xFF\xFEx\0", 4));
  EXPECT_NE(error_of([&] { TextCursor{folder.path() / "b"}; }).find("UTF-16"), std::string::npos);
}

}  // namespace
}  // namespace hone
