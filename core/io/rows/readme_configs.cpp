// The subset of YAML that the hub writes into `configs`: block lists and maps of plain or quoted texts, and lists in
// brackets.
#include <algorithm>
#include <optional>

#include "core/io/rows/dataset_folder.h"

namespace hone {
namespace {

struct YamlLine {
  size_t indent = 0;       // of the text after the dashes
  size_t dashes = 0;       // list items that begin here
  std::string key, value;  // "key: value", "key:" or "value" (then the key is empty)
};

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

std::string unquoted(std::string_view text) {
  text = trim(text);
  const bool quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front();
  return std::string(quoted ? text.substr(1, text.size() - 2) : text);
}

// "[a, b]" or "a".
std::vector<std::string> items_of(std::string_view text) {
  text = trim(text);
  if (!text.starts_with('[') || !text.ends_with(']')) return {unquoted(text)};
  std::vector<std::string> out;
  text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    out.push_back(unquoted(text.substr(0, comma)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return out;
}

YamlLine parse_line(std::string_view line) {
  YamlLine out;
  out.indent = line.find_first_not_of(' ');
  std::string_view rest = trim(line);
  while (rest.starts_with("- ") || rest == "-") {
    ++out.dashes;
    const size_t next = std::min(rest.find_first_not_of(' ', 1), rest.size());
    out.indent += next;
    rest.remove_prefix(next);
  }
  const bool quoted = rest.starts_with('"') || rest.starts_with('\'') || rest.starts_with('[');
  const size_t colon = quoted ? rest.npos : rest.ends_with(':') ? rest.size() - 1 : rest.find(": ");
  if (colon == rest.npos) {
    out.value = rest;
  } else {
    out.key = trim(rest.substr(0, colon));
    out.value = trim(rest.substr(colon + 1));
  }
  return out;
}

// The lines of `configs:` in the front matter, which stands between two lines of three dashes.
std::vector<YamlLine> lines_of_configs(std::string_view readme) {
  std::vector<YamlLine> out;
  bool in_configs = false, first = true;
  while (!readme.empty()) {
    const size_t end = std::min(readme.find('\n'), readme.size());
    const std::string_view line = readme.substr(0, end);
    readme.remove_prefix(std::min(end + 1, readme.size()));
    if (first && trim(line) != "---") return {};
    if (!first && trim(line) == "---") return out;
    const bool top_level_key = !line.empty() && line.front() != ' ' && line.front() != '-' && line.front() != '#';
    if (!first && top_level_key) in_configs = trim(line) == "configs:";
    const bool blank = trim(line).empty() || trim(line).starts_with('#');
    if (in_configs && !top_level_key && !blank) out.push_back(parse_line(line));
    first = false;
  }
  return {};  // the front matter does not end
}

}  // namespace

std::vector<DatasetFiles> readme_configs(std::string_view readme) {
  std::vector<DatasetFiles> out;
  std::string config;
  size_t config_begin = 0;  // index in `out` of the configuration's first split
  bool is_default = false;
  std::string list_key;  // the key whose list items follow
  for (const YamlLine& line : lines_of_configs(readme)) {
    if (line.key == "config_name") {
      config = unquoted(line.value);
      config_begin = out.size();
      is_default = config == "default";
    } else if (line.key == "default") {
      is_default = line.value == "true";
      for (size_t i = config_begin; i < out.size(); ++i) out[i].is_default = is_default;
    } else if (line.key == "data_files" && !line.value.empty()) {
      out.push_back({config, "train", items_of(line.value), is_default});
    } else if (line.key == "split") {
      out.push_back({config, unquoted(line.value), {}, is_default});
    } else if (line.key == "path" && !out.empty()) {
      if (!line.value.empty()) out.back().patterns = items_of(line.value);
    } else if (line.key.empty() && line.dashes > 0) {
      if (list_key == "data_files") out.push_back({config, "train", {}, is_default});
      if (out.empty()) return {};
      out.back().patterns.push_back(unquoted(line.value));
      if (list_key == "data_files") list_key = "path";
      continue;
    }
    list_key = line.key;
  }
  const bool complete = std::ranges::none_of(out, [](const DatasetFiles& files) { return files.patterns.empty(); });
  return complete ? out : std::vector<DatasetFiles>{};
}

}  // namespace hone
