// Rules of the tree, read from every #include: the table of levels, no cycles, one home for each heavy library, small
// folders and files.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/suggest.h"
#include "core/io/file.h"
#include "tests/level_table.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

// The same text as in kArchitecture.
constexpr std::string_view kArchitecture = "docs/dev/architecture.md";
constexpr std::string_view kLevels = R"(| level | folder | contents | may include |
|---|---|---|---|
| 0 | `core/base/` | errors, registry, log, RNG, thread pool | nothing |
| 0 | `core/device/` | devices, streams, tensors, buffers | core/base |
| 0 | `core/io/` | files, JSON, rows (CSV, Parquet, ...), safetensors, checkpoints, writers of metric files, SVG | core/{base,device} |
| 0 | `core/config/` | TOML settings (`fields()`) | core/{base,io} |
| 0 | `core/text/` | tokenizer, Jinja, chat formats, detokenizer | core/{base,io,config} |
| 1 | `core/net/` | HTTP client and server | core/{base,io,config} |
| 1 | `core/comm/` | ranks of a run, exchanges between them, links between processes | core/{base,device,config} |
| 1 | `data/` | tasks, samples, columns, rows, data order | core/{base,io,config,text} |
| 1 | `rewards/` | verifiers of completions; no device, no model | core/{base,io,config,text,net}, data |
| 1 | `kernels/` | operations on tensors | core/{base,device} |
| 2 | `model/` | modules, families, LoRA, load and save | low core, kernels |
| 3 | `train/` | objectives, trainer, optimizers, loop, stage interface | low core, core/comm, kernels, model, data |
| 3 | `rollout/` | inference engine | low core, kernels, model |
| 3 | `rollout/remote/` | engine in other processes | core, kernels, model, rollout |
| 4 | `serve/` | OpenAI-compatible server | core, model, rollout |
| 4 | `pretrain/` | corpora, token files, stages `tokenizer` and `pretrain` | low core, kernels, model, data, train |
| 4 | `posttrain/losses/` | loss terms: surrogates, KL, pairs, advantages | low core, data, train |
| 4 | `posttrain/objectives/` | one file per objective | low core, data, train, posttrain/losses |
| 4 | `posttrain/rl/` | collects scored completions for tasks; makes rollout batches ahead of the learner | core, levels 1-3, posttrain/losses |
| 4 | `posttrain/` | the rest: preference data, reward model, reference, stages | core, levels 1-3, posttrain/* |
| 5 | `eval/` | evaluation tasks, statistics | core, data, rewards, kernels, model, train, rollout, pretrain, posttrain/rl |
| 6 | `collect/` | samples and judges completions, and writes them as data | core, levels 1-4, eval |
| 7 | `run/` | recipe, run folder, stage sequence, plan, report, live view, tracker | levels 0-3, pretrain, posttrain, posttrain/*, eval, collect |
| 8 | `cli/` | one file per command; `cli/bench/` | everything |

"low core" means core/{base,device,io,config,text}.
Inside `kernels/` the order is: root; `cpu`, `cuda`; `elementwise`, `gemm`, `norm`, `optimizer`; `gemm/mma`;
`gemm/sm90`; `quant`; `attention`, `lm_head`, `moe`, `rope`; `sampling`, `decoder_layer`.
)";

constexpr size_t kMaxFiles = 40, kMaxLines = 500;

// Heavy headers: the row where they may be (of several, one entry each), and in how many .cpp files at most (0 = any
// number of files, headers too).
struct Home {
  std::string_view prefix, folder;
  size_t max_files;
};
constexpr Home kHomes[] = {{"nlohmann/", "core/io", 1},
                           {"toml++/", "core/config", 1},
                           {"spdlog/", "core/base", 1},
                           {"pcre2", "core/text", 2},
                           {"utf8proc", "core/text", 2},
                           {"zlib.h", "core/io", 2},
                           {"zstd.h", "core/io", 1},
                           {"lz4.h", "core/io", 1},
                           {"snappy", "core/io", 1},
                           {"CLI/", "cli", 2},
                           {"boost/asio", "core/net", 0},
                           {"boost/beast", "core/net", 0},
                           {"boost/multiprecision", "rewards", 0},
                           {"openssl/", "core/net", 0},
                           {"seccomp.h", "rewards", 1},
                           {"histedit.h", "cli", 1},
                           {"dnnl", "kernels", 1},
                           {"dnnl", "cli", 1},
                           {"hwy/", "kernels", 0},
                           {"hwy/", "cli", 1},
                           {"nccl.h", "core/comm", 0},
                           {"cublasLt.h", "kernels", 0}};

const LevelTable& levels() {
  static const LevelTable table{std::string(kLevels)};
  return table;
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

bool is_code(const fs::path& path) {
  static const std::set<std::string> extensions{".h", ".cpp", ".cu", ".cuh", ".c"};
  return extensions.contains(path.extension().string());
}

// Files below a folder, by their paths from the root of the tree.
std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> out;
  if (!fs::exists(source_folder() / folder)) return out;
  for (const auto& entry : fs::recursive_directory_iterator(source_folder() / folder))
    if (entry.is_regular_file()) out.push_back(entry.path().lexically_relative(source_folder()).generic_string());
  std::sort(out.begin(), out.end());
  return out;
}

struct Include {
  std::string file, header;
  bool quoted = false;
};

std::vector<Include> read_includes() {
  static const std::regex pattern(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::vector<Include> out;
  for (const std::string& root : levels().roots())
    for (const std::string& file : files_below(root)) {
      if (!is_code(file)) continue;
      std::ifstream in(source_folder() / file);
      for (std::string line; std::getline(in, line);)
        if (std::smatch match; std::regex_search(line, match, pattern))
          out.push_back({file, match[2], match[1] == "\""});
    }
  return out;
}

const std::vector<Include>& includes() {
  static const std::vector<Include> all = read_includes();
  return all;
}

// A cycle of the graph, "a -> b -> a", or nothing.
using Graph = std::map<std::string, std::set<std::string>>;

class CycleSearch {
 public:
  explicit CycleSearch(const Graph& graph) : graph_(graph) {}
  std::string find() {
    for (const auto& [node, next] : graph_)
      if (std::string cycle = visit(node); !cycle.empty()) return cycle;
    return {};
  }

 private:
  std::string visit(const std::string& node) {
    if (const auto begin = std::find(path_.begin(), path_.end(), node); begin != path_.end()) {
      std::string out;
      for (auto at = begin; at != path_.end(); ++at) out += *at + " -> ";
      return out + node;
    }
    if (!seen_.insert(node).second) return {};
    path_.push_back(node);
    if (const auto next = graph_.find(node); next != graph_.end())
      for (const std::string& one : next->second)
        if (std::string cycle = visit(one); !cycle.empty()) return cycle;
    path_.pop_back();
    return {};
  }
  const Graph& graph_;
  std::set<std::string> seen_;
  std::vector<std::string> path_;
};

TEST(LevelTable, ReadsRowsInsideRowsShorthandAndOrder) {
  const LevelTable table(R"(
| level | folder | contents | may include |
|---|---|---|---|
| 0 | `core/base/` | errors | nothing |
| 0 | `core/io/` | files | core/base |
| 1 | `core/net/` | HTTP | core/{base,io} |
| 1 | `kernels/` | operations | low core |
| 2 | `rollout/` | engine | low core, kernels |
| 3 | `rollout/remote/` | workers | core, kernels, rollout |
| 4 | `posttrain/losses/` | losses | core/base |
| 4 | `posttrain/` | stages | levels 0-2, posttrain/* |
| 5 | `cli/` | commands | everything |

"low core" means core/{base,io}. Inside `kernels/` the order
is: root; `cpu`, `cuda`; `gemm`; `gemm/sm90`.
)");
  EXPECT_EQ(table.roots(), (std::vector<std::string>{"core", "kernels", "rollout", "posttrain", "cli"}));
  EXPECT_EQ(table.row_of("rollout/remote/worker.h"), "rollout/remote");
  EXPECT_EQ(table.row_of("rollout/kv/cache.h"), "rollout");
  EXPECT_EQ(table.row_of("core/loose.h"), "");
  const std::pair<const char*, const char*> may[] = {
      {"core/io/json.cpp", "core/base/check.h"},          {"core/net/http.cpp", "core/io/json.h"},
      {"kernels/gemm/gemm.cpp", "core/io/json.h"},        {"rollout/remote/worker.cpp", "core/net/http.h"},
      {"rollout/remote/worker.cpp", "rollout/engine.h"},  {"posttrain/stages/rl.cpp", "posttrain/losses/kl.h"},
      {"posttrain/stages/rl.cpp", "rollout/engine.h"},    {"cli/run.cpp", "rollout/remote/worker.h"},
      {"kernels/cuda/mma.cuh", "kernels/op.h"},           {"kernels/gemm/sm90/a.cu", "kernels/gemm/gemm.h"},
      {"kernels/gemm/sm90/a.cu", "kernels/cuda/mma.cuh"}, {"kernels/gemm/sm90/deep/a.cu", "kernels/gemm/sm90/a.cuh"}};
  for (const auto& [file, header] : may) EXPECT_TRUE(table.may_include(file, header)) << file << " " << header;
  const std::pair<const char*, const char*> may_not[] = {
      {"core/base/check.h", "core/io/json.h"},       {"core/io/json.cpp", "core/net/http.h"},
      {"kernels/op.h", "core/net/http.h"},           {"rollout/engine.cpp", "rollout/remote/worker.h"},
      {"rollout/engine.cpp", "core/net/http.h"},     {"posttrain/losses/kl.cpp", "posttrain/rl.h"},
      {"posttrain/rl.cpp", "rollout/remote/pool.h"}, {"kernels/op.h", "kernels/cpu/features.h"},
      {"kernels/cpu/exp.h", "kernels/cuda/mma.cuh"}, {"kernels/gemm/gemm.cu", "kernels/gemm/sm90/a.cuh"},
      {"cli/run.cpp", "tests/support/support.h"}};
  for (const auto& [file, header] : may_not) EXPECT_FALSE(table.may_include(file, header)) << file << " " << header;
}

TEST(LevelTable, ATableThatNamesNoRowOrOneBelowIsAnError) {
  const std::string head = "| 0 | `core/` | files | nothing |\n";
  EXPECT_THROW(LevelTable("no table"), Error);
  EXPECT_THROW(LevelTable(head + "| 1 | `kernels/` | operations | cor |\n"), Error);
  EXPECT_THROW(LevelTable("| 0 | `core/` | files | kernels |\n| 1 | `kernels/` | operations | core |\n"), Error);
  EXPECT_THROW(LevelTable(head + "\nInside `kernels/` the order is: root; `cpu`.\n"), Error);
}

TEST(CycleSearch, FindsACycleAndNoneWhereThereIsNone) {
  EXPECT_EQ(CycleSearch({{"a", {"b", "c"}}, {"b", {"c"}}}).find(), "");
  EXPECT_EQ(CycleSearch({{"a", {"b"}}, {"b", {"c"}}, {"c", {"b"}}}).find(), "b -> c -> b");
}

TEST(Layering, TheDocumentHasTheSameTable) {
  EXPECT_NE(read_file(source_folder() / kArchitecture).find(kLevels), std::string::npos)
      << kArchitecture << " and " << __FILE__ << " must have the same table of levels";
}

TEST(Layering, EveryFileHasARow) {
  for (const std::string& root : levels().roots())
    for (const std::string& file : files_below(root)) EXPECT_NE(levels().row_of(file), "") << file;
}

TEST(Layering, IncludesPointDownOnly) {
  size_t seen = 0;
  for (const auto& [file, header, quoted] : includes()) {
    if (!quoted) continue;
    ++seen;
    EXPECT_TRUE(fs::exists(source_folder() / header))
        << file << " includes \"" << header << "\", which is no path from the root of the tree";
    EXPECT_TRUE(levels().may_include(file, header))
        << file << " (" << levels().row_of(file) << ") may not include " << header;
  }
  EXPECT_GT(seen, 100u);
}

TEST(Layering, FilesDoNotIncludeEachOtherInACycle) {
  Graph graph;
  for (const auto& [file, header, quoted] : includes())
    if (quoted) graph[file].insert(header);
  EXPECT_EQ(CycleSearch(graph).find(), "");
}

TEST(Layering, FoldersDoNotIncludeEachOtherInACycle) {
  Graph graph;
  for (const auto& [file, header, quoted] : includes()) {
    const std::string from = folder_of(file), to = folder_of(header);
    if (quoted && from != to) graph[from].insert(to);
  }
  EXPECT_EQ(CycleSearch(graph).find(), "");
}

TEST(Layering, InternalHeadersStayInsideTheirSubject) {
  for (const auto& [file, header, quoted] : includes())
    EXPECT_TRUE(!quoted || !header.ends_with("/internal.h") || file.starts_with(folder_of(header) + "/"))
        << file << " includes " << header << " of another subject";
}

TEST(Layering, FoldersAndFilesAreSmall) {
  std::map<std::string, size_t> files;
  for (const std::string& root : levels().roots())
    for (const std::string& file : files_below(root)) ++files[folder_of(file)];
  for (const auto& [folder, count] : files) EXPECT_LE(count, kMaxFiles) << folder << " has " << count << " files";

  std::vector<std::string> roots = levels().roots();
  for (const char* more : {"tests", "examples"}) roots.emplace_back(more);
  for (const std::string& root : roots)
    for (const std::string& file : files_below(root)) {
      if (!is_code(file)) continue;
      const std::string text = read_file(source_folder() / file);
      const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
      EXPECT_LE(lines, kMaxLines) << file << " has " << lines << " lines";
    }
}

TEST(Layering, HeavyLibrariesStayAtHome) {
  std::map<const Home*, std::vector<std::string>> at_home;
  std::set<std::pair<std::string, const Home*>> seen;
  for (const auto& [file, header, quoted] : includes()) {
    if (quoted) continue;
    bool heavy = false, home_found = false;
    for (const Home& home : kHomes) {
      if (!header.starts_with(home.prefix)) continue;
      heavy = true;
      if (levels().row_of(file) != home.folder) continue;
      home_found = true;
      if (seen.insert({file, &home}).second) at_home[&home].push_back(file);
      EXPECT_TRUE(home.max_files == 0 || file.ends_with(".cpp")) << file << " includes <" << header << "> in a header";
    }
    EXPECT_TRUE(!heavy || home_found) << file << " includes <" << header << ">, which has another home";
  }
  for (const auto& [home, files] : at_home)
    EXPECT_TRUE(home->max_files == 0 || files.size() <= home->max_files)
        << "<" << home->prefix << "...> is included by " << join(files);
}

}  // namespace
}  // namespace hone::test
