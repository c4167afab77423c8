#include "core/io/scratch_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <vector>

#include "core/base/check.h"

namespace hone {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* prefix = "hone-scratch-";

std::vector<std::string> names_in(int folder) {
  std::vector<std::string> out;
  DIR* listing = ::fdopendir(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!listing) return out;
  while (const dirent* entry = ::readdir(listing))
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) out.push_back(entry->d_name);
  ::closedir(listing);
  return out;
}

// Gives this user access to a folder. Root needs none, and must not chmod: the name could be a link by now.
void allow_entry(int at, const char* name) {
  if (::geteuid() != 0) ::fchmodat(at, name, 0700, 0);
}

int open_folder(int at, const char* name) {
  allow_entry(at, name);
  return ::openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// Moves inner folders up before it removes their parent: no path grows, and two descriptors suffice for any depth.
void empty_folder(int top, Clock::time_point deadline = Clock::time_point::max()) {
  int64_t moved = 0;
  bool progress = true;
  while (progress && Clock::now() < deadline) {
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
        allow_entry(folder, inner.c_str());
        while (::renameat2(folder, inner.c_str(), top, std::to_string(moved++).c_str(), RENAME_NOREPLACE) != 0 &&
               errno == EEXIST)
          continue;
      }
      ::close(folder);
      if (::unlinkat(top, name.c_str(), AT_REMOVEDIR) == 0) progress = true;
    }
  }
}

// Opens a folder of this user, without following a link; -1 if it is none.
int open_own(const std::string& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat found {};
  if (folder < 0 || (::fstat(folder, &found) == 0 && found.st_uid == ::geteuid() && found.st_nlink > 0)) return folder;
  ::close(folder);
  return -1;
}

// Empties and removes the folder `path`, which the descriptor `top` has open.
void remove_folder(int top, const std::string& path, Clock::time_point deadline = Clock::time_point::max()) {
  empty_folder(top, deadline);
  ::rmdir(path.c_str());
}

// Creates and locks a folder. A process that removes stale folders may remove it before the lock: then try another
// name.
int make_locked(std::string& path) {
  for (int attempt = 0; attempt < 16; ++attempt) {
    path = fs::temp_directory_path() / concat(prefix, "XXXXXX");
    HONE_CHECK(::mkdtemp(path.data()), "cannot make ", path, ": ", std::strerror(errno));
    const int folder = open_own(path);
    if (folder < 0) continue;
    // A file system without locks is fine: then no process can lock the folder to remove it.
    while (::flock(folder, LOCK_EX) != 0 && errno == EINTR) continue;
    struct stat found {};
    if (::fstat(folder, &found) == 0 && found.st_nlink > 0) return folder;
    ::close(folder);
  }
  fail("cannot keep a folder in ", fs::temp_directory_path().string(), ": another process removes them");
}

}  // namespace

ScratchFolder::ScratchFolder(uid_t uid, gid_t gid) {
  static std::once_flag once;
  std::call_once(once, remove_stale_scratch_folders);
  lock_ = make_locked(outer_);
  path_ = outer_;
  if (uid == ::geteuid()) return;
  // The owner can reach the inner folder, but can neither rename nor lock the outer one.
  path_ = outer_ + "/work";
  if (::mkdir(path_.c_str(), 0700) == 0 && ::chown(path_.c_str(), uid, gid) == 0 && ::fchmod(lock_, 0711) == 0) return;
  const int error = errno;
  remove_folder(lock_, outer_);
  ::close(lock_);
  fail(path_, ": cannot change the owner: ", std::strerror(error));
}

ScratchFolder::~ScratchFolder() {
  remove_folder(lock_, outer_);
  ::close(lock_);
}

void remove_stale_scratch_folders() {
  const auto deadline = Clock::now() + std::chrono::seconds(5);
  std::error_code error;
  fs::directory_iterator entry(fs::temp_directory_path(error), error);
  for (; !error && entry != fs::directory_iterator() && Clock::now() < deadline; entry.increment(error)) {
    const std::string path = entry->path();
    if (!entry->path().filename().string().starts_with(prefix)) continue;
    const int folder = open_own(path);
    if (folder < 0) continue;
    if (::flock(folder, LOCK_EX | LOCK_NB) == 0) remove_folder(folder, path, deadline);
    ::close(folder);
  }
}

}  // namespace hone
