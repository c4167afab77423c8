#pragma once
// The guards around a sandboxed program that not every machine offers: what each is, and which are in force here.
#include <span>
#include <string>
#include <vector>

namespace hone {

struct Guards {
  bool user = true, pid = true, mount = true, net = true, ipc = true, seccomp = true;
};

struct GuardKind {
  const char* name;  // as sandbox.allow_missing and `hone doctor` name it
  bool Guards::*flag;
  const char* does;
};
std::span<const GuardKind> guard_kinds();

// What this machine and this process' privileges allow, found once by trying. why_not: of each kind, in order; "" where
// it is in force. Any thread.
struct GuardReport {
  Guards guards;
  bool privileged = false;  // root that may make namespaces without a user namespace; it then enters one last
  std::vector<std::string> why_not;
};
const GuardReport& available_guards();

// While it lives, available_guards() says `report` instead: how tests forbid guards. One at a time; no other thread
// asks as it comes or goes.
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
