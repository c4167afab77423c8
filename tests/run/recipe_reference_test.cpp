#include "run/recipe/recipe_reference.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "core/io/file.h"
#include "tests/support/support.h"
#include "train/objective.h"
#include "train/stage.h"

namespace hone::test {
namespace {

std::filesystem::path reference_folder() { return source_folder() / "docs" / "reference" / "recipes"; }

TEST(RecipeReference, ThePagesInDocsAreTheProgramsOwn) {
  for (const ReferencePage& page : recipe_reference())
    EXPECT_TRUE(read_file(reference_folder() / page.file) == page.text)
        << page.file << " is not up to date: hone list recipe-keys --out docs/reference/recipes";
}

TEST(RecipeReference, TheFolderHoldsNoOtherPage) {
  std::set<std::string> made, found;
  for (const ReferencePage& page : recipe_reference()) made.insert(page.file);
  for (const auto& entry : std::filesystem::directory_iterator(reference_folder()))
    found.insert(entry.path().filename().string());
  EXPECT_EQ(made, found);
}

TEST(RecipeReference, NamesWhateverIsRegistered) {
  std::string text;
  for (const ReferencePage& page : recipe_reference()) text += page.text;
  for (const std::string& name : stages().names())
    EXPECT_NE(text.find("# Stage `" + name + "`\n"), std::string::npos) << name;
  for (const std::string& name : objectives().names())
    EXPECT_NE(text.find("## Objective `" + name + "`\n"), std::string::npos) << name;
}

TEST(RecipeReference, TheIndexLinksEveryPage) {
  const std::vector<ReferencePage> pages = recipe_reference();
  for (size_t i = 1; i < pages.size(); ++i)
    EXPECT_NE(pages[0].text.find("](" + pages[i].file + ")"), std::string::npos) << pages[i].file;
}

}  // namespace
}  // namespace hone::test
