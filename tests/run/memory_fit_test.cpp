// device.memory: what is chosen, what is not, and that the recipes for consumer cards fit.
#include "run/plan/memory_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "core/config/byte_size.h"
#include "run/plan/plan.h"
#include "run/plan/stage_memory.h"
#include "tests/core/text/tokenizer/byte_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

constexpr const char* text = R"(
device = "cpu"
[model]
hidden_size = 64
num_hidden_layers = 4
num_attention_heads = 4
max_position_embeddings = 64
[rollout]
max_num_seqs = 16
[[stage]]
kind = "tokenizer"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
vocab_size = 270
[[stage]]
kind = "pretrain"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
max_length = 64
batch_size = 64
[[stage]]
kind = "rl"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
prompts_per_step = 8
num_generations = 4
reward = { kind = "number" }
)";

Recipe read(const std::vector<std::string>& overrides = {}) {
  return read_recipe(Config::from_text(text, "recipe.toml", overrides));
}

// The highest planned peak of a recipe.
int64_t planned(const Recipe& recipe) {
  int64_t out = 0;
  const Json plan = plan_recipe(recipe);
  for (const Json& stage : plan.at("stages").as_array()) out = std::max(out, stage.at("memory").at("total").as_int());
  return out;
}

std::vector<std::string> keys(const MemoryFit& fit) {
  std::vector<std::string> out;
  for (const MemoryChoice& choice : fit.choices) out.push_back(choice.key);
  return out;
}

TEST(MemoryFit, ARecipeThatFitsStaysAsItIs) {
  Recipe recipe = read();
  const std::string before = recipe.toml();
  const MemoryFit fit = fit_memory(recipe, planned(recipe));
  EXPECT_TRUE(fit.choices.empty()) << fit_text(fit);
  EXPECT_EQ(fit.planned_bytes, planned(recipe));
  EXPECT_EQ(recipe.toml(), before);
}

// What costs nothing comes first: the KV cache is larger than all completions together.
TEST(MemoryFit, LeastCostlyChangesComeFirst) {
  Recipe recipe = read();
  MemoryFit fit = fit_memory(recipe, planned(recipe) - 1);
  EXPECT_EQ(keys(fit), std::vector<std::string>{"rollout.kv_cache_tokens"}) << fit_text(fit);
  EXPECT_EQ(recipe.rollout.kv_cache_tokens, 16 * 64);
  EXPECT_EQ(fit.planned_bytes, planned(recipe));
  EXPECT_GE(fit.choices[0].saved_bytes, planned(read()) - fit.planned_bytes);

  // Then the engine rests while the learner trains.
  const std::vector<std::string> alone{"stage.1.kind=\"sft\"", "stage.1.batch_size=1", "stage.1.steps=1",
                                       "stage.1.prompt=\"{prompt}\"", "stage.1.completion=\"{answer}\""};
  Recipe rests = read(alone);
  fit_memory(rests, planned(rests) - 1);
  const int64_t awake = planned(rests);
  rests = read(alone);
  fit = fit_memory(rests, awake - 1);
  EXPECT_EQ(keys(fit), (std::vector<std::string>{"rollout.kv_cache_tokens", "rollout.free_cache_engine"}))
      << fit_text(fit);
  EXPECT_TRUE(rests.rollout.free_cache_engine);
  // An engine that samples ahead never does.
  std::vector<std::string> ahead = alone;
  ahead.emplace_back("stage.2.max_staleness=1");
  Recipe busy = read(ahead);
  const int64_t whole = planned(busy);
  fit = fit_memory(busy, whole / 2);
  EXPECT_FALSE(busy.rollout.free_cache_engine) << fit_text(fit);

  Recipe smaller = read();
  fit = fit_memory(smaller, planned(recipe) - 1);
  const std::vector<std::string> chosen = keys(fit);
  EXPECT_TRUE(std::ranges::any_of(chosen, [](const std::string& key) { return key.ends_with("recompute"); }))
      << fit_text(fit);
  EXPECT_TRUE(std::ranges::none_of(chosen, [](const std::string& key) { return key.ends_with("moments"); }))
      << fit_text(fit);
}

// At every limit, from the recipe's own need downward, the plan is within the limit, or the error has the numbers.
TEST(MemoryFit, AnyLimitIsKeptOrRefused) {
  const int64_t whole = planned(read());
  int64_t refused = 0;
  for (int64_t limit = whole; limit > 0 && refused == 0; limit = limit * 2 / 3) {
    Recipe recipe = read();
    MemoryFit fit;
    const std::string error = error_of([&] { fit = fit_memory(recipe, limit); });
    if (error == "no error") {
      EXPECT_LE(fit.planned_bytes, limit);
      EXPECT_EQ(fit.planned_bytes, planned(recipe));
      // The resolved recipe has the choices, so a resumed run has the same.
      const Recipe again = read_recipe(Config::from_text(recipe.toml(), "resolved.toml"));
      EXPECT_EQ(planned(again), fit.planned_bytes);
      EXPECT_EQ(again.toml(), recipe.toml());
      continue;
    }
    ++refused;
    EXPECT_NE(error.find("of device memory with the smallest settings"), std::string::npos) << error;
    EXPECT_NE(error.find("and device.memory allows"), std::string::npos) << error;
    // The limit that the error names is enough.
    const size_t begin = error.find("a limit of "), end = error.find(" is enough");
    ASSERT_TRUE(begin < end && end < error.size()) << error;
    const std::string named = error.substr(begin + 11, end - begin - 11);
    const std::optional<int64_t> enough = read_byte_size(named);
    ASSERT_TRUE(enough) << named;
    Recipe larger = read();
    EXPECT_EQ(error_of([&] { fit_memory(larger, *enough); }), "no error") << named;
  }
  EXPECT_EQ(refused, 1);
}

TEST(MemoryFit, KeysThatTheRecipeSetsAreNotChanged) {
  Recipe recipe = read({"rollout.kv_cache_tokens=65536", "rollout.free_cache_engine=false"});
  const MemoryFit fit = fit_memory(recipe, planned(recipe) - 1);
  EXPECT_EQ(recipe.rollout.kv_cache_tokens, 65536);
  EXPECT_FALSE(recipe.rollout.free_cache_engine);
  EXPECT_TRUE(std::ranges::none_of(keys(fit), [](const std::string& key) { return key.starts_with("rollout."); }));

  std::vector<std::string> all{"rollout.kv_cache_tokens=65536", "rollout.free_cache_engine=false"};
  for (const char* stage : {"stage.1.", "stage.2."})
    for (const char* key : {"recompute=none", "micro_batch_tokens=8192", "moments=f32"})
      all.push_back(std::string(stage) + key);
  Recipe fixed = read(all);
  const std::string error = error_of([&] { fit_memory(fixed, planned(fixed) - 1); });
  EXPECT_NE(error.find("rollout.kv_cache_tokens = "), std::string::npos) << error;
  EXPECT_NE(error.find("in place of the recipe's 65536 saves"), std::string::npos) << error;
  EXPECT_NE(error.find("rollout.free_cache_engine = true in place of the recipe's false saves"), std::string::npos);
  EXPECT_NE(error.find("recompute = \"full\" in place of the recipe's \"none\" saves"), std::string::npos) << error;
}

TEST(MemoryFit, TheTableHasAChoicePerLine) {
  Recipe recipe = read();
  const MemoryFit fit = fit_memory(recipe, planned(recipe) - 1);
  const std::string table = fit_text(fit);
  EXPECT_NE(table.find("rollout.kv_cache_tokens=1024"), std::string::npos) << table;
  EXPECT_NE(table.find("saves"), std::string::npos) << table;
  EXPECT_NE(table.find("(was 65536)"), std::string::npos) << table;
  EXPECT_EQ(fit_json(fit).at("choices").as_array().size(), 1u);
}

TEST(MemoryFit, AutoIsTheFreeMemoryOfTheDevice) {
  const DeviceSettings settings{.kind = "cpu", .memory = "auto"};
  const std::unique_ptr<Device> cpu = devices().at("cpu")(0);
  const int64_t limit = memory_limit(settings, *cpu);
  EXPECT_GT(limit, 0);
  EXPECT_EQ(memory_limit({.kind = "cpu", .memory = "12 GiB"}), int64_t{12} << 30);
  EXPECT_GT(memory_limit({.kind = "auto", .memory = "auto"}), 0);
  const std::string error = error_of([] { memory_limit({.kind = "meta", .memory = "auto"}); });
  EXPECT_EQ(error,
            "device.memory is auto, and the device meta has no memory: give a limit, such as device.memory = \"8 GB\"");
}

// No driver, no such GPU, or a build without CUDA: the plan says what the device itself says.
TEST(MemoryFit, AutoKeepsTheErrorOfTheDevice) {
  const std::string own = error_of([] { open_device("cuda:99"); });
  ASSERT_FALSE(own.empty());
  const std::string error = error_of([] { memory_limit({.kind = "cuda:99", .memory = "auto"}); });
  for (const std::string& part : {std::string("the free memory of cuda:99 cannot be read"), own,
                                  std::string("give a limit, such as device.memory = \"8 GB\"")})
    EXPECT_NE(error.find(part), std::string::npos) << error;
}

// The rl stage is called grpo, which no key of the document says: its index leads to it.
TEST(MemoryFit, PrintedChoicesAreOverrides) {
  for (const char* objective : {"", "grpo"}) {
    SCOPED_TRACE(objective);
    std::vector<std::string> overrides{"rollout.kv_cache_tokens=1024"};
    if (*objective) overrides.push_back(concat("stage.2.objective=", objective));
    Recipe fitted = read(overrides);
    const int64_t limit = planned(fitted) * 3 / 4;
    const MemoryFit fit = fit_memory(fitted, limit);
    const std::vector<std::string> all = keys(fit);
    EXPECT_TRUE(std::ranges::any_of(all, [](const std::string& key) { return key.starts_with("stage."); }));
    for (const MemoryChoice& choice : fit.choices) {
      const std::string printed = concat(choice.key, "=", choice.after);
      EXPECT_NE(fit_text(fit).find(printed), std::string::npos) << fit_text(fit);
      overrides.push_back(printed);
    }
    EXPECT_EQ(planned(read(overrides)), fit.planned_bytes) << fit_text(fit);
  }
}

// A recipe of configs/memory on the meta device, with random weights of the right shape and a tokenizer of bytes, whose
// prompts are longer.
struct CardRecipe {
  const char *file, *shape;
  int64_t limit;
};

TEST(MemoryFit, TheRecipesForConsumerCardsFit) {
  ::setenv("HONE_DATA", "/nowhere", 0);
  const TemporaryFolder folder;
  byte_tokenizer().save(folder.path());
  for (const CardRecipe& card : {CardRecipe{"smollm2_8gb", "smollm-135m", 8'000'000'000},
                                 {"qwen2.5_0.5b_12gb", "qwen2.5-0.5b", 12'000'000'000},
                                 {"qwen2.5_7b_lora_24gb", "qwen2.5-7b", 24'000'000'000}}) {
    SCOPED_TRACE(card.file);
    const std::string path = (source_folder() / "configs" / "memory" / (std::string(card.file) + ".toml")).string();
    const std::vector<std::string> overrides{"device=meta",
                                             "dtype=bf16",
                                             "model.path=\"\"",
                                             concat("model.config=", card.shape),
                                             "model.chat_template=qwen",
                                             concat("tokenizer=", folder.path().string())};
    Recipe recipe = read_recipe(path, overrides);
    const int64_t limit = memory_limit(recipe.device);
    EXPECT_EQ(limit, card.limit);
    MemoryFit fit;
    ASSERT_NO_THROW(fit = fit_memory(recipe, limit));
    EXPECT_LE(fit.planned_bytes, limit);
    EXPECT_GT(fit.planned_bytes, limit / 2) << "the recipe uses the card";
    // Only choices that change no result, and the split into micro-batches.
    for (const std::string& key : keys(fit)) EXPECT_FALSE(key.ends_with("moments")) << fit_text(fit);
  }
}

}  // namespace
}  // namespace hone::test
