#pragma once
// Runs small hostile programs in the sandbox, with all guards (parameter true) and with only seccomp and limits, as on
// a machine without namespaces. Each program is harmless if a guard fails: it ends soon and takes no more than the
// machine can give.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/base/check.h"
#include "rewards/sandbox/sandbox.h"
#include "tests/support/guards.h"
#include "tests/support/support.h"

namespace hone::test {

namespace fs = std::filesystem;
using How = SandboxFinished::How;

// Returns the number of processes of this machine whose command line contains the word. Zombies have no command line.
inline int processes_named(const std::string& word) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    if (entry.path().filename().string().find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "cmdline");
    const std::string line((std::istreambuf_iterator<char>(file)), {});
    count += line.find(word) != std::string::npos;
  }
  return count;
}

// Waits until no process contains the word, up to a limit.
inline bool soon_none(const std::string& word) {
  for (int i = 0; i < 200; ++i) {
    if (processes_named(word) == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// Returns a duration for `sleep` that no other process uses: about half a minute.
inline std::string marker() {
  static int count = 0;
  return concat("30.", ::getpid(), ++count);
}

class SandboxRun : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!fs::exists(python)) GTEST_SKIP() << "no " << python;
    for (size_t i = 0; i < guard_kinds().size(); ++i) {
      const bool wanted = all_guards() || guard_kinds()[i].flag == &Guards::seccomp;
      if (wanted && !(available_guards().guards.*guard_kinds()[i].flag))
        GTEST_SKIP() << "this machine has no guard '" << guard_kinds()[i].name
                     << "': " << available_guards().why_not[i];
    }
    // Scratch folders of the host are made in this test's folder.
    fs::permissions(temporary.path(), fs::perms::all);
    ::setenv("TMPDIR", temporary.path().c_str(), 1);
    config.wall_seconds = 20;
    config.cpu_seconds = 10;
    config.memory_mb = 512;
    if (!all_guards()) config.processes = 1024;  // all processes of the user count
  }
  void TearDown() override { ::unsetenv("TMPDIR"); }
  virtual bool all_guards() const { return GetParam(); }
  SandboxFinished run(SandboxJob job) const {
    SandboxConfig used = config;
    if (!all_guards()) used.allow_missing = {"user", "pid", "mount", "net", "ipc"};
    const SandboxOutcome outcome = Sandbox(used, all_guards() ? available_guards() : without_namespaces()).run(job);
    if (const auto* refused = std::get_if<SandboxRefused>(&outcome)) {
      ADD_FAILURE() << "refused: " << refused->reason;
      return {};
    }
    return std::get<SandboxFinished>(outcome);
  }
  SandboxFinished run_python(const std::string& code, const std::string& input = "") const {
    return run({.command = {python, "-B", "attack.py"}, .files = {{"attack.py", code}}, .input = input});
  }
  // Expects this output of a program.
  void expect_output(const std::string& code, const std::string& expected) const {
    const SandboxFinished done = run_python(code);
    EXPECT_EQ(done.out, expected) << describe(done) << "\n" << done.err;
  }

  const std::string python = "/usr/bin/python3";
  const TemporaryFolder temporary;
  SandboxConfig config;
};

inline std::string guards_of(const ::testing::TestParamInfo<bool>& one) {
  return one.param ? "All" : "WithoutNamespaces";
}

}  // namespace hone::test
