#include "core/config/byte_size.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(ByteSize, ReadsUnitsOfBothKinds) {
  const std::pair<const char*, int64_t> sizes[] = {{"8 GB", 8'000'000'000},
                                                   {"8GB", 8'000'000'000},
                                                   {"12 GiB", int64_t{12} << 30},
                                                   {"12 gib", int64_t{12} << 30},
                                                   {"7.5 GB", 7'500'000'000},
                                                   {"500 MB", 500'000'000},
                                                   {"512 MiB", int64_t{512} << 20},
                                                   {"64 kB", 64'000},
                                                   {"64 KiB", 65'536},
                                                   {"2 TB", 2'000'000'000'000},
                                                   {"1000", 1000},
                                                   {"1000 B", 1000}};
  for (const auto& [text, bytes] : sizes) EXPECT_EQ(read_byte_size(text), bytes) << text;
}

TEST(ByteSize, AnythingElseIsNone) {
  for (const char* text :
       {"",  " ",    "GB",  "8 G", "8 Gb/s",   "-8 GB", "+8 GB", "8,5 GB", "8 GB free", " 8 GB",
        "0", "0 GB", "0.1", "1.5", "1.2.3 GB", ".",     "1e9",   "nan",    "inf GB",    "9999999999999999999 TB"})
    EXPECT_FALSE(read_byte_size(text)) << text;
}

TEST(ByteSize, TextsAreForPeople) {
  EXPECT_EQ(byte_size_text(7'450'000'000), "7.45 GB");
  EXPECT_EQ(byte_size_text(336'500'000), "336.5 MB");
  EXPECT_EQ(byte_size_text(65'536), "65.5 kB");
  EXPECT_EQ(byte_size_text(512), "512 bytes");
}

}  // namespace
}  // namespace hone
