#include "run/recipe_reference.h"

#include <gtest/gtest.h>

#include "core/io/file.h"
#include "tests/support/support.h"
#include "train/objective.h"
#include "train/stage.h"

namespace hone::test {
namespace {

TEST(RecipeReference, ThePageInDocsIsTheProgramsOwn) {
  const std::string page = read_file(source_folder() / "docs" / "reference" / "recipes.md");
  EXPECT_TRUE(page == recipe_reference() + "\n")
      << "docs/reference/recipes.md is not up to date: hone list recipe-keys > docs/reference/recipes.md";
}

TEST(RecipeReference, NamesWhateverIsRegistered) {
  const std::string page = recipe_reference();
  for (const std::string& name : stages().names())
    EXPECT_NE(page.find("## Stage `" + name + "`"), std::string::npos) << name;
  for (const std::string& name : objectives().names())
    EXPECT_NE(page.find("## Objective `" + name + "`"), std::string::npos) << name;
}

}  // namespace
}  // namespace hone::test
