// `configs` in the YAML at the beginning of a README: which files belong to which split.
#include <algorithm>

#include "core/base/check.h"
#include "core/io/rows/dataset_folder.h"
#include "core/io/rows/yaml.h"

namespace hone {
namespace {

std::string_view without_end(std::string_view line) {
  while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r')) line.remove_suffix(1);
  return line;
}

// The text of the key `configs` with its value, and the number of its first line. Other keys are not read.
struct ConfigsText {
  std::string_view text;
  int64_t line = 0;
};

// Front matter stands between two lines of three dashes. Without an end there is none.
ConfigsText find_configs(std::string_view readme) {
  if (readme.starts_with("\xef\xbb\xbf")) readme.remove_prefix(3);
  ConfigsText out;
  size_t begin = 0, end = 0;
  bool inside = false;
  int64_t number = 1;
  for (; begin < readme.size(); begin = end, ++number) {
    end = std::min(readme.find('\n', begin), readme.size() - 1) + 1;
    const std::string_view whole = readme.substr(begin, end - begin),
                           line = without_end(whole.substr(0, whole.find('\n')));
    if (number == 1) {
      if (line != "---") return {};
      continue;
    }
    if (line == "---") return out;
    // A closing bracket may stand in the first column.
    const bool top_level = !line.empty() && std::string_view(" \t-#]}").find(line.front()) == std::string_view::npos;
    if (top_level) inside = line.starts_with("configs:");
    if (!inside) continue;
    if (top_level) out = {.text = readme.substr(begin, 0), .line = number};
    out.text = {out.text.data(), out.text.size() + whole.size()};
  }
  return {};
}

class ConfigsReader {
 public:
  explicit ConfigsReader(std::string_view name) : name_(name) {}

  std::vector<DatasetFiles> read(const YamlNode& configs) {
    if (configs.kind == YamlKind::null) return {};
    check(configs.kind == YamlKind::list, configs, "configs must be a list of maps with config_name and data_files");
    for (const YamlNode& config : configs.items) read_config(config);
    return std::move(out_);
  }

 private:
  template <class... Words>
  void check(bool fact, const YamlNode& at, const Words&... words) const {
    HONE_CHECK(fact, name_, ":", at.line, ": ", words...);
  }

  void read_config(const YamlNode& config) {
    check(config.kind == YamlKind::map, config, "an entry of configs must be a map with config_name and data_files");
    config_ = text_or(config, "config_name", "default");
    is_default_ = config_ == "default" || text_or(config, "default", "false") == "true";
    folder_ = text_or(config, "data_dir", "");
    while (folder_.starts_with("./")) folder_.erase(0, 2);
    if (!folder_.empty() && !folder_.ends_with('/')) folder_ += '/';
    const YamlNode* files = config.find("data_files");
    if (!files || files->kind == YamlKind::null)
      out_.push_back({config_, "", {folder_ + "**"}, is_default_, config.line});
    else if (files->kind == YamlKind::map)
      for (size_t i = 0; i < files->keys.size(); ++i) add(files->keys[i], files->items[i]);
    else if (files->kind == YamlKind::list && !files->items.empty() && files->items[0].kind == YamlKind::map)
      for (const YamlNode& one : files->items) add_split(one);
    else
      add("train", *files);
  }

  void add_split(const YamlNode& one) {
    check(one.kind == YamlKind::map, one, "an entry of data_files must be a map with split and path, as the first one");
    const YamlNode* path = one.find("path");
    check(path, one, "data_files: the split '", text_or(one, "split", "train"), "' has no path");
    add(text_or(one, "split", "train"), *path);
  }

  void add(const std::string& split, const YamlNode& paths) {
    DatasetFiles files{config_, split, {}, is_default_, paths.line};
    const auto add_pattern = [&](const YamlNode& path) {
      check(path.kind == YamlKind::text && !path.text.empty(), path, "data_files: the path of the split '", split,
            "' must be a text or a list of texts");
      files.patterns.push_back(folder_ + path.text.substr(path.text.starts_with("./") ? 2 : 0));
    };
    if (paths.kind == YamlKind::list)
      for (const YamlNode& path : paths.items) add_pattern(path);
    else
      add_pattern(paths);
    check(!files.patterns.empty(), paths, "data_files: the split '", split, "' has no path");
    out_.push_back(std::move(files));
  }

  std::string text_or(const YamlNode& map, const char* key, const char* otherwise) const {
    const YamlNode* found = map.find(key);
    if (!found || found->kind == YamlKind::null) return otherwise;
    check(found->kind == YamlKind::text, *found, key, " must be a text");
    return found->text;
  }

  std::string_view name_;
  std::string config_, folder_;
  bool is_default_ = false;
  std::vector<DatasetFiles> out_;
};

}  // namespace

std::vector<DatasetFiles> readme_configs(std::string_view readme, std::string_view name) {
  const ConfigsText configs = find_configs(readme);
  if (configs.text.empty()) return {};
  const YamlNode map = parse_yaml(configs.text, name, configs.line);
  const YamlNode* value = map.find("configs");
  return value ? ConfigsReader(name).read(*value) : std::vector<DatasetFiles>{};
}

}  // namespace hone
