// SHA-256 and base64 of the standards' examples.
#include "core/net/digest.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

std::span<const unsigned char> bytes_of(std::string_view text) {
  return {reinterpret_cast<const unsigned char*>(text.data()), text.size()};
}

TEST(DigestTest, Base64OfTheRfcsExamples) {
  EXPECT_EQ(base64({}), "");
  EXPECT_EQ(base64(bytes_of("f")), "Zg==");
  EXPECT_EQ(base64(bytes_of("fo")), "Zm8=");
  EXPECT_EQ(base64(bytes_of("foobar")), "Zm9vYmFy");
}

TEST(DigestTest, Sha256OfTheStandardsExamples) {
  EXPECT_EQ(base64(sha256("abc")), "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
  EXPECT_EQ(base64(sha256("")), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
}

}  // namespace
}  // namespace hone
