#include <gtest/gtest.h>

#include "core/text/tokenizer/tokenizer.h"
#include "tests/core/text/tokenizer/character_tokenizer.h"

namespace hone::test {
namespace {

TEST(GenerationConfig, KeepsEveryIdThatEndsAReply) {
  const TemporaryFolder folder;
  const auto config = [&](const char* ids) {
    std::ofstream(folder.path() / "generation_config.json") << "{\"eos_token_id\": " << ids << "}";
    return generation_config_json(character_tokenizer(folder.path())).dump();
  };
  const std::string one = generation_config_json(character_tokenizer(folder.path())).at("eos_token_id").dump();
  EXPECT_EQ(config(one.c_str()), "{\"eos_token_id\": " + one + "}");
  EXPECT_EQ(config("[7, 9]"), "{\"eos_token_id\": [" + one + ", 7, 9]}");
}

}  // namespace
}  // namespace hone::test
