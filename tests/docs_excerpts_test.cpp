// Code that a page shows is in the source: a fenced block after a line `<!-- source: PATH -->` is a part of that file,
// line breaks and indentation aside, and has at most ten lines.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "core/io/file.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

std::string without_space(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  return text;
}

// Checks the excerpts of one page and returns their number.
int check_excerpts(const std::filesystem::path& page) {
  constexpr std::string_view before = "<!-- source: ", after = " -->";
  std::ifstream in(page);
  int excerpts = 0;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(before) || !line.ends_with(after)) continue;
    const std::string source = line.substr(before.size(), line.size() - before.size() - after.size());
    std::string code;
    int lines = 0;
    std::getline(in, line);  // the fence
    for (; std::getline(in, line) && !line.starts_with("```"); ++lines) code += line + "\n";
    const std::string where = page.filename().string() + ", from " + source + ":\n" + code;
    EXPECT_TRUE(lines > 0 && lines <= 10) << where;
    EXPECT_NE(without_space(read_file(source_folder() / source)).find(without_space(code)), std::string::npos) << where;
    ++excerpts;
  }
  return excerpts;
}

TEST(DocsExcerpts, CodeInPagesIsThatOfTheSource) {
  int excerpts = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_folder() / "docs"))
    if (entry.path().extension() == ".md") excerpts += check_excerpts(entry.path());
  EXPECT_GE(excerpts, 15);
}

}  // namespace
}  // namespace hone::test
