#include "collect/identity.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

TEST(ModelDigest, ChangesWithEachFileAndWithEveryBlockOfTheWeights) {
  const TemporaryFolder folder;
  const fs::path model = folder.path() / "model";
  fs::create_directory(model);
  std::string weights(3 << 20, 'w');
  const auto write = [&](const std::string& config) {
    std::ofstream(model / "config.json") << config;
    std::ofstream(model / "model.safetensors", std::ios::binary) << weights;
    return model_digest(model);
  };
  const std::string one = write("{}");
  EXPECT_EQ(one, write("{}"));
  EXPECT_NE(one, write("{ }"));
  weights.back() = 'x';
  EXPECT_NE(one, write("{}"));
  weights.back() = 'w';
  weights.front() = 'x';
  EXPECT_NE(one, write("{}"));
  weights.front() = 'w';
  EXPECT_EQ(one, write("{}"));
  weights.push_back('w');
  EXPECT_NE(one, write("{}"));
  EXPECT_EQ(model_digest(model / "config.json"), model_digest(model / "config.json"));
  EXPECT_NE(error_of([&] { model_digest(folder.path() / "none"); }).find("there is no such model"), std::string::npos);
}

Json identity(const std::vector<std::string>& settings) {
  const Config document =
      Config::from_text("files = ['rows.jsonl']\nreward = { kind = 'math' }", "test.toml", settings);
  return collect_identity(document.as<CollectConfig>(), document, JsonObject{{"digest", "d"}});
}

TEST(CollectIdentity, NamesTheKeyThatDiffers) {
  const Json before = identity({});
  EXPECT_EQ(first_difference(before, identity({})), std::nullopt);
  const auto difference = [&](const std::string& setting) {
    return first_difference(before, identity({setting})).value_or("none");
  };
  EXPECT_EQ(difference("sampling.temperature=0.5"), "sampling.temperature is 0.5, it was 1.0");
  EXPECT_EQ(difference("num_generations=4"), "num_generations is 4, it was 8");
  EXPECT_EQ(difference("reward.kind=number"), "reward.kind is \"number\", it was \"math\"");
  EXPECT_EQ(difference("rollout.quantization=int8"), "rollout.quantization is \"int8\", it was \"none\"");
  EXPECT_EQ(difference("chat=chatml"), "chat is \"chatml\", it was \"\"");
}

TEST(CollectIdentity, DoesNotHoldWhatChangesTimesOrSelectionsOnly) {
  for (const char* setting : {"max_reward_failure_rate=1", "threshold=0.5", "limit=7", "rollout.max_num_seqs=3",
                              "sft=best_of_n", "margin=1", "num_shards=3"})
    EXPECT_EQ(first_difference(identity({}), identity({setting})), std::nullopt) << setting;
}

TEST(CollectIdentity, KeepsSecretsOut) {
  ::setenv("HONE_TEST_SECRET", "sk-secret", 1);
  const Json kept = identity({"system=${HONE_TEST_SECRET}", "chat=chatml"});
  EXPECT_EQ(kept.dump().find("sk-secret"), std::string::npos) << kept.dump();
  ::unsetenv("HONE_TEST_SECRET");
}

}  // namespace
}  // namespace hone::test
