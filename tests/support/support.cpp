#include "tests/support/support.h"

#include <unistd.h>

#include <cstdlib>

namespace hone::test {

std::filesystem::path source_folder() { return HONE_SOURCE_DIR; }
std::filesystem::path hone_binary() { return HONE_BINARY; }

std::optional<std::filesystem::path> shared_folder() {
  if (const char* set = std::getenv("HONE_SHARED")) return std::filesystem::path(set);
  const std::filesystem::path beside = source_folder().parent_path() / "shared";
  if (std::filesystem::exists(beside)) return beside;
  return std::nullopt;
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "hone-test-XXXXXX").string();
  if (!::mkdtemp(name.data())) throw std::runtime_error("cannot make a temporary folder");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace hone::test
