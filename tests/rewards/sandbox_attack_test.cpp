// The sandbox by attack: each test is a small hostile program. Those that every guard set must stand run with all guards and with seccomp and limits
// alone, as on a machine without namespaces.
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/check.h"
#include "rewards/sandbox.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using How = SandboxFinished::How;

GuardReport without_namespaces() {
  GuardReport out = available_guards();
  out.guards = {.user = false, .pid = false, .mount = false, .net = false, .ipc = false, .seccomp = out.guards.seccomp};
  out.why_not.assign(guard_kinds().size(), "taken away by the test");
  return out;
}

// Processes of this machine whose command line has the word; zombies have none.
int processes_named(const std::string& word) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    if (entry.path().filename().string().find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "cmdline");
    const std::string line((std::istreambuf_iterator<char>(file)), {});
    count += line.find(word) != std::string::npos;
  }
  return count;
}

// Waits a while for what ends by a signal that has been sent.
bool soon_none(const std::string& word) {
  for (int i = 0; i < 200; ++i) {
    if (processes_named(word) == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// A duration for `sleep` that nobody else asks for.
std::string marker() {
  static int count = 0;
  return concat("31415.", ::getpid(), ++count);
}

class SandboxAttack : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!fs::exists(python)) GTEST_SKIP() << "no " << python;
    for (size_t i = 0; i < guard_kinds().size(); ++i) {
      const bool wanted = all_guards() || guard_kinds()[i].flag == &Guards::seccomp;
      if (wanted && !(available_guards().guards.*guard_kinds()[i].flag))
        GTEST_SKIP() << "this machine has no guard '" << guard_kinds()[i].name << "': " << available_guards().why_not[i];
    }
    // Scratch folders of the host go into a folder of this test's.
    fs::permissions(temporary.path(), fs::perms::all);
    ::setenv("TMPDIR", temporary.path().c_str(), 1);
    config.wall_seconds = 20;
    config.cpu_seconds = 10;
    config.memory_mb = 512;
    if (!all_guards()) config.processes = 1024;  // all of the user's count
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
  // What the program says it could do.
  void expect_output(const std::string& code, const std::string& expected) const {
    const SandboxFinished done = run_python(code);
    EXPECT_EQ(done.out, expected) << describe(done) << "\n" << done.err;
  }

  const std::string python = "/usr/bin/python3";
  const TemporaryFolder temporary;
  SandboxConfig config;
};

// With every guard.
class GuardedAttack : public SandboxAttack {
 protected:
  bool all_guards() const override { return true; }
};

TEST_P(SandboxAttack, AnHonestProgramHasItsFilesItsInputAndACleanEnvironment) {
  ::setenv("HONE_TEST_SECRET", "31415", 1);
  const SandboxFinished done = run({.command = {"/bin/sh", "-c", "cat data; cat; echo oops >&2; touch made && ls; env; exit 3"},
                                    .files = {{"data", "given\n"}},
                                    .input = "asked\n",
                                    .environment = {"MORE=1"}});
  EXPECT_EQ(done.how, How::exited);
  EXPECT_EQ(done.code, 3);
  EXPECT_TRUE(done.out.starts_with("given\nasked\ndata\nmade\n")) << done.out;
  EXPECT_NE(done.out.find("MORE=1"), std::string::npos);
  EXPECT_EQ(done.out.find("HONE_TEST_SECRET"), std::string::npos) << done.out;
  EXPECT_EQ(done.err, "oops\n");
  EXPECT_FALSE(done.truncated);
  EXPECT_LT(done.cpu_seconds, 5);
}

TEST_P(SandboxAttack, AnEndlessLoopRunsOutOfProcessorTime) {
  config.cpu_seconds = 1;
  const SandboxFinished done = run_python("while True: pass");
  EXPECT_EQ(done.how, How::cpu_time) << describe(done);
  EXPECT_GE(done.cpu_seconds, 0.5);
  EXPECT_LT(done.cpu_seconds, 3);
}

TEST_P(SandboxAttack, ASleepEndsWithTheWallClock) {
  config.wall_seconds = 0.5;
  const SandboxFinished done = run({.command = {"/bin/sleep", marker()}});
  EXPECT_EQ(done.how, How::wall_clock) << describe(done);
  EXPECT_GE(done.seconds, 0.5);
  EXPECT_LT(done.seconds, 10);
}

TEST_P(SandboxAttack, IgnoredSignalsDoNotHelp) {
  config.wall_seconds = 0.5;
  const SandboxFinished done = run_python(
      "import signal, time\nfor s in range(1, 65):\n  try: signal.signal(s, signal.SIG_IGN)\n  except (OSError, ValueError): pass\n"
      "print('deaf', flush=True)\ntime.sleep(1000)");
  EXPECT_EQ(done.how, How::wall_clock) << describe(done);
  EXPECT_EQ(done.out, "deaf\n");
}

TEST_P(SandboxAttack, TenGigabytesAreRefused) {
  expect_output("try: bytearray(10**10)\nexcept MemoryError: print('no')", "no\n");
  expect_output("import mmap\ntry: mmap.mmap(-1, 10**10)\nexcept OSError: print('no')", "no\n");
}

TEST_P(SandboxAttack, MemoryOfAllProcessesIsAddedUp) {
  config.memory_mb = 200;
  const SandboxFinished done =
      run_python("import os, time\nfor i in range(6):\n  if os.fork() == 0:\n    b = bytearray(80 << 20)\n    time.sleep(100)\ntime.sleep(100)");
  EXPECT_EQ(done.how, How::memory) << describe(done);
  EXPECT_GT(done.peak_memory, int64_t{200} << 20);
  EXPECT_LT(done.seconds, 15);
}

TEST_P(SandboxAttack, AForkBombStaysSmallAndIsGoneAfterwards) {
  config.wall_seconds = 1;
  config.processes = 20;
  const std::string word = "bomb" + marker();
  // It goes off where the limit holds alone: a failure of this test is not to take the machine along.
  const std::string code =
      "import os, time\nn = 0\nwhile n < 100:\n  try:\n    if os.fork() == 0:\n      time.sleep(100); os._exit(0)\n    n += 1\n  except OSError: "
      "break\n"
      "print(n < 20, flush=True)\nif n >= 20: os._exit(1)\nwhile True:\n  try: os.fork()\n  except OSError: pass";
  const SandboxFinished done = run({.command = {python, "-B", "-c", code, word}});
  EXPECT_EQ(done.out, "True\n") << describe(done) << done.err;
  EXPECT_TRUE(soon_none(word));
}

TEST_P(SandboxAttack, ThreadsCountAsProcesses) {
  config.processes = 20;
  expect_output(
      "import threading, time, os\nn = 0\ntry:\n  while n < 100:\n    threading.Thread(target=time.sleep, args=(100,), daemon=True).start(); n += 1\n"
      "except RuntimeError: pass\nprint(n < 20, flush=True)\nos._exit(0)",
      "True\n");
}

TEST_P(SandboxAttack, AFloodOfOutputIsReadAndDropped) {
  config.wall_seconds = 0.5;
  config.output_kb = 64;
  const SandboxFinished done = run({.command = {"/bin/sh", "-c", "yes >&2 & yes"}});
  EXPECT_EQ(done.how, How::wall_clock) << describe(done);
  EXPECT_TRUE(done.truncated);
  EXPECT_EQ(done.out.size(), 64U * 1024);
  EXPECT_EQ(done.err.size(), 64U * 1024);
}

TEST_P(SandboxAttack, NoOrphanSurvives) {
  const std::string word = marker();
  const SandboxFinished done =
      run({.command = {python, "-B", "-c",
                       "import os, sys\nif os.fork() == 0:\n  try: os.setsid()\n  except OSError: pass\n  if os.fork() == 0:\n    "
                       "os.execv('/bin/sleep', ['sleep', sys.argv[1]])\n  os._exit(0)\nos.wait()\nprint('left')",
                       word}});
  EXPECT_EQ(done.how, How::exited) << describe(done);
  EXPECT_EQ(done.out, "left\n") << done.err;
  EXPECT_TRUE(all_guards() ? processes_named(word) == 0 : soon_none(word));
}

TEST_P(SandboxAttack, ZombiesAreNoTrouble) {
  expect_output("import os, time\nfor i in range(20):\n  if os.fork() == 0: os._exit(0)\ntime.sleep(0.1)\nprint('done')", "done\n");
}

TEST_P(SandboxAttack, ThereIsNoNetwork) {
  const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(server, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(server, 1), 0);
  ASSERT_EQ(::getsockname(server, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string code =
      concat("import socket\nfor host, port in (('127.0.0.1', ", ntohs(address.sin_port),
             "), ('1.1.1.1', 53)):\n  try: socket.create_connection((host, port), 2); print('connected')\n  except OSError: print('no')");
  expect_output(code, "no\nno\n");
  if (all_guards()) {  // the namespace does not lean on the filter
    GuardReport unfiltered = available_guards();
    unfiltered.guards.seccomp = false;
    SandboxConfig lenient = config;
    lenient.allow_missing = {"seccomp"};
    const SandboxOutcome outcome = Sandbox(lenient, unfiltered).run({.command = {python, "-c", code}});
    EXPECT_EQ(std::get<SandboxFinished>(outcome).out, "no\nno\n");
  }
  ::close(server);
}

TEST_P(SandboxAttack, TheParentIsOutOfReach) {
  const std::string pid = std::to_string(::getpid());
  // ptrace(PTRACE_ATTACH), process_vm_readv, kill, tgkill, prlimit, pidfd_open.
  expect_output(
      "import ctypes, os, resource\nlibc = ctypes.CDLL(None, use_errno=True)\nfor pid in (os.getppid() or " + pid + ", " + pid +
          "):\n  print(libc.ptrace(16, pid, 0, 0), libc.syscall(310, pid, 0, 0, 0, 0, 0), libc.kill(pid, 9), libc.syscall(234, pid, pid, 9), "
          "libc.syscall(302, pid, 7, None, ctypes.create_string_buffer(16)), libc.syscall(434, pid, 0))\n"
          "print(libc.kill(-1, 0))",
      "-1 -1 -1 -1 -1 -1\n-1 -1 -1 -1 -1 -1\n-1\n");
}

TEST_P(SandboxAttack, DangerousSystemCallsAreNotThere) {
  // unshare, mount, setns, bpf, perf_event_open, keyctl, io_uring_setup, memfd_create, userfaultfd, socket, shmget, open_by_handle_at, chroot,
  // init_module, clone3, clone(CLONE_NEWUSER)
  expect_output(
      "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nfor n in (272, 165, 308, 321, 298, 250, 425, 319, 323, 41, 29, 304, 161, 175, 435):\n"
      "  r = libc.syscall(n, 0, 0, 0, 0, 0, 0)\n  if r != -1 or ctypes.get_errno() != 38: print(n, r, ctypes.get_errno())\n"
      "print(libc.syscall(56, 0x10000000, 0, 0, 0, 0), ctypes.get_errno())",
      "-1 38\n");
}

TEST_P(SandboxAttack, NothingOfTheParentsStaysOpen) {
  const int leaked = ::open("/etc/hostname", O_RDONLY);  // without close-on-exec
  expect_output(
      "import os\nopen_ones = []\nfor d in range(3, 2000):\n  try: os.fstat(d); open_ones.append(d)\n  except OSError: pass\nprint(open_ones)",
      "[]\n");
  ::close(leaked);
  // Its own it may close and abuse.
  const SandboxFinished done = run_python("import os\nfor d in (0, 1, 2): os.close(d)\nos._exit(5)");
  EXPECT_EQ(done.code, 5);
  expect_output("import os\ntry: os.write(0, b'x'); print('written')\nexcept OSError: print('no')", "no\n");
}

TEST_P(SandboxAttack, FilesAndDescriptorsAreBounded) {
  config.scratch_mb = 4;
  config.open_files = 32;
  expect_output(
      "try:\n  with open('big', 'wb') as f:\n    for i in range(64): f.write(bytes(1 << 20)); f.flush()\nexcept OSError: print('no')\n"
      "import os; print(os.path.getsize('big') <= 4 << 20)",
      "no\nTrue\n");
  expect_output("kept = []\ntry:\n  for i in range(100): kept.append(open('/dev/null'))\nexcept OSError: print(len(kept) < 32)", "True\n");
}

TEST_P(SandboxAttack, HundredsOfFoldersDeepAreClearedAway) {
  expect_output("import os\nfor i in range(300):\n  os.mkdir('d' * 200); os.chdir('d' * 200)\nos.chmod('.', 0)\nprint('deep')", "deep\n");
  EXPECT_TRUE(fs::is_empty(temporary.path()));
}

TEST_P(SandboxAttack, LinksOutOfTheScratchFolderAreNotFollowedWhenItIsCleared) {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  std::ofstream(folder.path() / "precious") << "kept";
  const SandboxFinished done = run({.command = {"/bin/sh", "-c", "ln -s \"$0\" link; ln -s \"$0/precious\" file; ls", folder.path().string()}});
  EXPECT_EQ(done.out, "file\nlink\n") << done.err;
  EXPECT_TRUE(fs::exists(folder.path() / "precious"));
}

TEST_P(SandboxAttack, NoPrivilegeCanBeHadOrGained) {
  expect_output("import os\ntry: os.setuid(0); print('root')\nexcept OSError: print('no')", "no\n");
  if (all_guards())
    EXPECT_EQ(run({.command = {"/bin/sh", "-c", "umount /usr || mount -t tmpfs x /usr || echo no"}}).out, "no\n");
  else
    EXPECT_NE(run({.command = {"/usr/bin/id", "-u"}}).out, "0\n");
}

TEST_P(SandboxAttack, ADeadParentTakesItsProgramsAlong) {
  const std::string word = marker();
  available_guards();
  const pid_t parent = ::fork();
  if (parent == 0) {
    run({.command = {"/bin/sleep", word}});
    ::_exit(0);
  }
  for (int i = 0; i < 500 && processes_named(word) == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(processes_named(word), 1);
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  EXPECT_TRUE(soon_none(word));
}

TEST_P(SandboxAttack, ManyAtOnceKeepApartAndLeaveNothingOpen) {
  const auto open_descriptors = [] { return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()); };
  run({.command = {"/bin/true"}});
  const auto before = open_descriptors();
  std::vector<std::thread> threads;
  std::array<std::array<std::string, 12>, 4> outs;
  for (size_t t = 0; t < outs.size(); ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < outs[t].size(); ++i)
        outs[t][i] = run({.command = {"/bin/sh", "-c", "cat > f; cat f; echo $0", concat(t)}, .input = concat(i, " ")}).out;
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < outs.size(); ++t)
    for (size_t i = 0; i < outs[t].size(); ++i) EXPECT_EQ(outs[t][i], concat(i, " ", t, "\n"));
  EXPECT_EQ(open_descriptors(), before);
}

INSTANTIATE_TEST_SUITE_P(Guards, SandboxAttack, ::testing::Bool(), [](const auto& one) { return one.param ? "All" : "WithoutNamespaces"; });

TEST_P(GuardedAttack, FilesOfTheHostAreNotThere) {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  std::ofstream(folder.path() / "secret") << "31415";
  const std::string source = fs::path(__FILE__).string();
  expect_output("import os\nfor p in ('/etc/passwd', '/etc/shadow', '/home', '/root', '/var', '/sys', '/boot', '/run', '/old', '" +
                    folder.path().string() + "', '" + source +
                    "', os.path.expanduser('~root/.bashrc')):\n  if os.path.lexists(p): print(p)\n"
                    "os.symlink('" +
                    (folder.path() / "secret").string() +
                    "', 'link')\ntry: print(open('link').read())\nexcept OSError: print('no')\n"
                    "print(sorted(os.listdir('/')) == sorted(set(os.listdir('/')) & {'bin', 'dev', 'etc', 'lib', 'lib32', 'lib64', 'proc', 'sbin', "
                    "'tmp', 'usr'}))",
                "no\nTrue\n");
}

TEST_P(GuardedAttack, OtherProcessesAreNotThere) {
  ::setenv("HONE_TEST_SECRET", "31415", 1);
  expect_output(
      "import os\nif os.path.exists('/proc/1'):\n  print([p for p in os.listdir('/proc') if p.isdigit()], b'31415' in open('/proc/1/environ', "
      "'rb').read())\n"
      "else: print(\"['1'] False\")\nprint(os.getpid(), os.getppid())",
      "['1'] False\n1 0\n");
  const SandboxFinished done = run({.command = {"/bin/ls", "/"}, .proc = false});
  EXPECT_EQ(done.out.find("proc"), std::string::npos) << done.out;
}

TEST_P(GuardedAttack, OnlyTheScratchFolderCanBeWritten) {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  std::ofstream(folder.path() / "precious") << "kept";
  expect_output("for p in ('/x', '/usr/x', '/usr/bin/x', '/etc/x', '/dev/x', '/etc/ld.so.cache', '/usr/bin/python3', '" +
                    (folder.path() / "precious").string() +
                    "'):\n  try: open(p, 'w'); print(p)\n  except OSError: pass\n"
                    "open('/tmp/fine', 'w').write('x'); open('/dev/null', 'w').write('x'); print('done')",
                "done\n");
  EXPECT_EQ(fs::file_size(folder.path() / "precious"), 4U);
}

TEST_P(GuardedAttack, TheScratchFolderIsBoundedAsAWhole) {
  config.scratch_mb = 4;
  expect_output(
      "import os\nn = 0\ntry:\n  for i in range(64):\n    open(str(i), 'wb').write(bytes(1 << 20)); n += 1\nexcept OSError: pass\nprint(n <= 4)",
      "True\n");
  expect_output("n = 0\ntry:\n  for i in range(100000): open(str(i), 'w').close(); n += 1\nexcept OSError: pass\nprint(n <= 1024)", "True\n");
}

TEST_P(GuardedAttack, ReadableShowsAFolderMore) {
  const fs::path shown = source_folder();
  if (shown.string().starts_with("/tmp/")) GTEST_SKIP() << "the source tree is below /tmp";
  config.readable = {shown.string()};
  expect_output("import os\np = '" + shown.string() +
                    "'\nprint(os.path.exists(p + '/CMakeLists.txt'), os.listdir(os.path.dirname(p)) == [os.path.basename(p)])\n"
                    "try: open(p + '/x', 'w')\nexcept OSError: print('no')",
                "True True\nno\n");
}

INSTANTIATE_TEST_SUITE_P(Guards, GuardedAttack, ::testing::Values(true), [](const auto&) { return "All"; });

TEST(SandboxRefusal, AMissingGuardIsNamedUnlessItIsAllowed) {
  const GuardReport none = without_namespaces();
  const Sandbox strict({}, none);
  const SandboxOutcome outcome = strict.run({.command = {"/bin/true"}});
  const std::string& reason = std::get<SandboxRefused>(outcome).reason;
  for (const char* word : {"user", "pid", "mount", "net", "ipc", "taken away by the test", "allow_missing"})
    EXPECT_NE(reason.find(word), std::string::npos) << reason;
  EXPECT_EQ(reason.find("seccomp ("), std::string::npos) << reason;
  SandboxConfig some;
  some.allow_missing = {"user", "pid", "mount", "ipc"};
  EXPECT_NE(Sandbox(some, none).refusal().find("net ("), std::string::npos);
  EXPECT_EQ(Sandbox(some, none).refusal().find("mount ("), std::string::npos);
  SandboxConfig wrong;
  wrong.allow_missing = {"network"};
  EXPECT_THROW(Sandbox(wrong, none), Error);
}

TEST(SandboxRefusal, WhatCannotStartSaysWhy) {
  if (!Sandbox({}).refusal().empty()) GTEST_SKIP() << Sandbox({}).refusal();
  const auto reason = [](const SandboxJob& job) { return std::get<SandboxRefused>(Sandbox({}).run(job)).reason; };
  EXPECT_EQ(reason({.command = {"/usr/bin/no-such-program"}}), "execve /usr/bin/no-such-program: No such file or directory");
  EXPECT_NE(reason({.command = {"true"}}).find("absolute"), std::string::npos);
  EXPECT_NE(reason({.command = {"/bin/true"}, .files = {{"../x", ""}}}).find("../x"), std::string::npos);
  EXPECT_NE(reason({.command = {"/bin/true"}, .files = {{"big", std::string(size_t{80} << 20, 'x')}}}).find("write big: No space"),
            std::string::npos);
  SandboxConfig wrong;
  for (const char* path : {"relative", "/tmp/x", "/no/such/path", "/usr/../etc", "/"}) {
    wrong.readable = {path};
    EXPECT_THROW(Sandbox{wrong}, Error) << path;
  }
}

}  // namespace
}  // namespace hone::test
