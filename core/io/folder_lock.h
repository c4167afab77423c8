#pragma once
// FolderLock: one process at a time writes a folder. Two that go on with the same run would cut each other's logs and
// remove each other's checkpoints.
#include <filesystem>
#include <string>

namespace hone {

// Held from construction to destruction; not inherited by programs that the process starts. The kernel releases it when
// the process ends, however it ends.
//
// The lock is flock() on FOLDER/lock, which the kernel of this machine keeps, and which NFS passes to its server. The
// file also names its holder: host, process, and when the process started. That note serves the error message. It
// decides only where a file system has no locks: a holder of this host is in the way while that process lives, one of
// another host until somebody removes the file, since no one here can see whether it still runs. What stays unseen: a
// holder on another host, where an NFS mount keeps locks to itself (options nolock, local_lock). A note that such a
// holder left is a warning.
class FolderLock {
 public:
  // An Error names the folder and its holder if another process holds it. The folder exists.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::filesystem::path file_;
  int descriptor_ = -1;
};

// Who holds a lock, as the file says it.
struct LockHolder {
  std::string host;
  int64_t pid = 0, started = 0;  // started: clock ticks from the machine's start to the process's (/proc/PID/stat)
  static LockHolder self();
  // Of a lock file's text; an empty host if it names none.
  static LockHolder parse(const std::string& text);
  std::string text() const;
  // On this host, and still the same process.
  bool is_alive() const;
};

}  // namespace hone
