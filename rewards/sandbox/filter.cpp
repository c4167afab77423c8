#include "rewards/sandbox/filter.h"

#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "core/base/check.h"

namespace hone {

namespace {

// Calls of CPython, the C library, a shell and compiled programs. Names that this machine's kernel interface lacks are
// skipped.
constexpr const char* kAllowed[] = {
    // files
    "read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2", "pwritev2", "open",
    "openat", "openat2", "creat", "close", "close_range", "lseek", "stat", "fstat", "lstat", "newfstatat", "statx",
    "statfs", "fstatfs", "access", "faccessat", "faccessat2", "readlink", "readlinkat", "getdents", "getdents64",
    "getcwd", "chdir", "fchdir", "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2",
    "link", "linkat", "symlink", "symlinkat", "chmod", "fchmod", "fchmodat", "chown", "fchown", "fchownat", "lchown",
    "umask", "truncate", "ftruncate", "fallocate", "fsync", "fdatasync", "utime", "utimes", "utimensat", "futimesat",
    "dup", "dup2", "dup3", "fcntl", "flock", "pipe", "pipe2", "sendfile", "copy_file_range", "splice", "tee",
    "fadvise64", "getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr", "flistxattr", "mknod", "mknodat",
    // waiting
    "poll", "ppoll", "select", "pselect6", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait",
    "epoll_pwait2", "eventfd", "eventfd2", "signalfd", "signalfd4", "timerfd_create", "timerfd_settime",
    "timerfd_gettime", "inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch", "pause", "alarm",
    "setitimer", "getitimer", "timer_create", "timer_settime", "timer_gettime", "timer_getoverrun", "timer_delete",
    "nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday", "time", "times",
    // memory
    "mmap", "mprotect", "munmap", "mremap", "madvise", "brk", "msync", "mincore",
    // processes and threads; clone has a separate rule
    "fork", "vfork", "execve", "execveat", "exit", "exit_group", "wait4", "waitid", "set_tid_address",
    "set_robust_list", "get_robust_list", "rseq", "futex", "futex_waitv", "membarrier", "arch_prctl", "sched_yield",
    "sched_getaffinity", "sched_getparam", "sched_getscheduler", "sched_get_priority_max", "sched_get_priority_min",
    "getcpu", "getpriority", "getpid", "getppid", "gettid", "getuid", "geteuid", "getgid", "getegid", "getgroups",
    "getresuid", "getresgid", "getpgrp", "getpgid", "getsid", "capget", "uname", "sysinfo", "getrusage", "getrlimit",
    "setrlimit", "getrandom", "restart_syscall",
    // signals to itself
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigtimedwait", "rt_sigsuspend",
    "sigaltstack",
    // both ends of a socketpair
    "sendto", "recvfrom", "sendmsg", "recvmsg", "sendmmsg", "recvmmsg", "shutdown", "getsockname", "getpeername",
    "getsockopt", "setsockopt"};
// Allowed only in a process namespace.
constexpr const char* kAllowedAmongOwn[] = {"kill",   "tkill",  "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo",
                                            "setsid", "setpgid"};

using Filter = std::unique_ptr<void, decltype(&seccomp_release)>;

// Allows a call that meets `conditions`.
void allow(const Filter& filter, const char* name, const std::vector<scmp_arg_cmp>& conditions = {}) {
  const int number = seccomp_syscall_resolve_name(name);
  if (number < 0) return;
  const int error = seccomp_rule_add_array(filter.get(), SCMP_ACT_ALLOW, number,
                                           static_cast<unsigned>(conditions.size()), conditions.data());
  HONE_CHECK(error == 0, "seccomp: no rule for ", name, ": ", std::strerror(-error));
}

std::vector<sock_filter> compile(bool own_pids) {
  const Filter filter(seccomp_init(SCMP_ACT_ERRNO(ENOSYS)), seccomp_release);
  HONE_CHECK(filter, "seccomp: cannot make a filter");
  // A binary tree by call number: a linear list would cost each call hundreds of comparisons.
  seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);
  for (const char* name : kAllowed) allow(filter, name);
  if (own_pids)
    for (const char* name : kAllowedAmongOwn) allow(filter, name);
  constexpr scmp_datum_t namespaces =
      CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
  allow(filter, "clone", {SCMP_A0(SCMP_CMP_MASKED_EQ, namespaces, 0)});
  allow(filter, "socketpair", {SCMP_A0(SCMP_CMP_EQ, AF_UNIX)});
  allow(filter, "prlimit64", {SCMP_A0(SCMP_CMP_EQ, 0)});
  for (const scmp_datum_t request : {TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIOCLEX, FIONCLEX})
    allow(filter, "ioctl", {SCMP_A1(SCMP_CMP_EQ, request)});
  for (const scmp_datum_t option : {PR_SET_NAME, PR_GET_NAME, PR_CAPBSET_READ})
    allow(filter, "prctl", {SCMP_A0(SCMP_CMP_EQ, option)});
  // A process may hide from others, but not expose itself.
  allow(filter, "prctl", {SCMP_A0(SCMP_CMP_EQ, PR_SET_DUMPABLE), SCMP_A1(SCMP_CMP_EQ, 0)});

  const int file = memfd_create("seccomp", MFD_CLOEXEC);
  HONE_CHECK(file >= 0, "seccomp: memfd_create: ", std::strerror(errno));
  const int exported = seccomp_export_bpf(filter.get(), file);
  struct stat found {};
  ::fstat(file, &found);
  std::vector<sock_filter> program(static_cast<size_t>(found.st_size) / sizeof(sock_filter));
  const ssize_t got = ::pread(file, program.data(), program.size() * sizeof(sock_filter), 0);
  ::close(file);
  HONE_CHECK(exported == 0 && got == found.st_size && got > 0, "seccomp: cannot export the filter");
  return program;
}

struct Program {
  explicit Program(bool own_pids)
      : code(compile(own_pids)), view{static_cast<unsigned short>(code.size()), code.data()} {}
  std::vector<sock_filter> code;
  sock_fprog view;
};

}  // namespace

const sock_fprog& syscall_filter(bool own_pids) {
  static const Program own(true), shared(false);
  return own_pids ? own.view : shared.view;
}

}  // namespace hone
