// device in recipes: a string or the table [device], and its limit of memory.
#include <gtest/gtest.h>

#include "core/device/device.h"
#include "run/recipe/recipe.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

constexpr const char* stage = R"(
[[stage]]
kind = "tokenizer"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
vocab_size = 270
)";

Recipe read(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return read_recipe(Config::from_text(text + stage, "recipe.toml", overrides));
}
std::string problem(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return error_of([&] { read(text, overrides); });
}

TEST(DeviceSettings, AStringIsTheKind) {
  EXPECT_EQ(read("").device.kind, "auto");
  EXPECT_EQ(read("device = \"cpu\"\n").device.kind, "cpu");
  EXPECT_FALSE(read("device = \"cpu\"\n").device.limits_memory());
  EXPECT_EQ(read("[device]\nkind = \"cpu\"\nmemory = \"8 GB\"\n").device.kind, "cpu");
  EXPECT_EQ(read("[device]\nmemory = \"8 GB\"\n").device.kind, "auto");
  EXPECT_EQ(read("device = { kind = \"meta\" }\n").device.kind, "meta");
}

TEST(DeviceSettings, OverridesKeepTheOtherKey) {
  const std::string table = "[device]\nkind = \"meta\"\nmemory = \"8 GB\"\n";
  Recipe recipe = read(table, {"device=cpu"});
  EXPECT_EQ(recipe.device.kind, "cpu");
  EXPECT_EQ(recipe.device.memory, "8 GB");
  recipe = read("device = \"cpu\"\n", {"device.memory=12 GiB"});
  EXPECT_EQ(recipe.device.kind, "cpu");
  EXPECT_EQ(recipe.device.memory, "12 GiB");
  EXPECT_EQ(read("", {"device.memory=auto"}).device.memory, "auto");
  EXPECT_EQ(read("", {"device=cpu"}).device.kind, "cpu");
}

TEST(DeviceSettings, MemoryIsAutoASizeOrBytes) {
  EXPECT_EQ(read("[device]\nmemory = 8000000000\n").device.memory, "8000000000");
  EXPECT_EQ(read("", {"device.memory=8000000000"}).device.memory, "8000000000");
  for (const char* bad : {"\"8 gigs\"", "\"-1 GB\"", "0", "-5", "\"0 GB\"", "\"Auto\""}) {
    const std::string error = problem(concat("[device]\nmemory = ", bad, "\n"));
    EXPECT_NE(error.find("recipe.toml:2:"), std::string::npos) << error;
    EXPECT_NE(error.find("it must be auto, a size such as \"8 GB\""), std::string::npos) << error;
  }
  EXPECT_NE(problem("[device]\nmemory = true\n").find("it is a boolean"), std::string::npos);
}

TEST(DeviceSettings, MistakesHaveTheirPlace) {
  EXPECT_NE(problem("device = \"tpu\"\n").find("recipe.toml:1:10: unknown device 'tpu'"), std::string::npos)
      << problem("device = \"tpu\"\n");
  EXPECT_NE(problem("[device]\nkind = \"tpu\"\n").find("recipe.toml:2:8: unknown device 'tpu'"), std::string::npos);
  if (!devices().contains("cuda")) {
    EXPECT_NE(problem("device = \"cuda\"\n").find("recipe.toml:1:10: device 'cuda': this build of hone has no CUDA"),
              std::string::npos);
  }
  EXPECT_NE(problem("[device]\nmemroy = \"8 GB\"\n").find("did you mean 'memory'"), std::string::npos);
  EXPECT_NE(problem("device = 3\n").find("'device' should be a table, it is an integer"), std::string::npos);
}

TEST(DeviceSettings, TheResolvedRecipeReadsBackTheSame) {
  for (const char* text : {"", "device = \"cpu\"\n", "[device]\nkind = \"cpu\"\nmemory = \"8 GB\"\n"}) {
    const Recipe recipe = read(text);
    const Recipe again = read_recipe(Config::from_text(recipe.toml(), "resolved.toml"));
    EXPECT_EQ(again.device.kind, recipe.device.kind);
    EXPECT_EQ(again.device.memory, recipe.device.memory);
    EXPECT_EQ(again.toml(), recipe.toml());
  }
}

}  // namespace
}  // namespace hone::test
