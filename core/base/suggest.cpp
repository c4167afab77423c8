#include "core/base/suggest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace hone {

static size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string suggestion(std::string_view name, std::span<const std::string> known) {
  const std::string* best = nullptr;
  size_t best_distance = name.size() / 2 + 1;
  for (const std::string& word : known) {
    const size_t distance = edit_distance(name, word);
    if (distance < best_distance) best_distance = distance, best = &word;
  }
  return best ? "; did you mean '" + *best + "'?" : "";
}

std::string join(std::span<const std::string> words, std::string_view separator) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out += separator;
    out += word;
  }
  return out;
}

}  // namespace hone
