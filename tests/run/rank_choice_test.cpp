#include "run/rank_choice.h"

#include <gtest/gtest.h>

#include "run/recipe/recipe.h"

namespace hone::test {
namespace {

constexpr size_t gb = 1'000'000'000;
using Names = std::vector<std::string>;

TEST(RankChoice, GpusOfOtherProgramsAreLeftOut) {
  const RankChoice choice = without_busy({{"cuda:0", 79 * gb, 80 * gb},
                                          {"cuda:1", 20 * gb, 80 * gb},
                                          {"cuda:2", 0, 0, "out of GPU memory: asked for 8 bytes"},
                                          {"cuda:3", 60 * gb, 80 * gb}});
  EXPECT_EQ(choice.devices, (Names{"cuda:0", "cuda:3"}));
  ASSERT_EQ(choice.notes.size(), 2u);
  EXPECT_EQ(choice.notes[0],
            "cuda:1 is left out: other programs use 60.00 GB of its 80.00 GB; parallel.ranks = 4 uses it");
  EXPECT_EQ(choice.notes[1], "cuda:2 is left out: out of GPU memory: asked for 8 bytes; parallel.ranks = 4 uses it");
}

// Opening them says why none can be used.
TEST(RankChoice, IfAllAreInUseNoneIsLeftOut) {
  const RankChoice choice = without_busy({{"cuda:0", 1 * gb, 80 * gb}, {"cuda:1", 1 * gb, 80 * gb}});
  EXPECT_EQ(choice.devices, (Names{"cuda:0", "cuda:1"}));
  EXPECT_TRUE(choice.notes.empty());
}

TEST(RankChoice, ARankHasAtLeast2048Tokens) {
  const auto devices = [](int64_t tokens) {
    RankChoice choice{.devices = {"cuda:0", "cuda:1", "cuda:2", "cuda:3"}, .notes = {}};
    leave_idle_out(choice, {.name = "sft", .tokens = tokens});
    EXPECT_EQ(choice.notes.empty(), choice.devices.size() == 4);
    return choice.devices.size();
  };
  EXPECT_EQ(devices(100), 1u);
  EXPECT_EQ(devices(4095), 1u);
  EXPECT_EQ(devices(4096), 2u);
  EXPECT_EQ(devices(1 << 20), 4u);
  RankChoice choice{.devices = {"cuda:0", "cuda:1"}, .notes = {}};
  leave_idle_out(choice, {.name = "sft", .tokens = 1000});
  EXPECT_EQ(choice.notes.at(0),
            "parallel.ranks = \"auto\" takes 1 of 2 GPUs: an update of stage sft has about 1000 tokens, and a rank "
            "should have 2048 or more; parallel.ranks = 2 uses all");
}

// The stage with most tokens in all decides. Samples of varying lengths count half.
TEST(RankChoice, TheStageThatTrainsMostCounts) {
  const auto tokens = [](const std::vector<std::string>& overrides) {
    return update_tokens(read_recipe(Config::from_text(R"(
device = "cpu"
[model]
max_position_embeddings = 128
[[stage]]
kind = "tokenizer"
generator = { kind = "arithmetic" }
[[stage]]
kind = "pretrain"
generator = { kind = "arithmetic" }
max_length = 64
batch_size = 64
steps = 700
[[stage]]
kind = "sft"
generator = { kind = "arithmetic" }
batch_size = 64
steps = 100
)",
                                                       "recipe.toml", overrides)));
  };
  EXPECT_EQ(tokens({}).name, "pretrain");
  EXPECT_EQ(tokens({}).tokens, 4096);
  EXPECT_EQ(tokens({"stage.pretrain.packing=documents"}).tokens, 2048);
  EXPECT_EQ(tokens({"stage.sft.steps=2000"}).name, "sft");
  EXPECT_EQ(tokens({"stage.sft.steps=2000"}).tokens, 64 * 128 / 2);
}

TEST(RankChoice, RecipesThatNameANumberHaveIt) {
  const Recipe recipe = read_recipe(Config::from_text(
      "device = \"cpu\"\n[parallel]\nranks = 3\n[[stage]]\nkind = \"tokenizer\"\ngenerator = { kind = \"arithmetic\" }",
      "recipe.toml"));
  EXPECT_EQ(choose_ranks(recipe).devices, Names(3, "cpu"));
}

}  // namespace
}  // namespace hone::test
