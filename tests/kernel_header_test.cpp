// Every CUDA file that defines a kernel opens with the header block of docs/dev/style.md: what the kernel computes,
// then one field after the other. A field that does not apply says so ("PDL  none.").
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/file.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

constexpr std::array<std::string_view, 8> kFields{"Use",  "Tile",     "Roles", "Pipeline",
                                                  "Smem", "Numerics", "PDL",   "Limits"};

// The comment lines at the head of a source, without "// "; "#pragma once" may come first.
std::vector<std::string> header_block(const std::string& source) {
  std::vector<std::string> out;
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);) {
    if (line == "#pragma once" && out.empty()) continue;
    if (!line.starts_with("//")) break;
    out.push_back(line.substr(std::min<size_t>(line.size(), 3)));
  }
  return out;
}

// What is wrong with a source's header block; empty if it has every field, in order, each with a text.
std::string problem_of(const std::string& source) {
  const std::vector<std::string> block = header_block(source);
  if (block.empty() || block[0].empty()) return "no comment says what the kernel computes";
  size_t next = 0;
  for (const std::string& line : block) {
    const std::string_view field(line.data(), std::min(line.find(' '), line.size()));
    const auto* const found = std::find(kFields.begin(), kFields.end(), field);
    if (found == kFields.end()) continue;
    const std::string name(field);
    const auto index = static_cast<size_t>(found - kFields.begin());
    if (index < next) return "field " + name + " is out of order or comes twice";
    if (index > next) return "field " + std::string(kFields[next]) + " is missing";
    if (line.find_first_not_of(' ', field.size()) == std::string::npos) return "field " + name + " is empty";
    ++next;
  }
  return next == kFields.size() ? "" : "field " + std::string(kFields[next]) + " is missing";
}

bool defines_kernel(const std::string& source) {
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);)
    if (line.substr(0, line.find("//")).find("__global__") != std::string::npos) return true;
  return false;
}

TEST(KernelHeader, EveryKernelFileHasAllFields) {
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_folder() / "kernels")) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".cu" && extension != ".cuh") continue;
    const std::string source = read_file(entry.path());
    if (!defines_kernel(source)) continue;
    ++files;
    EXPECT_EQ(problem_of(source), "") << entry.path().lexically_relative(source_folder()).generic_string();
  }
  EXPECT_GT(files, 0);
}

TEST(KernelHeader, FindsMissingMisplacedAndEmptyFields) {
  const std::string head = "#pragma once\n// Adds rows.\n//\n",
                    fields =
                        "// Use       all.\n// Tile      1.\n// Roles     alike.\n// Pipeline  none.\n"
                        "// Smem      none.\n// Numerics  f32.\n// PDL       none.\n// Limits    none.\n",
                    body = "__global__ void kernel();\n";
  EXPECT_EQ(problem_of(head + fields + body), "");
  EXPECT_TRUE(defines_kernel(head + fields + body));
  EXPECT_FALSE(defines_kernel("// A __global__ function is elsewhere.\n"));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = fields;
    changed.replace(changed.find(from), from.size(), to);
    return problem_of(head + changed + body);
  };
  EXPECT_EQ(with("// Limits    none.\n", ""), "field Limits is missing");
  EXPECT_EQ(with("// PDL       none.\n", ""), "field PDL is missing");
  EXPECT_EQ(with("// Smem      none.\n", "// Smem\n"), "field Smem is empty");
  EXPECT_EQ(with("// Tile      1.\n", "// Tile      1.\n// Tile      2.\n"),
            "field Tile is out of order or comes twice");
  EXPECT_EQ(problem_of(body), "no comment says what the kernel computes");
}

}  // namespace
}  // namespace hone::test
