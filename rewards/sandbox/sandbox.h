#pragma once
// Runs an untrusted program on files of its own, behind guards (docs/explain/sandbox.md): namespaces for user,
// processes, files, network and IPC, a seccomp filter, limits on time, memory, processes and files, a scratch folder,
// and a bounded capture of its output. If this machine lacks a guard, the run is refused unless allow_missing names the
// guard.
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/config/fields.h"
#include "rewards/sandbox/child.h"
#include "rewards/sandbox/guards.h"
#include "rewards/sandbox/view.h"

namespace hone {

struct SandboxConfig {
  double wall_seconds = 10, cpu_seconds = 10;
  int64_t memory_mb = 1024, scratch_mb = 64, processes = 32, open_files = 64, output_kb = 1024;
  std::vector<std::string> allow_missing, readable;
  void fields(Fields& f);
};

// What to run.
struct SandboxJob {
  std::vector<std::string> command;  // an absolute path, then arguments
  std::vector<std::pair<std::string, std::string>> files =
      {};                  // name (no '/') and bytes, in the scratch folder, which is where the program begins
  std::string input = {};  // standard input
  std::vector<std::string> environment = {};  // "NAME=value", besides PATH, HOME, TMPDIR and LANG
  bool proc = true;                           // shows /proc (of the sandbox's processes alone)
};

struct SandboxFinished {
  enum class How { exited, signalled, wall_clock, cpu_time, memory } how = How::exited;
  int code = 0;  // exit code, or the signal's number
  double seconds = 0, cpu_seconds = 0;
  int64_t peak_memory = 0;  // bytes of all its processes, the largest sum of those seen (every 10 ms)
  std::string out, err;     // at most output_kb each; the rest was read and dropped
  bool truncated = false;
};
// Nothing ran.
struct SandboxRefused {
  std::string reason;
};
using SandboxOutcome = std::variant<SandboxFinished, SandboxRefused>;

// run() may be called from any thread, also at once. No process of a run is left when it returns.
class Sandbox {
 public:
  // An Error where the settings make no sense. `available` is what there is to work with: tests take guards away.
  explicit Sandbox(SandboxConfig config, const GuardReport& available = available_guards());
  // Why every run is refused: the guards that are missing and not allowed to be; "" if none is.
  const std::string& refusal() const { return refusal_; }
  SandboxOutcome run(const SandboxJob& job) const;
  // True if no process of a run can look into another one of its user: none sees the machine's /proc, none has ptrace.
  bool keeps_processes_apart() const { return guards_.mount && guards_.seccomp; }

 private:
  SandboxFinished run_guarded(const SandboxJob& job) const;  // an Error where it cannot start
  SandboxConfig config_;
  Guards guards_;
  bool privileged_;
  std::string refusal_, scratch_size_;
  std::vector<SandboxLimit> limits_;
  SandboxView view_;
};

// "killed by signal 9 (Killed)", "exit code 1", "out of time (10 s)": for people.
std::string describe(const SandboxFinished& finished);

}  // namespace hone
