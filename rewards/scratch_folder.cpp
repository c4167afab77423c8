#include "rewards/scratch_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "core/check.h"

namespace hone {

namespace {

std::vector<std::string> names_in(int folder) {
  std::vector<std::string> out;
  DIR* listing = ::fdopendir(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!listing) return out;
  while (const dirent* entry = ::readdir(listing))
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) out.push_back(entry->d_name);
  ::closedir(listing);
  return out;
}

int open_folder(int at, const char* name) {
  ::fchmodat(at, name, 0700, 0);
  return ::openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// Folders in a folder are moved up before it is removed, so that no path grows and two descriptors do for any depth.
void empty_folder(int top) {
  int64_t moved = 0;
  bool progress = true;
  while (progress) {
    progress = false;
    for (const std::string& name : names_in(top)) {
      if (::unlinkat(top, name.c_str(), 0) == 0) {
        progress = true;
        continue;
      }
      const int folder = open_folder(top, name.c_str());
      if (folder < 0) continue;
      for (const std::string& inner : names_in(folder)) {
        if (::unlinkat(folder, inner.c_str(), 0) == 0) continue;
        ::fchmodat(folder, inner.c_str(), 0700, 0);
        while (::renameat2(folder, inner.c_str(), top, std::to_string(moved++).c_str(), RENAME_NOREPLACE) != 0 && errno == EEXIST) continue;
      }
      ::close(folder);
      if (::unlinkat(top, name.c_str(), AT_REMOVEDIR) == 0) progress = true;
    }
  }
}

}  // namespace

ScratchFolder::ScratchFolder(uid_t uid, gid_t gid) : path_(std::filesystem::temp_directory_path() / "hone-sandbox-XXXXXX") {
  HONE_CHECK(::mkdtemp(path_.data()), "cannot make ", path_, ": ", std::strerror(errno));
  if (uid != ::geteuid() && ::chown(path_.c_str(), uid, gid) != 0) {
    const int error = errno;
    ::rmdir(path_.c_str());
    fail("cannot give ", path_, " away: ", std::strerror(error));
  }
}

ScratchFolder::~ScratchFolder() {
  const int top = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (top < 0) return;
  empty_folder(top);
  ::close(top);
  ::rmdir(path_.c_str());
}

}  // namespace hone
