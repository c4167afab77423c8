// The recipes that come with the program: each reads, and every objective has one.
#include "run/recipe.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "tests/support/support.h"
#include "train/objective.h"

namespace hone::test {
namespace {

TEST(Recipes, EveryOneReadsAndEveryObjectiveHasOne) {
  ::setenv("HONE_DATA", "/nowhere", 0);
  std::set<std::string> used;
  const std::filesystem::path configs = source_folder() / "configs";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(configs)) {
    const std::string name = std::filesystem::relative(entry.path(), configs).string();
    if (entry.path().extension() != ".toml" || name.starts_with("tasks/") || name == "experiment/pairs.toml") continue;
    SCOPED_TRACE(name);
    Recipe recipe;
    ASSERT_NO_THROW(recipe = read_recipe(entry.path().string(), {}));
    const Json resolved = to_json([&](Fields& f) { recipe.fields(f); });
    for (const Json& stage : resolved.at("stage").as_array())
      if (const Json* objective = stage.find("objective")) used.insert(objective->as_string());
  }
  for (const std::string& name : objectives().names()) EXPECT_TRUE(used.contains(name)) << name;
}

}  // namespace
}  // namespace hone::test
