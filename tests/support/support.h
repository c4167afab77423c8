#pragma once
// Common parts of tests: the shared data's folder, temporary folders, poisoned tensors, comparisons.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

namespace hone::test {

// Returns the folder of shared material (HONE_SHARED, else ../shared next to the source tree), or nothing.
std::optional<std::filesystem::path> shared_folder();

// The root of the source tree, and the hone binary of this build.
std::filesystem::path source_folder();
std::filesystem::path hone_binary();

// A temporary folder, removed at the end of the scope.
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

// Returns true if the condition becomes true within `seconds`.
template <class Fact>
bool soon(Fact fact, double seconds = 20) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!fact()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace hone::test

// Skips the test visibly without the shared material; otherwise `name` is the path of a file or folder in it.
#define HONE_SHARED_OR_SKIP(name, relative)                                \
  const auto name##_root = ::hone::test::shared_folder();                  \
  if (!name##_root || !std::filesystem::exists(*name##_root / (relative))) \
    GTEST_SKIP() << "no shared material: " << (relative);                  \
  const std::filesystem::path name = *name##_root / (relative)
