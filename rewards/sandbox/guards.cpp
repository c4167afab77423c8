#include "rewards/sandbox/guards.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/check.h"
#include "rewards/sandbox/child.h"
#include "rewards/sandbox/filter.h"
#include "rewards/sandbox/view.h"

namespace hone {

namespace {

constexpr GuardKind kKinds[] = {
    {"user", &Guards::user, "a user namespace: an identity without privileges, and a count of processes of its own"},
    {"pid", &Guards::pid, "a process namespace: no other process is seen or reached, none survives the run"},
    {"mount", &Guards::mount,
     "a mount namespace: the system's programs read-only, a bounded scratch folder, nothing else of the disk"},
    {"net", &Guards::net, "a network namespace without a network"},
    {"ipc", &Guards::ipc, "IPC and UTS namespaces: no shared memory or queue of others"},
    {"seccomp", &Guards::seccomp,
     "a filter of system calls: no sockets, ptrace, mounts, namespaces, modules, keys, bpf, io_uring"},
};

bool may_administer() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[2] = {};
  constexpr unsigned needed = 1U << CAP_SYS_ADMIN | 1U << CAP_SETUID | 1U << CAP_SETGID;
  return ::geteuid() == 0 && ::syscall(SYS_capget, &header, data) == 0 && (data[0].effective & needed) == needed;
}

// Returns why a process cannot enter a sandbox with these guards; "" if it can.
std::string try_entering(const Guards& guards, bool privileged) {
  SandboxStart start;
  start.guards = guards;
  set_identity(start, privileged);
  const SandboxView view({});
  start.paths = view.paths();
  start.scratch = "/";
  constexpr SandboxLimit one_process[] = {{RLIMIT_NPROC, 1}};
  start.limits = one_process;
  start.scratch_size = "size=1m,mode=755";
  try {
    if (guards.seccomp) start.filter = &syscall_filter(guards.pid);
  } catch (const Error& error) {
    return error.what();
  }
  int pidfd = -1;
  const pid_t pid = start_sandboxed(start, pidfd);
  if (pid < 0) return concat("clone: ", std::strerror(errno));
  ::close(pidfd);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  if (start.failed) return failure_of(start);
  return status == 0 ? "" : concat("it ended with status ", status);
}

GuardReport find_guards() {
  GuardReport out{.guards = {}, .privileged = may_administer(), .why_not = std::vector<std::string>(std::size(kKinds))};
  const std::string all = try_entering(out.guards, out.privileged);
  if (all.empty()) return out;
  // Tries the guards one by one. Without privileges every other namespace needs a user namespace around it.
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    Guards one{.user = false, .pid = false, .mount = false, .net = false, .ipc = false, .seccomp = false};
    one.*kKinds[i].flag = true;
    if (!out.privileged && kKinds[i].flag != &Guards::seccomp) one.user = true;
    out.why_not[i] = try_entering(one, out.privileged);
    out.guards.*kKinds[i].flag = out.why_not[i].empty();
  }
  return out;
}

const GuardReport* pretended = nullptr;

}  // namespace

std::span<const GuardKind> guard_kinds() { return kKinds; }

const GuardReport& available_guards() {
  static const GuardReport report = find_guards();
  return pretended ? *pretended : report;
}

PretendedGuards::PretendedGuards(GuardReport report) : report_(std::move(report)) { pretended = &report_; }
PretendedGuards::~PretendedGuards() { pretended = nullptr; }

}  // namespace hone
