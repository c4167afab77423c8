#include "core/base/suggest.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/base/registry.h"

namespace hone {
namespace {

const std::vector<std::string> known{"learning_rate", "steps", "seed"};

TEST(Suggest, TheNearestNameOrNone) {
  EXPECT_EQ(suggestion("learnig_rate", known), "; did you mean 'learning_rate'?");
  EXPECT_EQ(suggestion("step", known), "; did you mean 'steps'?");
  EXPECT_EQ(suggestion("completely_else", known), "");
  EXPECT_EQ(suggestion("", known), "");
  EXPECT_EQ(suggestion("steps", {}), "");
}

TEST(Suggest, Join) {
  EXPECT_EQ(join(known), "learning_rate, steps, seed");
  EXPECT_EQ(join({}), "");
}

TEST(Registry, UnknownNamesListTheKnown) {
  Registry<int> registry("reward");
  registry.add("exact", 1);
  registry.add("format", 2);
  EXPECT_EQ(registry.at("format"), 2);
  EXPECT_EQ(registry.find("none"), nullptr);
  EXPECT_EQ(registry.names(), (std::vector<std::string>{"exact", "format"}));
  try {
    registry.at("exakt");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "unknown reward 'exakt'; did you mean 'exact'?; known: exact, format");
  }
  EXPECT_THROW(registry.add("exact", 3), Error);
}

}  // namespace
}  // namespace hone
