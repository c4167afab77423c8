#pragma once
// A working folder on the host's disk for a program that has no file system of its own.
#include <sys/types.h>

#include <string>

namespace hone {

// Made in the temporary folder for one user alone, gone with the object, whatever a hostile program left in it (folders a thousand deep, without
// permissions, links elsewhere, which are not followed).
class ScratchFolder {
 public:
  ScratchFolder(uid_t uid, gid_t gid);  // its owner; another than this process' is for root. An Error says why it cannot be made
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace hone
