#pragma once
// The way of a new process into the sandbox: from clone() to execve(). The process shares its parent's memory until it
// execs (CLONE_VM | CLONE_VFORK: no page table of a large trainer is copied) while other threads of the parent go on,
// so it allocates nothing, locks nothing and makes system calls alone, raw ones where the C library's would speak to
// other threads. Everything it needs lies prepared in SandboxStart.
#include <linux/filter.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <span>
#include <string>
#include <string_view>

#include "rewards/sandbox/guards.h"

namespace hone {

// A path that the program sees: the same one of the host, read-only (folders with what is below), or a link.
struct SandboxPath {
  enum class Kind { folder, file, device, parent, link };  // parent: an empty folder for those below
  Kind kind;
  const char* path;    // absolute
  const char* target;  // of a link
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
  bool proc = true;      // a fresh /proc, where it can be had
  bool as_root = false;  // the parent may do all this without a user namespace; the program becomes uid and gid
  uid_t uid = 0;
  gid_t gid = 0;
  const char* uid_map = nullptr;       // "0 1000 1" and the like, for those who are not root
  const char* gid_map = nullptr;       //
  const char* scratch_size = nullptr;  // mount options that bound the scratch folder
  const char* scratch =
      nullptr;  // the working folder: /tmp of the sandbox, or a folder of the host where there is no mount guard
  std::span<const SandboxPath> paths;
  std::span<const SandboxFileView> files;  // written into the scratch folder
  std::span<const SandboxLimit> limits;
  const sock_fprog* filter = nullptr;
  int in = -1, out = -1, err = -1;
  char* const* arguments =
      nullptr;  // of execve; nullptr: a trial, with limits that allow one process: enter, and exit with 0
  char* const* environment = nullptr;
  // Written by the child where it fails: the step ("mount /usr") and errno. It then exits with 127.
  const char* failed = nullptr;
  const char* failed_path = "";
  int error = 0;
};

// Who the program is to be: nobody, for a parent that is root (privileged: one that may make namespaces as it is) or
// has no user guard to hide behind; itself otherwise.
void set_identity(SandboxStart& start, bool privileged);

// Clones a process that enters the sandbox. Returns when it has become the program or has ended: its pid, with a pidfd
// (close-on-exec, the caller's), or -1 and errno. The caller waits for it, and reads start.failed.
pid_t start_sandboxed(SandboxStart& start, int& pidfd);

// Of a start that failed: "execve /usr/bin/python3: No such file or directory".
std::string failure_of(const SandboxStart& start);

}  // namespace hone
