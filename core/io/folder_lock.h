#pragma once
// FolderLock: one process at a time writes a folder. Two processes on one run would cut each other's logs and remove
// each other's checkpoints.
#include <filesystem>
#include <string>

namespace hone {

// Held from construction to destruction. Child processes do not inherit it. The kernel releases it when the process
// ends, however it ends.
//
// The lock is flock() on FOLDER/lock. The kernel keeps it; NFS passes it to the server. The file also names its holder:
// host, process id and start time. The error message shows this note. It decides only on a file system without locks:
// a holder on this host blocks while its process lives; a holder on another host blocks until the file is removed,
// since this host cannot see that process. One case stays unseen: a holder on another host through an NFS mount with
// local locks (options nolock, local_lock). The note of such a holder causes a warning.
class FolderLock {
 public:
  // The folder must exist. Throws an Error that names folder and holder if another process holds the lock.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::filesystem::path file_;
  int descriptor_ = -1;
};

// The holder of a lock, as the lock file names it.
struct LockHolder {
  std::string host;
  int64_t pid = 0, started = 0;  // started: clock ticks from the machine's start to the process's (/proc/PID/stat)
  static LockHolder self();
  // Reads the text of a lock file. `host` is empty if the text names no holder.
  static LockHolder parse(const std::string& text);
  std::string text() const;
  // True if the holder is a living process of this host (the same process, not one that reuses its id).
  bool is_alive() const;
};

}  // namespace hone
