#pragma once
// Starts a process inside the sandbox: the steps from clone() to execve(). The child shares its parent's memory until
// it calls execve (CLONE_VM | CLONE_VFORK), so that no page table of a large trainer is copied. Other threads of the
// parent keep running. The child therefore allocates nothing, takes no lock and makes only system calls; it uses raw
// ones if the C library's version would signal other threads. SandboxStart holds everything it needs, prepared by the
// parent.
#include <linux/filter.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <span>
#include <string>
#include <string_view>

#include "rewards/sandbox/guards.h"

namespace hone {

// A path that the program sees: the host's path mounted read-only (folders recursively), or a link.
struct SandboxPath {
  enum class Kind { folder, file, device, parent, link };  // parent: an empty folder for paths below it
  Kind kind;
  const char* path;    // absolute
  const char* target;  // target of a link
};

struct SandboxLimit {
  int resource;
  rlim_t most;
};

struct SandboxFileView {
  const char* name;
  std::string_view bytes;
};

struct SandboxStart {
  Guards guards;
  bool proc = true;      // mount a new /proc if the kernel allows it
  bool as_root = false;  // the parent needs no user namespace; the program becomes uid and gid
  uid_t uid = 0;
  gid_t gid = 0;
  const char* uid_map = nullptr;  // "0 1000 1"; used unless as_root
  const char* gid_map = nullptr;
  const char* scratch_size = nullptr;  // mount options with the size limit of the scratch folder
  const char* scratch = nullptr;       // working folder: the sandbox's /tmp, or a host folder without the mount guard
  std::span<const SandboxPath> paths;
  std::span<const SandboxFileView> files;  // written into the scratch folder
  std::span<const SandboxLimit> limits;
  const sock_fprog* filter = nullptr;
  int in = -1, out = -1, err = -1;
  // Arguments of execve. nullptr is a trial with a limit of one process: the child enters the sandbox and exits with 0.
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  // Written by the child if a step fails: the step ("mount /usr") and errno. The child then exits with 127.
  const char* failed = nullptr;
  const char* failed_path = "";
  int error = 0;
};

// Sets the program's user: nobody if the parent is privileged (it may make namespaces without a user namespace) or is
// root without the user guard; else the parent's own user.
void set_identity(SandboxStart& start, bool privileged);

// Clones a process that enters the sandbox. Returns when the process has become the program or has ended. Returns its
// pid and sets pidfd (close-on-exec, owned by the caller), or returns -1 and sets errno. The caller waits for the
// process and reads start.failed.
pid_t start_sandboxed(SandboxStart& start, int& pidfd);

// Describes a failed start: "execve /usr/bin/python3: No such file or directory".
std::string failure_of(const SandboxStart& start);

}  // namespace hone
