#include "core/io/nearest_path.h"

#include <algorithm>
#include <vector>

#include "core/base/suggest.h"

namespace hone {

namespace fs = std::filesystem;

std::string nearest_path(const fs::path& path) {
  constexpr size_t max_names = 10000;  // of a folder; a larger one takes too long to search
  std::error_code problem;
  fs::path present;
  for (const fs::path& name : path) {
    if (fs::exists(present / name, problem)) {
      present /= name;
      continue;
    }
    std::vector<std::string> names;
    const fs::path folder = present.empty() ? fs::path(".") : present;
    for (fs::directory_iterator entry(folder, problem), end; !problem && entry != end; entry.increment(problem)) {
      if (names.size() == max_names) return "";
      names.push_back(entry->path().filename().string());
    }
    std::ranges::sort(names);
    return suggestion(name.string(), names);
  }
  return "";
}

}  // namespace hone
