#pragma once
// ScratchFolder: a private folder for temporary files, such as those of a sandboxed program or the tokenizer of a
// worker.
#include <sys/types.h>
#include <unistd.h>

#include <string>

namespace hone {

// Lies in the system's temporary folder; accessible to one user. The destructor removes it whatever a hostile program
// left there (folders a thousand deep or without permissions; links, which it does not follow). The object holds a lock
// (flock) on the folder. A killed process leaves its folder without a lock; the first ScratchFolder of a later process
// removes it.
class ScratchFolder {
 public:
  // uid, gid: the owner; only root may name another user. Throws Error if the folder cannot be created.
  explicit ScratchFolder(uid_t uid = ::geteuid(), gid_t gid = ::getegid());
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string outer_, path_;  // the locked folder; the owner's folder, the same one or inside it
  int lock_ = -1;
};

// Removes scratch folders that killed processes of this user left. It keeps folders of other users, links, and folders
// that a living process has locked. It stops after a few seconds.
void remove_stale_scratch_folders();

}  // namespace hone
