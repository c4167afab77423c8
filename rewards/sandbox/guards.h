#pragma once
// Sandbox guards that not every machine offers: their kinds, and which of them work here.
#include <span>
#include <string>
#include <vector>

namespace hone {

struct Guards {
  bool user = true, pid = true, mount = true, net = true, ipc = true, seccomp = true;
};

struct GuardKind {
  const char* name;  // name in sandbox.allow_missing and `hone doctor`
  bool Guards::*flag;
  const char* does;
};
std::span<const GuardKind> guard_kinds();

// What this machine and this process's privileges allow, determined once by trial. why_not has one entry per kind, in
// order; "" if the guard works. Any thread may call available_guards().
struct GuardReport {
  Guards guards;
  bool privileged = false;  // root that may make namespaces without a user namespace; it enters one last
  std::vector<std::string> why_not;
};
const GuardReport& available_guards();

// Makes available_guards() return `report` during its lifetime, so that tests can remove guards. Only one may exist. No
// other thread may call available_guards() during construction and destruction.
class PretendedGuards {
 public:
  explicit PretendedGuards(GuardReport report);
  ~PretendedGuards();
  PretendedGuards(const PretendedGuards&) = delete;
  PretendedGuards& operator=(const PretendedGuards&) = delete;

 private:
  GuardReport report_;
};

}  // namespace hone
