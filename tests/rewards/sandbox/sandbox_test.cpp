// A run as its caller sees it, and what remains after it.
#include "rewards/sandbox/sandbox.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "core/io/scratch_folder.h"
#include "tests/rewards/sandbox/sandbox_run.h"

namespace hone::test {
namespace {

class SandboxRuns : public SandboxRun {};

TEST_P(SandboxRuns, AnHonestProgramHasItsFilesItsInputAndACleanEnvironment) {
  ::setenv("HONE_TEST_SECRET", "31415", 1);
  const SandboxFinished done =
      run({.command = {"/bin/sh", "-c", "cat data; cat; echo oops >&2; touch made && ls; env; exit 3"},
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

TEST_P(SandboxRuns, NoOrphanSurvives) {
  const std::string word = marker();
  const SandboxFinished done = run(
      {.command = {
           python, "-B", "-c",
           "import os, sys\nif os.fork() == 0:\n  try: os.setsid()\n  except OSError: pass\n  if os.fork() == 0:\n    "
           "os.execv('/bin/sleep', ['sleep', sys.argv[1]])\n  os._exit(0)\nos.wait()\nprint('left')",
           word}});
  EXPECT_EQ(done.how, How::exited) << describe(done);
  EXPECT_EQ(done.out, "left\n") << done.err;
  EXPECT_TRUE(all_guards() ? processes_named(word) == 0 : soon_none(word));
}

TEST_P(SandboxRuns, ZombiesAreNoTrouble) {
  expect_output(
      "import os, time\nfor i in range(20):\n  if os.fork() == 0: os._exit(0)\ntime.sleep(0.1)\nprint('done')",
      "done\n");
}

TEST_P(SandboxRuns, NothingOfTheParentsStaysOpen) {
  const int leaked = ::open("/etc/hostname", O_RDONLY);  // without close-on-exec
  expect_output(
      "import os\nopen_ones = []\nfor d in range(3, 2000):\n  try: os.fstat(d); open_ones.append(d)\n  except OSError: "
      "pass\nprint(open_ones)",
      "[]\n");
  ::close(leaked);
  // The program may close its own descriptors.
  const SandboxFinished done = run_python("import os\nfor d in (0, 1, 2): os.close(d)\nos._exit(5)");
  EXPECT_EQ(done.code, 5);
  expect_output("import os\ntry: os.write(0, b'x'); print('written')\nexcept OSError: print('no')", "no\n");
}

TEST_P(SandboxRuns, HundredsOfFoldersDeepAreClearedAway) {
  expect_output(
      "import os\nfor i in range(300):\n  os.mkdir('d' * 200); os.chdir('d' * 200)\nos.chmod('.', 0)\nprint('deep')",
      "deep\n");
  EXPECT_TRUE(fs::is_empty(temporary.path()));
}

TEST_P(SandboxRuns, LinksOutOfTheScratchFolderAreNotFollowedWhenItIsCleared) {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  std::ofstream(folder.path() / "precious") << "kept";
  const SandboxFinished done =
      run({.command = {"/bin/sh", "-c", "ln -s \"$0\" link; ln -s \"$0/precious\" file; ls", folder.path().string()}});
  EXPECT_EQ(done.out, "file\nlink\n") << done.err;
  EXPECT_TRUE(fs::exists(folder.path() / "precious"));
}

TEST_P(SandboxRuns, ADeadParentTakesItsProgramsAlong) {
  const std::string word = marker();
  available_guards();
  const pid_t parent = ::fork();
  if (parent == 0) {
    run({.command = {"/bin/sleep", word}});
    ::_exit(0);
  }
  for (int i = 0; i < 500 && processes_named(word) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(processes_named(word), 1);
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  EXPECT_TRUE(soon_none(word));
}

TEST_P(SandboxRuns, ManyAtOnceKeepApartAndLeaveNothingOpen) {
  const auto open_descriptors = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  run({.command = {"/bin/true"}});
  const auto before = open_descriptors();
  std::vector<std::thread> threads;
  std::array<std::array<std::string, 12>, 4> outs;
  for (size_t t = 0; t < outs.size(); ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < outs[t].size(); ++i)
        outs[t][i] =
            run({.command = {"/bin/sh", "-c", "cat > f; cat f; echo $0", concat(t)}, .input = concat(i, " ")}).out;
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < outs.size(); ++t)
    for (size_t i = 0; i < outs[t].size(); ++i) EXPECT_EQ(outs[t][i], concat(i, " ", t, "\n"));
  EXPECT_EQ(open_descriptors(), before);
}

TEST_P(SandboxRuns, WhatAKilledParentLeftIsRemoved) {
  const auto left = [&] { return std::distance(fs::directory_iterator(temporary.path()), fs::directory_iterator()); };
  const std::string word = marker();
  run({.command = {"/bin/true"}});
  const pid_t parent = ::fork();
  if (parent == 0) {
    run({.command = {"/bin/sh", "-c", "touch file; exec sleep $0", word}});
    ::_exit(0);
  }
  EXPECT_TRUE(soon([&] { return processes_named(word) == 1; }));
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  EXPECT_TRUE(soon_none(word));
  EXPECT_EQ(left(), all_guards() ? 0 : 1);
  remove_stale_scratch_folders();
  EXPECT_EQ(left(), 0);
}

INSTANTIATE_TEST_SUITE_P(Guards, SandboxRuns, ::testing::Bool(), guards_of);

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
  EXPECT_EQ(reason({.command = {"/usr/bin/no-such-program"}}),
            "execve /usr/bin/no-such-program: No such file or directory");
  EXPECT_NE(reason({.command = {"true"}}).find("absolute"), std::string::npos);
  EXPECT_NE(reason({.command = {"/bin/true"}, .files = {{"../x", ""}}}).find("../x"), std::string::npos);
  EXPECT_NE(reason({.command = {"/bin/true"}, .files = {{"big", std::string(size_t{80} << 20, 'x')}}})
                .find("write big: No space"),
            std::string::npos);
  SandboxConfig wrong;
  for (const char* path : {"relative", "/tmp/x", "/no/such/path", "/usr/../etc", "/"}) {
    wrong.readable = {path};
    EXPECT_THROW(Sandbox{wrong}, Error) << path;
  }
}

}  // namespace
}  // namespace hone::test
