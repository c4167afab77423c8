// Programs that exceed their limits: time, memory, processes, output, files.
#include "tests/rewards/sandbox/sandbox_run.h"

namespace hone::test {
namespace {

class SandboxLimits : public SandboxRun {};

TEST_P(SandboxLimits, AnEndlessLoopRunsOutOfProcessorTime) {
  config.cpu_seconds = 1;
  const SandboxFinished done = run_python("import time\nend = time.time() + 30\nwhile time.time() < end: pass");
  EXPECT_EQ(done.how, How::cpu_time) << describe(done);
  EXPECT_GE(done.cpu_seconds, 0.5);
  EXPECT_LT(done.cpu_seconds, 3);
}

TEST_P(SandboxLimits, ASleepEndsWithTheWallClock) {
  config.wall_seconds = 0.5;
  const SandboxFinished done = run({.command = {"/bin/sleep", marker()}});
  EXPECT_EQ(done.how, How::wall_clock) << describe(done);
  EXPECT_GE(done.seconds, 0.5);
  EXPECT_LT(done.seconds, 10);
}

TEST_P(SandboxLimits, IgnoredSignalsDoNotHelp) {
  config.wall_seconds = 0.5;
  const SandboxFinished done = run_python(
      "import signal, time\nfor s in range(1, 65):\n  try: signal.signal(s, signal.SIG_IGN)\n  except (OSError, "
      "ValueError): pass\n"
      "print('deaf', flush=True)\ntime.sleep(20)");
  EXPECT_EQ(done.how, How::wall_clock) << describe(done);
  EXPECT_EQ(done.out, "deaf\n");
}

TEST_P(SandboxLimits, TenGigabytesAreRefused) {
  // Harmless if the limit fails: the pages are never touched.
  expect_output("try: bytes(10**10)\nexcept MemoryError: print('no')", "no\n");
  expect_output("import mmap\ntry: mmap.mmap(-1, 10**10)\nexcept OSError: print('no')", "no\n");
}

TEST_P(SandboxLimits, MemoryOfAllProcessesIsAddedUp) {
  config.memory_mb = 200;
  const SandboxFinished done = run_python(
      "import os, time\nfor i in range(6):\n  if os.fork() == 0:\n    b = bytearray(80 << 20)\n    time.sleep(10)\n    "
      "os._exit(0)\ntime.sleep(10)");
  EXPECT_EQ(done.how, How::memory) << describe(done);
  EXPECT_GT(done.peak_memory, int64_t{200} << 20);
  EXPECT_LT(done.seconds, 15);
}

TEST_P(SandboxLimits, AForkBombStaysSmallAndIsGoneAfterwards) {
  config.wall_seconds = 2;
  config.processes = 20;
  const std::string word = "bomb" + marker();
  // Each fork leaves both sides one fewer to make, and each process ends by its alarm. Without a limit there would be
  // 256 processes for 4 seconds.
  const std::string code =
      "import os, signal, time\n"
      "def fork():\n  try: child = os.fork()\n  except OSError: return None\n  if child == 0: signal.alarm(4)\n  "
      "return child\n"
      "n = 0\nwhile n < 40:\n  child = fork()\n  if child == 0: os._exit(0)\n  if child is None: break\n  n += 1\n"
      "print(n < 20, flush=True)\nif n >= 20: os._exit(1)\nfor i in range(n): os.wait()\n"
      "left = 8\nend = time.time() + 4\nwhile left and time.time() < end:\n  if fork() is not None: left -= "
      "1\ntime.sleep(4)";
  const SandboxFinished done = run({.command = {python, "-B", "-c", code, word}});
  EXPECT_EQ(done.out, "True\n") << describe(done) << done.err;
  EXPECT_TRUE(soon_none(word));
}

TEST_P(SandboxLimits, ThreadsCountAsProcesses) {
  config.processes = 20;
  expect_output(
      "import threading, time, os\nn = 0\ntry:\n  while n < 100:\n    threading.Thread(target=time.sleep, args=(10,), "
      "daemon=True).start(); n += 1\n"
      "except RuntimeError: pass\nprint(n < 20, flush=True)\nos._exit(0)",
      "True\n");
}

TEST_P(SandboxLimits, AFloodOfOutputIsReadAndDropped) {
  config.wall_seconds = 0.5;
  config.output_kb = 64;
  const SandboxFinished done = run({.command = {"/bin/sh", "-c", "head -c 20G /dev/zero >&2 & head -c 20G /dev/zero"}});
  EXPECT_EQ(done.how, How::wall_clock) << describe(done);
  EXPECT_TRUE(done.truncated);
  EXPECT_EQ(done.out.size(), 64U * 1024);
  EXPECT_EQ(done.err.size(), 64U * 1024);
}

TEST_P(SandboxLimits, FilesAndDescriptorsAreBounded) {
  config.scratch_mb = 4;
  config.open_files = 32;
  expect_output(
      "try:\n  with open('big', 'wb') as f:\n    for i in range(64): f.write(bytes(1 << 20)); f.flush()\nexcept "
      "OSError: print('no')\n"
      "import os; print(os.path.getsize('big') <= 4 << 20)",
      "no\nTrue\n");
  expect_output(
      "kept = []\ntry:\n  for i in range(100): kept.append(open('/dev/null'))\nexcept OSError: print(len(kept) < 32)",
      "True\n");
}

INSTANTIATE_TEST_SUITE_P(Guards, SandboxLimits, ::testing::Bool(), guards_of);

}  // namespace
}  // namespace hone::test
