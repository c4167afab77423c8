#pragma once
// The part of YAML that data set cards use: block lists and maps, flow lists and maps, plain and quoted texts, texts of
// several lines, comments. All scalars are texts. Anchors, tags and documents have no meaning here.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

enum class YamlKind : uint8_t { null, text, list, map };

struct YamlNode {
  YamlKind kind = YamlKind::null;
  int64_t line = 0;               // in the file, from 1
  std::string text;               // of a text
  std::vector<std::string> keys;  // of a map, in order
  std::vector<YamlNode> items;    // of a list; the values of a map
  // The value of a map's key, or null.
  const YamlNode* find(std::string_view key) const;
};

// Errors begin with `name`:LINE. first_line: the number of the text's first line in its file.
YamlNode parse_yaml(std::string_view text, std::string_view name, int64_t first_line = 1);

}  // namespace hone
