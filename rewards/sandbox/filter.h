#pragma once
// The seccomp filter of a sandboxed program: the system calls that it may make. libseccomp compiles it into the
// kernel's form in advance, so that a cloned process can install it without allocating.
#include <linux/filter.h>

namespace hone {

// Returns the filter. Listed calls are allowed; any other call fails with ENOSYS, which libraries take as a reason to
// fall back. Never listed: sockets other than socketpair, ptrace and access to other processes' memory, mounts and
// namespaces, modules, keys, bpf, io_uring, and memory that no process limit counts (memfd, System V). With own_pids =
// false the program shares the host's process ids. Signals to other processes, setsid and setpgid are then refused too,
// so that every child stays in its process group. The filter is compiled once and lives as long as this process. Throws
// an Error if it cannot be compiled. Any thread may call it.
const sock_fprog& syscall_filter(bool own_pids);

}  // namespace hone
