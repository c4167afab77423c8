#pragma once
// What tests share: the shared data's place, temporary folders, poisoned tensors, comparisons.
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>

namespace hone::test {

// The folder of shared material (HONE_SHARED, else ../shared beside the source tree), or nothing.
std::optional<std::filesystem::path> shared_folder();

// The root of the source tree, and the hone binary of this build.
std::filesystem::path source_folder();
std::filesystem::path hone_binary();

// A folder of its own, removed at the end of the scope.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace hone::test

// Skips, visibly, when the shared material is not beside the project; otherwise `name` is the path of a file or folder in it.
#define HONE_SHARED_OR_SKIP(name, relative)                                                                                      \
  const auto name##_root = ::hone::test::shared_folder();                                                                        \
  if (!name##_root || !std::filesystem::exists(*name##_root / (relative))) GTEST_SKIP() << "no shared material: " << (relative); \
  const std::filesystem::path name = *name##_root / (relative)
