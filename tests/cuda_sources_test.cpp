// Rules of CUDA sources that no compiler checks: portable launches have plans and take no number of one product, and
// Hopper bodies are told by their files and names.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <string>

#include "core/io/file.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

// Files that are compiled for 9.0a alone, or included by such files alone.
bool is_hopper(const std::string& path) {
  return path.ends_with("_sm90.cu") || path.ends_with("_sm90.cuh") || path.find("/sm90/") != std::string::npos;
}

// Text of each .cu and .cuh below kernels/, by path from the root of the tree.
const std::map<std::string, std::string>& cuda_sources() {
  static const std::map<std::string, std::string> all = [] {
    std::map<std::string, std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(source_folder() / "kernels"))
      if (const std::string extension = entry.path().extension(); extension == ".cu" || extension == ".cuh")
        out[entry.path().lexically_relative(source_folder()).generic_string()] = read_file(entry.path());
    return out;
  }();
  return all;
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// The file's text and that of the headers of kernels/ that it includes, without those for all kernels.
std::string with_headers(const std::string& path) {
  static const std::regex include(R"(#include "(kernels/[^"]+\.cuh)\")");
  std::string out = cuda_sources().at(path);
  const std::string text = out;
  for (auto i = std::sregex_iterator(text.begin(), text.end(), include); i != std::sregex_iterator(); ++i)
    if (const std::string header = (*i)[1]; !header.starts_with("kernels/cuda/")) out += cuda_sources().at(header);
  return out;
}

TEST(CudaSources, PortableLaunchesWithMuchSharedMemoryHavePlans) {
  size_t seen = 0;
  for (const auto& [path, text] : cuda_sources()) {
    if (is_hopper(path) || !path.ends_with(".cu") || !has(with_headers(path), "allow_shared_memory(")) continue;
    ++seen;
    EXPECT_TRUE(has(with_headers(path), "launch_plans().add("))
        << path << " calls allow_shared_memory() without a plan of its launches (kernels/cuda/launch_plan.h)";
  }
  EXPECT_GT(seen, 3u);
}

TEST(CudaSources, PortableLaunchesTakeLimitsFromTheDevice) {
  static const std::regex number(R"((^|[^0-9a-zA-Z_.])(132|227 ?\* ?1024|232448)([^0-9a-zA-Z_.]|$))");
  for (const auto& [path, text] : cuda_sources()) {
    // The fixed number of row blocks of column_sums.cuh decides the order of sums.
    if (is_hopper(path) || path == "kernels/norm/column_sums.cuh") continue;
    size_t line = 1;
    for (size_t at = 0; at < text.size(); ++line) {
      const size_t end = std::min(text.find('\n', at), text.size());
      const std::string code = text.substr(at, std::min(end, text.find("//", at)) - at);
      EXPECT_FALSE(std::regex_search(code, number)) << path << ":" << line << ": " << code;
      at = end + 1;
    }
  }
}

TEST(CudaSources, HopperBodiesAreNamedSm90AndStandInTheirOwnFiles) {
  static const std::regex body(R"re(\.add\(\s*\{"([a-z0-9_]+)", DeviceKind::cuda)re");
  size_t hopper = 0;
  for (const auto& [path, text] : cuda_sources())
    for (auto i = std::sregex_iterator(text.begin(), text.end(), body); i != std::sregex_iterator(); ++i) {
      hopper += is_hopper(path);
      EXPECT_EQ((*i)[1] == "sm90", is_hopper(path)) << path << ": body " << (*i)[1];
    }
  EXPECT_GT(hopper, 5u);
}

}  // namespace
}  // namespace hone::test
