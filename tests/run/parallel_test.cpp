#include "run/recipe/parallel.h"

#include <gtest/gtest.h>

#include "run/recipe/recipe.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

Recipe recipe_with(const std::string& parallel, const std::string& rest = "") {
  return read_recipe(Config::from_text(concat(rest, "\n", parallel, R"(
[[stage]]
kind = "tokenizer"
generator = { kind = "arithmetic" }
)"),
                                       "recipe.toml"));
}

TEST(Parallel, RanksAreANumberOrAuto) {
  EXPECT_EQ(recipe_with("").parallel.ranks, 0);
  EXPECT_EQ(recipe_with("[parallel]\nranks = \"auto\"").parallel.ranks, 0);
  EXPECT_EQ(recipe_with("[parallel]\nranks = 3").parallel.ranks, 3);
  for (const char* wrong : {"ranks = -1", "ranks = 1025"}) {
    const std::string error = error_of([&] { recipe_with(concat("[parallel]\n", wrong)); });
    EXPECT_NE(error.find("ranks must be \"auto\" (0) or in [1, 1024]"), std::string::npos) << error;
    EXPECT_TRUE(error.starts_with("recipe.toml:")) << error;
  }
  const std::string error = error_of([&] { recipe_with("[parallel]\nranks = \"all\""); });
  EXPECT_NE(error.find("'ranks' should be an integer or \"auto\""), std::string::npos) << error;
}

TEST(Parallel, RanksThatShareADeviceAreCounted) {
  EXPECT_EQ(ranks_per_device({"cuda:0", "cuda:1"}), 1);
  EXPECT_EQ(ranks_per_device({"cuda:0", "cuda:1", "cuda:0"}), 2);
  EXPECT_EQ(ranks_per_device({"cpu", "cpu", "cpu"}), 3);
}

TEST(Parallel, TheResolvedRecipeReadsBackAsItIs) {
  const Recipe recipe = recipe_with("[parallel]\nranks = \"auto\"\ntimeout = 30");
  const Recipe again = read_again(recipe);
  EXPECT_EQ(again.toml(), recipe.toml());
  EXPECT_EQ(again.parallel.timeout, 30);
  EXPECT_EQ(again.stage.front().name, recipe.stage.front().name);
}

TEST(Parallel, KeysOutOfRangeAreRefusedWithASentence) {
  const auto error = [](const std::string& key) { return error_of([&] { recipe_with("[parallel]\n" + key); }); };
  for (const int64_t zero : {1, 2, 3}) EXPECT_EQ(recipe_with(concat("[parallel]\nzero = ", zero)).parallel.zero, zero);
  EXPECT_NE(error("zero = 0").find("zero must be 1, 2 or 3"), std::string::npos);
  EXPECT_NE(error("zero = 4").find("zero must be 1, 2 or 3"), std::string::npos);
  EXPECT_NE(error("micro_batch_multiple = 1025")
                .find("micro_batch_multiple must be 0 (the number of ranks) or in [1, "
                      "1024]"),
            std::string::npos);
  EXPECT_EQ(recipe_with("[parallel]\nmicro_batch_multiple = 6").parallel.micro_batch_multiple, 6);
  EXPECT_NE(error("timeout = 0").find("timeout must be in"), std::string::npos);
  EXPECT_NE(error("rank = 2").find("ranks"), std::string::npos);
}

TEST(Parallel, ACpuHasOneRankUnlessTheRecipeSaysMore) {
  const auto devices = [](const std::string& parallel) {
    return rank_devices(recipe_with("[parallel]\n" + parallel, "device = \"cpu\""));
  };
  EXPECT_EQ(devices(""), std::vector<std::string>{"cpu"});
  EXPECT_EQ(devices("ranks = 1"), std::vector<std::string>{"cpu"});
  EXPECT_EQ(devices("ranks = 3"), std::vector<std::string>(3, "cpu"));
}

}  // namespace
}  // namespace hone::test
