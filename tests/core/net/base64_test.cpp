// Base64: every byte survives a round trip, and invalid text is an error.
#include <gtest/gtest.h>

#include "core/base/check.h"
#include "core/net/digest.h"

namespace hone {
namespace {

std::string there_and_back(const std::string& bytes) {
  return from_base64(base64(std::span(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size())), "test");
}

TEST(Base64Test, EveryLengthAndEveryByteRoundTrips) {
  for (size_t length = 0; length <= 8; ++length)
    for (int byte = 0; byte < 256; ++byte) {
      std::string bytes(length, static_cast<char>(byte));
      for (size_t i = 0; i < length; i += 2) bytes[i] = static_cast<char>(255 - byte + static_cast<int>(i));
      EXPECT_EQ(there_and_back(bytes), bytes) << length << " bytes, " << byte;
    }
  const std::string zeros(3000, '\0');
  EXPECT_EQ(there_and_back(zeros), zeros);
}

TEST(Base64Test, TheRfcsExamples) {
  EXPECT_EQ(from_base64("", "test"), "");
  EXPECT_EQ(from_base64("Zg==", "test"), "f");
  EXPECT_EQ(from_base64("Zm8=", "test"), "fo");
  EXPECT_EQ(from_base64("Zm9vYmFy", "test"), "foobar");
}

TEST(Base64Test, InvalidBase64IsAnErrorThatNamesIt) {
  for (const std::string& text :
       {std::string("Z"),        std::string("Zg"),       std::string("Zg="),      std::string("Zm9vY"),
        std::string("Zm9v\n"),   std::string(" Zm9v"),    std::string("Zm9v    "), std::string("    "),
        std::string("    Zm9v"), std::string("Zm 9"),     std::string("Zm9-"),     std::string("Zm9_"),
        std::string("----"),     std::string("Zm9\xc3"),  std::string("Zm\0v", 4), std::string("===="),
        std::string("Z==="),     std::string("=m9v"),     std::string("Z=9v"),     std::string("Zm=v"),
        std::string("Zg==Zg=="), std::string("Zm8=Zm9v"), std::string("Zm9v====")}) {
    try {
      const std::string out = from_base64(text, "the digest");
      ADD_FAILURE() << "'" << text << "' is taken as " << out.size() << " bytes";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).rfind("the digest: ", 0), 0u) << error.what();
    }
  }
}

}  // namespace
}  // namespace hone
