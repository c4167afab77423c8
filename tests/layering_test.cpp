// The tree's rules, read from every #include: levels point down only (docs/architecture.md), and each heavy library has one home.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/suggest.h"
#include "tests/support/support.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

// What the files of a folder (and of the folders below that have no row of their own) may include besides their own.
const std::map<std::string, std::vector<std::string>>& levels() {
  static const std::vector<std::string> trunk{"core", "core/net", "core/comm", "kernels", "core/optim", "core/model"};
  static const std::map<std::string, std::vector<std::string>> table = [] {
    std::map<std::string, std::vector<std::string>> out{{"core", {}},
                                                        {"core/net", {"core"}},
                                                        {"core/comm", {"core"}},
                                                        {"kernels", {"core"}},
                                                        {"rewards", {"core", "core/net"}},
                                                        {"core/optim", {"core", "core/comm", "kernels", "core/model"}},
                                                        {"core/model", {"core", "core/comm", "kernels", "core/optim"}},
                                                        {"pretrain", trunk},
                                                        {"rollout", trunk},
                                                        {"posttrain", trunk},
                                                        {"cli", trunk}};
    for (const char* below : {"rewards", "pretrain", "rollout"}) out["posttrain"].push_back(below), out["cli"].push_back(below);
    out["cli"].push_back("posttrain");
    return out;
  }();
  return table;
}

// The row of the table that a path belongs to, "" if none does.
std::string level_of(const std::string& path) {
  std::string best;
  for (const auto& [folder, below] : levels())
    if (path.starts_with(folder + "/") && folder.size() > best.size()) best = folder;
  return best;
}

bool may_include(const std::string& file, const std::string& header) {
  const std::string from = level_of(file), to = level_of(header);
  const std::vector<std::string>& below = levels().at(from);
  return !to.empty() && (from == to || std::find(below.begin(), below.end(), to) != below.end());
}

// Heavy headers: where they may be, and in how many .cpp files at most (0 = any number of files of the folder, headers too).
struct Home {
  std::string_view prefix, folder;
  size_t max_files;
};
constexpr Home kHomes[] = {{"nlohmann/", "core", 1},    {"toml++/", "core", 1},         {"spdlog/", "core", 1},
                           {"pcre2", "core", 2},        {"utf8proc", "core", 2},        {"zlib.h", "core", 2},
                           {"CLI/", "cli", 2},          {"boost/asio", "core/net", 0},  {"openssl/", "core/net", 0},
                           {"seccomp.h", "rewards", 1}, {"dnnl", "kernels", 2},         {"hwy/", "kernels", 0},
                           {"nccl.h", "core/comm", 1},  {"boost/beast", "core/net", 0}, {"boost/multiprecision", "rewards", 0}};

struct Include {
  std::string file, header;
  bool quoted = false;
};

std::vector<Include> includes_of_tree() {
  static const std::regex pattern(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::vector<Include> out;
  std::set<std::string> roots;
  for (const auto& [folder, below] : levels()) roots.insert(folder.substr(0, folder.find('/')));
  for (const std::string& root : roots) {
    if (!fs::exists(test::source_folder() / root)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(test::source_folder() / root)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".cuh") continue;
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);)
        if (std::smatch match; std::regex_search(line, match, pattern))
          out.push_back({entry.path().lexically_relative(test::source_folder()).generic_string(), match[2], match[1] == "\""});
    }
  }
  return out;
}

TEST(Layering, TheTableSaysNoWhereItShould) {
  EXPECT_TRUE(may_include("core/model/families/llama.cpp", "kernels/gemm.h"));
  EXPECT_TRUE(may_include("kernels/gemm.cpp", "core/tensor.h"));
  EXPECT_FALSE(may_include("core/tensor.h", "core/model/model.h"));
  EXPECT_FALSE(may_include("kernels/gemm.cpp", "core/model/model.h"));
  EXPECT_FALSE(may_include("pretrain/trainer.cpp", "rollout/engine.h"));
  EXPECT_FALSE(may_include("rollout/engine.cpp", "pretrain/trainer.h"));
  EXPECT_FALSE(may_include("rewards/exact.cpp", "kernels/op.h"));
  EXPECT_FALSE(may_include("posttrain/grpo.cpp", "cli/main.h"));
  EXPECT_FALSE(may_include("core/json.cpp", "tests/support/support.h"));
}

TEST(Layering, IncludesPointDownOnly) {
  size_t seen = 0;
  for (const auto& [file, header, quoted] : includes_of_tree()) {
    if (!quoted) continue;
    ++seen;
    EXPECT_TRUE(fs::exists(test::source_folder() / header)) << file << " includes \"" << header << "\", which is no path from the root of the tree";
    EXPECT_TRUE(may_include(file, header)) << file << " (" << level_of(file) << ") may not include " << header;
  }
  EXPECT_GT(seen, 100u);
}

TEST(Layering, HeavyLibrariesStayAtHome) {
  const std::vector<Include> all = includes_of_tree();
  for (const Home& home : kHomes) {
    std::set<std::string> files;
    for (const auto& [file, header, quoted] : all)
      if (!quoted && header.starts_with(home.prefix)) files.insert(file);
    for (const std::string& file : files) {
      EXPECT_EQ(level_of(file), home.folder) << file << " includes <" << home.prefix << "...>";
      EXPECT_TRUE(home.max_files == 0 || file.ends_with(".cpp")) << file << " includes <" << home.prefix << "...> in a header";
    }
    EXPECT_TRUE(home.max_files == 0 || files.size() <= home.max_files)
        << "<" << home.prefix << "...> is included by " << join(std::vector<std::string>(files.begin(), files.end()));
  }
}

}  // namespace
}  // namespace hone
