#include "core/io/program_files.h"

namespace hone {

namespace fs = std::filesystem;

std::vector<fs::path> program_folders() {
  std::vector<fs::path> out{""};
  std::error_code unknown;
  const fs::path program = fs::read_symlink("/proc/self/exe", unknown);
  for (fs::path folder = program.parent_path(); folder.has_relative_path(); folder = folder.parent_path()) {
    out.push_back(folder);
    out.push_back(folder / "share" / "hone");
  }
  return out;
}

std::string find_program_file(const std::string& path) {
  if (path.empty() || fs::path(path).is_absolute()) return path;
  std::error_code unknown;
  for (const fs::path& folder : program_folders())
    if (fs::is_regular_file(folder / path, unknown)) return (folder / path).string();
  return path;
}

}  // namespace hone
