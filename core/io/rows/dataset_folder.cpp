#include "core/io/rows/dataset_folder.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "core/base/suggest.h"
#include "core/io/compression.h"
#include "core/io/file.h"
#include "core/io/rows/row_reader.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxDepth = 4;
constexpr size_t kMaxFiles = 100000;

struct SplitWord {
  std::string_view word, split;
};
// The words of `datasets`.
constexpr SplitWord kSplitWords[] = {{"train", "train"},      {"training", "train"}, {"validation", "validation"},
                                     {"valid", "validation"}, {"val", "validation"}, {"dev", "validation"},
                                     {"test", "test"},        {"testing", "test"},   {"eval", "test"},
                                     {"evaluation", "test"}};

std::string canonical_split(std::string_view name) {
  for (const SplitWord& word : kSplitWords)
    if (word.word == name) return std::string(word.split);
  return std::string(name);
}

// Files that hold rows, by their paths below the folder. Hidden files and JSON beside the data do not count.
std::vector<std::string> data_files(const fs::path& folder) {
  static const std::set<std::string> beside = {"dataset_infos.json", "dataset_info.json", "dataset_dict.json",
                                               "state.json", "package.json"};
  std::vector<std::string> out;
  const auto options = fs::directory_options::skip_permission_denied;
  for (auto it = fs::recursive_directory_iterator(folder, options); it != fs::recursive_directory_iterator(); ++it) {
    const std::string name = it->path().filename().string();
    if (name.starts_with('.') || it.depth() >= kMaxDepth) {
      if (it->is_directory()) it.disable_recursion_pending();
      continue;
    }
    HONE_CHECK(!name.ends_with(".arrow"), it->path().string(),
               ": hone does not read Arrow files (save_to_disk); write the data set with to_parquet or to_json");
    const RowFormat format = row_format_of_name(name);
    if (!it->is_regular_file() || format == RowFormat::unknown || format == RowFormat::text || beside.contains(name))
      continue;
    out.push_back(it->path().lexically_relative(folder).generic_string());
    HONE_CHECK(out.size() <= kMaxFiles, folder.string(), ": more than ", kMaxFiles, " data files");
  }
  std::ranges::sort(out);
  return out;
}

// "train-00000-of-00002.parquet" in its parts.
struct ShardName {
  std::string prefix, suffix;
  int64_t index = 0, count = 0;
};

std::optional<ShardName> parse_shard(const std::string& path) {
  const size_t of = path.rfind("-of-");
  if (of == std::string::npos) return std::nullopt;
  const size_t dash = path.rfind('-', of - 1);
  if (of == 0 || dash == std::string::npos) return std::nullopt;
  ShardName out{.prefix = path.substr(0, dash), .suffix = {}};
  const char* const end = path.data() + path.size();
  const auto index = std::from_chars(path.data() + dash + 1, path.data() + of, out.index);
  const auto count = std::from_chars(path.data() + of + 4, end, out.count);
  if (index.ec != std::errc() || index.ptr != path.data() + of || count.ec != std::errc()) return std::nullopt;
  out.suffix = std::string(count.ptr, end);
  return out;
}

// The split that a word of the path names, or "". "_", "-", "." and digits separate words in a name.
std::string split_of_word(std::string_view text) {
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && is_letter(text[end])) ++end;
    for (const SplitWord& word : kSplitWords)
      if (word.word == text.substr(begin, end - begin)) return std::string(word.split);
    begin = std::max(end, begin + 1);
  }
  return "";
}

bool begins_with_split(std::string_view text) {
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  const auto end = static_cast<size_t>(std::ranges::find_if_not(text, is_letter) - text.begin());
  return !split_of_word(text.substr(0, end)).empty();
}

std::string split_of_path(const std::string& path) {
  const fs::path file(path);
  // The prefix of a shard is its split if it stands in data/, or begins with a split's word: "train_sft", "test_gen".
  if (const std::optional<ShardName> shard = parse_shard(file.filename().string()))
    if (file.parent_path() == "data" || begins_with_split(shard->prefix)) return canonical_split(shard->prefix);
  const std::string name = file.filename().string();
  if (std::string split = split_of_word(name.substr(0, name.find('.'))); !split.empty()) return split;
  for (const fs::path& part : file.parent_path())
    if (std::string split = split_of_word(part.string()); !split.empty()) return split;
  return "";
}

using Splits = std::map<std::string, std::vector<std::string>>;

Splits splits_of_names(const std::vector<std::string>& files) {
  Splits out;
  for (const std::string& file : files) {
    const std::string split = split_of_path(file);
    if (!split.empty()) out[split].push_back(file);
  }
  if (out.empty() && !files.empty()) out["train"] = files;
  return out;
}

bool matches(const std::string& pattern, const std::string& file) {
  std::string plain = pattern;
  if (plain.starts_with("./")) plain.erase(0, 2);
  if (plain.ends_with('/')) plain += "*";
  const int flags = plain.find("**") == std::string::npos ? FNM_PATHNAME : 0;
  if (::fnmatch(plain.c_str(), file.c_str(), flags) == 0) return true;
  // "**/x" also matches "x".
  return plain.starts_with("**/") && ::fnmatch(plain.c_str() + 3, file.c_str(), flags) == 0;
}

// The configuration that is meant: the one named, the default, or the only one.
std::string choose_config(const std::vector<DatasetFiles>& configs, std::string_view wanted, const fs::path& folder) {
  std::vector<std::string> names;
  for (const DatasetFiles& one : configs)
    if (std::ranges::find(names, one.config) == names.end()) names.push_back(one.config);
  if (!wanted.empty()) {
    HONE_CHECK(std::ranges::find(names, wanted) != names.end(), folder.string(), ": no configuration '", wanted, "'",
               suggestion(std::string(wanted), names), "; README.md has: ", join(names));
    return std::string(wanted);
  }
  for (const DatasetFiles& one : configs)
    if (one.is_default) return one.config;
  HONE_CHECK(names.size() == 1, folder.string(), ": README.md has the configurations ", join(names),
             "; name one: ", folder.string(), ":", names.front(), ":train");
  return names.front();
}

// The files below `base` by the splits that their paths below it name.
Splits splits_below(const std::string& base, const std::vector<std::string>& files) {
  std::vector<std::string> below;
  for (const std::string& file : files) below.push_back(file.substr(base.size()));
  Splits out = splits_of_names(below);
  for (auto& [split, names] : out)
    for (std::string& name : names) name.insert(0, base);
  return out;
}

Splits splits_of_readme(const std::vector<DatasetFiles>& configs, const std::string& config,
                        const std::vector<std::string>& files) {
  Splits out;
  for (const DatasetFiles& one : configs) {
    if (one.config != config) continue;
    std::vector<std::string> matched;
    for (const std::string& pattern : one.patterns)
      std::ranges::copy_if(files, std::back_inserter(matched),
                           [&](const std::string& file) { return matches(pattern, file); });
    if (matched.empty()) continue;  // of a split that was not downloaded
    if (one.split.empty()) {
      const std::string& pattern = one.patterns.front();  // FOLDER/**
      out.merge(splits_below(pattern.substr(0, pattern.size() - 2), matched));
    } else {
      std::ranges::move(matched, std::back_inserter(out[canonical_split(one.split)]));
    }
  }
  return out;
}

// A split without files: whether the README promises some.
[[noreturn]] void fail_without_split(const fs::path& folder, const std::vector<DatasetFiles>& configs,
                                     const std::string& config, std::string_view split, const Splits& splits) {
  for (const DatasetFiles& one : configs)
    if (one.config == config && !one.split.empty() && canonical_split(one.split) == canonical_split(split))
      fail((folder / "README.md").string(), ":", one.line, ": the folder has no data file that matches ",
           join(one.patterns), " (split ", split, "); download it, or correct the path");
  std::vector<std::string> names;
  for (const auto& [name, of] : splits) names.push_back(name);
  fail(folder.string(), ": no split '", split, "'; it has: ", names.empty() ? "none" : join(names));
}

// Each set of shards must be complete, and the files of a split must be of one format: two are the same rows twice.
void check_files(const fs::path& folder, const std::string& split, const std::vector<std::string>& files) {
  std::map<std::pair<std::string, int64_t>, std::set<int64_t>> shards;
  std::set<RowFormat> formats;
  for (const std::string& file : files) {
    formats.insert(row_format_of_name(file));
    const std::optional<ShardName> shard = parse_shard(file);
    if (shard) shards[{shard->prefix, shard->count}].insert(shard->index);
  }
  HONE_CHECK(formats.size() == 1, folder.string(), ": the split ", split, " has files of several formats (",
             files.front(), ", ", files.back(), "); name the files that you mean");
  for (const auto& [key, present] : shards) {
    const auto& [prefix, count] = key;
    for (int64_t index = 0; index < count; ++index)
      HONE_CHECK(present.contains(index), folder.string(), ": shard ", index, " of ", count, " of ", prefix,
                 " is missing");
  }
}

}  // namespace

std::vector<std::string> dataset_files(const fs::path& folder, std::string_view config, std::string_view split) {
  const std::vector<std::string> files = data_files(folder);
  HONE_CHECK(!files.empty(), folder.string(), ": the folder has no Parquet, JSON Lines, JSON or CSV files");
  std::vector<DatasetFiles> configs;
  if (const fs::path readme = folder / "README.md"; fs::exists(readme))
    configs = readme_configs(read_file(readme), readme.string());
  HONE_CHECK(config.empty() || !configs.empty(), folder.string(), ": README.md names no configurations, so '", config,
             "' cannot be found; leave it out");
  const std::string chosen = configs.empty() ? "" : choose_config(configs, config, folder);
  const Splits splits = configs.empty() ? splits_of_names(files) : splits_of_readme(configs, chosen, files);
  const std::string wanted = canonical_split(split);
  const auto found = splits.find(wanted);
  if (found == splits.end()) fail_without_split(folder, configs, chosen, split, splits);
  std::vector<std::string> shards = found->second;
  std::ranges::sort(shards);
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  check_files(folder, wanted, shards);
  for (std::string& shard : shards) shard = (folder / shard).string();
  return shards;
}

}  // namespace hone
