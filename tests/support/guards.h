#pragma once
// Pretends that this machine forbids namespaces.
#include "rewards/sandbox/guards.h"

namespace hone::test {

inline GuardReport without_namespaces() {
  GuardReport out = available_guards();
  out.guards = {.user = false, .pid = false, .mount = false, .net = false, .ipc = false, .seccomp = out.guards.seccomp};
  out.why_not.assign(guard_kinds().size(), "taken away by the test");
  return out;
}

}  // namespace hone::test
