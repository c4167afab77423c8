// ApiKeys: accepted headers, and key files.
#include "core/net/bearer_keys.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/base/check.h"
#include "tests/support/support.h"

namespace hone {
namespace {

TEST(ApiKeys, AcceptsOneOfTheKeys) {
  const test::TemporaryFolder folder;
  const auto file = folder.path() / "keys";
  std::ofstream(file) << "# ours\n\nfirst-key\r\nsecond\n";
  const ApiKeys keys = ApiKeys::load(file);
  EXPECT_TRUE(keys.accepts("Bearer first-key"));
  EXPECT_TRUE(keys.accepts("bearer second"));
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer first", "Bearer first-key2", "Bearer # ours",
                            "Basic second", "second", "Bearer  second"})
    EXPECT_FALSE(keys.accepts(wrong)) << wrong;
}

TEST(ApiKeys, AFileWithoutKeysIsAnError) {
  const test::TemporaryFolder folder;
  const auto file = folder.path() / "keys";
  EXPECT_THROW(ApiKeys::load(file), Error);
  std::ofstream(file) << "# none\n";
  EXPECT_THROW(ApiKeys::load(file), Error);
  std::ofstream(file) << "two words\n";
  EXPECT_THROW(ApiKeys::load(file), Error);
}

}  // namespace
}  // namespace hone
