#pragma once
// The system calls that a sandboxed program may make: a seccomp filter (libseccomp) in the form that the kernel takes,
// so that a process which has just been cloned can install it without allocating.
#include <linux/filter.h>

namespace hone {

// Listed calls are allowed; any other fails with ENOSYS ("this kernel does not have it", which libraries take for a
// reason to fall back). Never listed: sockets other than socketpair, ptrace and other processes' memory, mounts and
// namespaces, modules, keys, bpf, io_uring, and memory that no limit of a process counts (memfd, System V). With
// own_pids = false (the program shares the host's process ids) signals to others, setsid and setpgid are not allowed
// either: what the program starts stays in its process group. Made once; the program lives as long as the process. An
// Error says why there can be none. Any thread.
const sock_fprog& syscall_filter(bool own_pids);

}  // namespace hone
