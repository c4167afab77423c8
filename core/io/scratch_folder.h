#pragma once
// A working folder in the temporary folder, for what has no place elsewhere: the files of a sandboxed program, a
// tokenizer on its way to a worker.
#include <sys/types.h>
#include <unistd.h>

#include <string>

namespace hone {

// Made for one user alone; gone with the object, whatever a hostile program left in it (folders a thousand deep,
// without permissions, links elsewhere, which are not followed). It holds a lock (flock) on the folder. A process that
// is killed leaves its folder behind without a lock: the first ScratchFolder of a later process removes it.
class ScratchFolder {
 public:
  // uid, gid: its owner; another than this process' is for root. An Error says why it cannot be made.
  explicit ScratchFolder(uid_t uid = ::geteuid(), gid_t gid = ::getegid());
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string outer_, path_;  // the locked folder; the owner's, which is the same or lies in it
  int lock_ = -1;
};

// Removes scratch folders that this user's killed processes left in the temporary folder. Folders of others, links, and
// what a living process has locked stay. It gives up after a few seconds.
void remove_stale_scratch_folders();

}  // namespace hone
