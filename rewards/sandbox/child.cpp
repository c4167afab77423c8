#include "rewards/sandbox/child.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/check.h"

namespace hone {

namespace {

// The child uses its parent's thread-local storage; a sanitizer would leave its own state there.
#define HONE_CHILD __attribute__((no_sanitize("thread", "address", "undefined")))

// Ends the child unless the call succeeded.
HONE_CHILD void step(SandboxStart& start, long result, const char* what, const char* path = "") {
  if (result >= 0) return;
  start.error = errno;
  start.failed = what;
  start.failed_path = path;
  _exit(127);
}

HONE_CHILD void write_text(SandboxStart& start, const char* path, const char* text) {
  const int file = ::open(path, O_WRONLY | O_CLOEXEC);
  step(start, file, "open", path);
  step(start, ::write(file, text, std::strlen(text)), "write", path);
  ::close(file);
}

HONE_CHILD void set_flags(SandboxStart& start, const char* path, unsigned flags, uint64_t attributes) {
  mount_attr attr{};
  attr.attr_set = attributes;
  step(start, ::syscall(SYS_mount_setattr, AT_FDCWD, path, flags, &attr, sizeof(attr)), "make read-only", path);
}

// Mounts the host's file or folder at /old/PATH as PATH.
HONE_CHILD void show(SandboxStart& start, const SandboxPath& shown) {
  char source[4096] = "/old";
  std::strncat(source, shown.path, sizeof(source) - 5);
  if (shown.kind == SandboxPath::Kind::folder)
    step(start, ::mkdir(shown.path, 0755) == 0 || errno == EEXIST ? 0 : -1, "make folder", shown.path);
  else
    step(start, ::close(::open(shown.path, O_CREAT | O_WRONLY | O_CLOEXEC, 0444)), "make file", shown.path);
  step(start, ::mount(source, shown.path, nullptr, MS_BIND | MS_REC, nullptr), "bind", shown.path);
  const bool device = shown.kind == SandboxPath::Kind::device;
  set_flags(start, shown.path, AT_RECURSIVE,
            MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | (device ? MOUNT_ATTR_NOEXEC : MOUNT_ATTR_NODEV));
}

// Makes a new root: a bounded tmpfs in which only /tmp is writable, with the host's paths bound read-only.
HONE_CHILD void enter_view(SandboxStart& start) {
  step(start, ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), "make mounts private");
  step(start, ::mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, start.scratch_size), "mount tmpfs");
  step(start, ::chdir("/tmp"), "enter the new root");
  step(start, ::mkdir("old", 0700), "make folder", "old");
  step(start, ::syscall(SYS_pivot_root, ".", "old"), "pivot_root");
  step(start, ::chdir("/"), "enter the new root");
  for (const SandboxPath& path : start.paths) {
    if (path.kind == SandboxPath::Kind::parent)
      step(start, ::mkdir(path.path, 0755) == 0 || errno == EEXIST ? 0 : -1, "make folder", path.path);
    else if (path.kind == SandboxPath::Kind::link)
      step(start, ::symlink(path.target, path.path), "link", path.path);
    else
      show(start, path);
  }
  step(start, ::mkdir("/tmp", 0700), "make folder", "/tmp");
  if (start.as_root) step(start, ::chown("/tmp", start.uid, start.gid), "give away", "/tmp");
  step(start, ::mount("/tmp", "/tmp", nullptr, MS_BIND, nullptr), "bind", "/tmp");
  // A new /proc shows only the sandbox's processes. If the kernel refuses it (a container that hides parts of the
  // host's /proc) there is none.
  if (start.proc && start.guards.pid && ::mkdir("/proc", 0555) == 0)
    ::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "subset=pid");
  step(start, ::umount2("/old", MNT_DETACH), "leave the old root");
  step(start, ::rmdir("/old"), "leave the old root");
  set_flags(start, "/", 0, MOUNT_ATTR_RDONLY);
}

// Drops privileges. Root becomes start.uid, in a new user namespace if that guard is on. Other users are in theirs
// already.
HONE_CHILD void drop_privileges(SandboxStart& start) {
  if (start.as_root) {
    step(start, ::syscall(SYS_setgroups, 0, nullptr), "setgroups");
    step(start, ::syscall(SYS_setresgid, start.gid, start.gid, start.gid), "setresgid");
    step(start, ::syscall(SYS_setresuid, start.uid, start.uid, start.uid), "setresuid");
    if (start.guards.user) step(start, ::unshare(CLONE_NEWUSER), "unshare user");
  }
  step(start, ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
}

HONE_CHILD void write_files(SandboxStart& start) {
  step(start, ::chdir(start.scratch), "enter", start.scratch);
  for (const SandboxFileView& given : start.files) {
    const int file = ::open(given.name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    step(start, file, "make file", given.name);
    for (size_t done = 0; done < given.bytes.size();) {
      const ssize_t written = ::write(file, given.bytes.data() + done, given.bytes.size() - done);
      step(start, written, "write", given.name);
      done += static_cast<size_t>(written);
    }
    ::close(file);
  }
}

// Installs the given standard streams and closes all other descriptors of the parent.
HONE_CHILD void take_descriptors(SandboxStart& start) {
  int given[3] = {start.in, start.out, start.err};
  for (int& descriptor : given) step(start, descriptor = ::fcntl(descriptor, F_DUPFD, 3), "dup");
  for (int i = 0; i < 3; ++i) step(start, ::dup2(given[i], i), "dup2");
  step(start, ::syscall(SYS_close_range, 3U, ~0U, 0U), "close_range");
}

HONE_CHILD void reset_signals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &action, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, NSIG / 8);
}

// Ends a trial. The kernel must enforce a limit of one process. It does not for the machine's root, in any namespace.
HONE_CHILD void try_limits(SandboxStart& start) {
  const long second = ::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (second > 0) {
    errno = EPERM;
    step(start, -1, "limit the number of this user's processes");
  }
  _exit(0);
}

HONE_CHILD int enter(void* argument) {
  SandboxStart& start = *static_cast<SandboxStart*>(argument);
  reset_signals();
  ::setsid();
  ::umask(022);
  if (start.guards.user && !start.as_root) {
    write_text(start, "/proc/self/setgroups", "deny");
    write_text(start, "/proc/self/uid_map", start.uid_map);
    write_text(start, "/proc/self/gid_map", start.gid_map);
  }
  if (start.guards.mount) enter_view(start);
  drop_privileges(start);
  write_files(start);
  // Kills the program if hone dies. Set after the change of identity, which clears it.
  step(start, ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "pdeathsig");
  if (start.arguments) take_descriptors(start);
  for (const SandboxLimit& limit : start.limits) {
    const rlimit both{limit.most, limit.most};
    step(start, ::setrlimit(static_cast<__rlimit_resource_t>(limit.resource), &both), "setrlimit");
  }
  if (start.guards.seccomp) step(start, ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, start.filter), "seccomp");
  if (!start.arguments) try_limits(start);
  ::execve(start.arguments[0], start.arguments, start.environment);
  step(start, -1, "execve", start.arguments[0]);
  return 127;
}

}  // namespace

void set_identity(SandboxStart& start, bool privileged) {
  constexpr unsigned nobody = 65534;
  static const std::string uid_map = concat(nobody, " ", ::geteuid(), " 1"),
                           gid_map = concat(nobody, " ", ::getegid(), " 1");
  start.as_root = privileged || (::geteuid() == 0 && !start.guards.user);
  start.uid = start.as_root ? nobody : ::geteuid();
  // Without a user namespace each run gets its own user id (from the range that systemd assigns to services
  // dynamically). Otherwise runs would share a process limit and could signal each other.
  static std::atomic<unsigned> runs = 0;
  if (start.as_root && !start.guards.user) start.uid = 61184 + (static_cast<unsigned>(::getpid()) * 61 + runs++) % 4096;
  start.gid = start.as_root ? nobody : ::getegid();
  start.uid_map = uid_map.c_str();
  start.gid_map = gid_map.c_str();
}

std::string failure_of(const SandboxStart& start) {
  return concat(start.failed, *start.failed_path ? " " : "", start.failed_path, ": ", std::strerror(start.error));
}

pid_t start_sandboxed(SandboxStart& start, int& pidfd) {
  // A change of user marks the shared memory as not dumpable, which the parent undoes.
  static const int dumpable = ::prctl(PR_GET_DUMPABLE);
  int flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD;
  if (start.guards.user && !start.as_root) flags |= CLONE_NEWUSER;
  if (start.guards.pid) flags |= CLONE_NEWPID;
  if (start.guards.mount) flags |= CLONE_NEWNS;
  if (start.guards.net) flags |= CLONE_NEWNET;
  if (start.guards.ipc) flags |= CLONE_NEWIPC | CLONE_NEWUTS;
  constexpr size_t stack_bytes = size_t{64} * 1024;
  std::vector<std::max_align_t> stack(stack_bytes / sizeof(std::max_align_t));
  // Blocks signals until the child has its own handlers, since the parent's must not run in shared memory.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  const pid_t pid = ::clone(enter, stack.data() + stack.size(), flags, &start, &pidfd);
  const int error = errno;
  if (start.as_root) ::prctl(PR_SET_DUMPABLE, dumpable);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

}  // namespace hone
