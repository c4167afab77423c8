// ./dev bits: a program has the same checksums twice, and a recipe whose results differ is named.
#include <gtest/gtest.h>

#include "core/io/file.h"
#include "tests/support/process.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

Finished bits(const fs::path& recipes, const std::vector<std::string>& arguments) {
  return Process(arguments, {}, "", {"bash", (recipes / "bits.sh").string()}).wait();
}

TEST(Bits, RepeatAndNameWhatDiffers) {
  const TemporaryFolder folder;
  const fs::path recipes = source_folder() / "tests/bits", one = folder.path() / "one", two = folder.path() / "two",
                 other = folder.path() / "other";
  const Finished first = bits(recipes, {one.string()});
  ASSERT_EQ(first.code, 0) << first.err;
  const Finished second = bits(recipes, {two.string(), "--against", one.string()});
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(second.out, "bits: equal\n");

  const fs::path planted = folder.path() / "planted";
  fs::copy(recipes, planted, fs::copy_options::recursive);
  std::string recipe = read_file(planted / "kto.toml");
  const size_t seed = recipe.find("seed = ");
  ASSERT_NE(seed, std::string::npos);
  recipe.insert(seed + 7, "9");
  write_file_atomic(planted / "kto.toml", recipe);
  const Finished third = bits(planted, {other.string(), "--against", (one / "sums.txt").string(), "kto", "dpo"});
  EXPECT_EQ(third.code, 1) << third.err;
  EXPECT_NE(third.out.find("differs     kto/metrics.jsonl\n"), std::string::npos) << third.out;
  EXPECT_NE(third.out.find("model.safetensors\n"), std::string::npos) << third.out;
  EXPECT_EQ(third.out.find("dpo/"), std::string::npos) << third.out;
}

}  // namespace
}  // namespace hone::test
