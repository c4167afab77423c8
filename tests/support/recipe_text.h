#pragma once
// Texts of recipes that name a test's folder.
#include <filesystem>
#include <string>

namespace hone::test {

// The text with `folder` in place of each FOLDER.
inline std::string in_folder(std::string text, const std::filesystem::path& folder) {
  for (size_t at = 0; (at = text.find("FOLDER", at)) != std::string::npos; at += folder.string().size())
    text.replace(at, 6, folder.string());
  return text;
}

}  // namespace hone::test
