#pragma once
// README.md and the pages of docs/, as the tests of documents read them.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/support.h"

namespace hone::test {

// Pages that the program makes from help texts (run/recipe/recipe_reference.h).
inline constexpr std::string_view kGeneratedPages = "docs/reference/recipes/";

// A path as messages name it: from the root of the source tree.
inline std::string shown(const std::filesystem::path& path) {
  return path.lexically_relative(source_folder()).generic_string();
}

// README.md and every page of docs/.
inline std::vector<std::filesystem::path> pages() {
  std::vector<std::filesystem::path> out{source_folder() / "README.md"};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_folder() / "docs"))
    if (entry.path().extension() == ".md") out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

struct PageLine {
  std::string text;
  int number = 0;
  bool fenced = false;  // in a fenced block, or its fence
  bool fence = false;
  std::string language;  // of a fenced block: what stands after its first fence
};

inline std::vector<PageLine> lines_of(const std::filesystem::path& page) {
  std::vector<PageLine> out;
  std::ifstream file(page);
  bool inside = false;
  std::string language;
  for (std::string text; std::getline(file, text);) {
    const size_t begin = text.find_first_not_of(' ');
    const bool fence = begin != std::string::npos && text.compare(begin, 3, "```") == 0;
    if (fence && !inside) language = text.substr(begin + 3);
    out.push_back({text, static_cast<int>(out.size()) + 1, inside || fence, fence, inside || fence ? language : ""});
    if (fence) inside = !inside;
  }
  return out;
}

// The first group of each match.
inline std::vector<std::string> matches(const std::string& text, const std::regex& pattern) {
  std::vector<std::string> out;
  for (std::sregex_iterator i(text.begin(), text.end(), pattern), end; i != end; ++i) out.push_back((*i)[1]);
  return out;
}

}  // namespace hone::test
