#include "model/prune/prune_plan.h"

#include "tests/model/tiny_model.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

using Indices = std::vector<int64_t>;

ModelShape shape_of(int64_t heads, int64_t kv_heads, int64_t dim, int64_t channels) {
  return {.num_layers = 2,
          .num_attention_heads = heads,
          .num_kv_heads = kv_heads,
          .head_dim = dim,
          .intermediate_size = channels};
}

// A layer of one head, whose channels have these scores.
LayerImportance channel_scores(std::vector<double> scores) { return {.heads = {1}, .channels = std::move(scores)}; }

Indices range(int64_t begin, int64_t end) {
  Indices out;
  for (int64_t i = begin; i < end; ++i) out.push_back(i);
  return out;
}

}  // namespace

TEST(PrunePlan, KeepsTheLargestScoresInOrder) {
  const std::vector<double> scores{1, 5, 2, 5, 0, 5};
  EXPECT_EQ(most_important(scores, 2), (Indices{1, 3}));  // the earlier of equal ones
  EXPECT_EQ(most_important(scores, 4), (Indices{1, 2, 3, 5}));
  EXPECT_EQ(removed_of(Indices{1, 2, 5}, 6), (Indices{0, 3, 4}));
}

TEST(PrunePlan, KeepsWholeGroupsOrHeadsOfEachGroup) {
  const ModelShape shape = shape_of(6, 3, 4, 2);
  const std::vector<LayerImportance> importance(2, {.heads = {1, 9, 4, 4, 8, 3}, .channels = {1, 1}});
  const auto parts = [&](int64_t heads, int64_t kv_heads) {
    return plan_pruning(shape, {1, heads, kv_heads, 2}, {1}, importance, 1).parts[0];
  };
  EXPECT_EQ(parts(4, 2).kv_heads, (Indices{0, 2}));  // sums 10, 8, 11
  EXPECT_EQ(parts(4, 2).heads, (Indices{0, 1, 4, 5}));
  EXPECT_EQ(parts(3, 3).kv_heads, (Indices{0, 1, 2}));
  EXPECT_EQ(parts(3, 3).heads, (Indices{1, 2, 4}));
  EXPECT_EQ(parts(1, 1).heads, (Indices{4}));
}

TEST(PrunePlan, KeepsAlignedBlocksOfChannels) {
  const ModelShape shape = shape_of(1, 1, 4, 6);
  const std::vector<LayerImportance> importance{channel_scores({9, 0, 3, 3, 1, 6})};
  const auto channels = [&](int64_t count, int64_t block) {
    return plan_pruning(shape, {1, 1, 1, count}, {0}, importance, block).parts[0].channels;
  };
  EXPECT_EQ(channels(4, 1), (Indices{0, 2, 3, 5}));
  EXPECT_EQ(channels(4, 2), (Indices{0, 1, 4, 5}));
  EXPECT_EQ(channels(3, 3), (Indices{0, 1, 2}));
  EXPECT_TRUE(says(error_of([&] { channels(3, 2); }), "3 channels"));
  EXPECT_TRUE(says(error_of([&] { channels(3, 2); }), "blocks of 2"));
}

// A GPU's tensor cores add 16 products at once, and K in chunks of 512.
TEST(PrunePlan, KnowsWhatKeepsTheSumsOfAGpu) {
  const ModelShape shape = shape_of(1, 1, 16, 2048);
  const auto keeps = [&](Indices channels) {
    return keeps_gpu_sums(shape, {.layers = {0}, .parts = {{{0}, {0}, std::move(channels)}}});
  };
  const auto joined = [](Indices a, const Indices& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  EXPECT_TRUE(keeps(range(0, 700)));
  EXPECT_TRUE(keeps(range(512, 2048)));                          // without the first chunk
  EXPECT_TRUE(keeps(joined(range(0, 512), range(1024, 1536))));  // without a chunk in the middle
  EXPECT_TRUE(keeps(joined(range(0, 16), range(32, 256))));      // steps of the only chunk
  EXPECT_FALSE(keeps(joined(range(0, 16), range(33, 256))));     // part of a step
  EXPECT_FALSE(keeps(joined(range(0, 8), range(24, 256))));      // two halves of steps
  EXPECT_FALSE(keeps(joined(range(0, 256), range(512, 1024))));  // half a chunk
  EXPECT_FALSE(keeps_gpu_sums(shape_of(4, 4, 256, 1), {.layers = {0}, .parts = {{{0, 2}, {0, 2}, {0}}}}));
  EXPECT_TRUE(keeps_gpu_sums(shape_of(4, 4, 256, 1), {.layers = {0}, .parts = {{{0, 1}, {0, 1}, {0}}}}));
}

TEST(PrunePlan, SelectsTheValuesOfLayersInConfigJson) {
  const auto config_without_first = [](const Json& config) {
    const std::unique_ptr<Model> model = make_model(config, "test");
    const KeptParts parts{range(0, 4), range(0, 2), range(0, 20)};
    return pruned_config(*model, {.layers = {1}, .parts = {parts}});
  };
  const JsonArray types{"full_attention", "sliding_attention"};
  const JsonObject windows{{"use_sliding_window", true}, {"max_window_layers", 1}};
  for (const char* family : {"qwen2", "qwen3"}) {
    const Json listed = config_without_first(with(with(tiny_config(family), windows), {{"layer_types", types}}));
    EXPECT_EQ(listed.at("layer_types"), Json(JsonArray{"sliding_attention"}));
    const Json unlisted = config_without_first(with(tiny_config(family), windows));
    EXPECT_EQ(unlisted.at("layer_types"), Json(JsonArray{"sliding_attention"}));
    EXPECT_EQ(unlisted.at("num_hidden_layers"), Json(1));
    EXPECT_EQ(unlisted.at("max_window_layers"), Json(0));
  }
  EXPECT_EQ(config_without_first(tiny_config("gpt2")).at("n_layer"), Json(1));
}

TEST(PrunePlan, SaysWhichSizesAModelCanHave) {
  const auto check = [](const char* family, const PruneSizes& sizes) {
    check_prunable(*make_model(tiny_config(family), "test"), sizes);
  };
  EXPECT_NO_THROW(check("llama", {1, 2, 2, 3}));
  EXPECT_NO_THROW(check("gpt2", {1, 4, 4, 3}));
  EXPECT_TRUE(says(error_of([&] { check("llama", {3, 4, 2, 20}); }), "num_hidden_layers would be 3"));
  EXPECT_TRUE(says(error_of([&] { check("llama", {3, 4, 2, 20}); }), "1 to 2"));
  EXPECT_TRUE(says(error_of([&] { check("llama", {2, 4, 2, 0}); }), "intermediate_size would be 0"));
  EXPECT_TRUE(says(error_of([&] { check("llama", {2, 4, 2, 0}); }), "1 to 20"));
  EXPECT_TRUE(says(error_of([&] { check("llama", {2, 3, 2, 20}); }), "3 heads cannot share 2 KV heads"));
  EXPECT_TRUE(says(error_of([&] { check("llama", {2, 4, 1, 20}); }), "at most 2"));
  EXPECT_NO_THROW(check("olmo2", {1, 4, 2, 3}));
  EXPECT_TRUE(says(error_of([&] { check("olmo2", {2, 2, 1, 20}); }), "a norm over all heads"));
  EXPECT_TRUE(says(error_of([&] { check("gpt2", {2, 2, 2, 20}); }), "'gpt2'"));
  EXPECT_TRUE(says(error_of([&] { check("gpt2", {2, 2, 2, 20}); }), "head_dim"));
}

}  // namespace hone::test
