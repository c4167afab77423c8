// Programs that try to access the network, the parent, the kernel, files, privileges and other processes.
#include <arpa/inet.h>
#include <sys/socket.h>

#include "tests/rewards/sandbox/sandbox_run.h"

namespace hone::test {
namespace {

class SandboxReach : public SandboxRun {};

TEST_P(SandboxReach, ThereIsNoNetwork) {
  const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(server, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(server, 1), 0);
  ASSERT_EQ(::getsockname(server, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string code = concat("import socket\nfor host, port in (('127.0.0.1', ", ntohs(address.sin_port),
                                  "), ('1.1.1.1', 53)):\n  try: socket.create_connection((host, port), 2); "
                                  "print('connected')\n  except OSError: print('no')");
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

TEST_P(SandboxReach, TheParentIsOutOfReach) {
  const std::string pid = std::to_string(::getpid());
  // ptrace(PTRACE_SEIZE), process_vm_readv, kill, tgkill, prlimit, pidfd_open: each call is made and must fail.
  expect_output("import ctypes, os, resource\nlibc = ctypes.CDLL(None, use_errno=True)\nfor pid in (os.getppid() or " +
                    pid + ", " + pid +
                    "):\n  print(libc.ptrace(0x4206, pid, 0, 0), libc.syscall(310, pid, 0, 0, 0, 0, 0), libc.kill(pid, "
                    "0), libc.syscall(234, pid, pid, 0), "
                    "libc.syscall(302, pid, 7, None, ctypes.create_string_buffer(16)), libc.syscall(434, pid, 0))\n"
                    "print(libc.kill(-1, 0))",
                "-1 -1 -1 -1 -1 -1\n-1 -1 -1 -1 -1 -1\n-1\n");
}

TEST_P(SandboxReach, DangerousSystemCallsAreNotThere) {
  // unshare, mount, setns, bpf, perf_event_open, keyctl, io_uring_setup, memfd_create, userfaultfd, socket, shmget,
  // open_by_handle_at, chroot, init_module, clone3, clone(CLONE_NEWUSER)
  expect_output(
      "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nfor n in (272, 165, 308, 321, 298, 250, 425, 319, 323, "
      "41, 29, 304, 161, 175, 435):\n"
      "  r = libc.syscall(n, 0, 0, 0, 0, 0, 0)\n  if r != -1 or ctypes.get_errno() != 38: print(n, r, "
      "ctypes.get_errno())\n"
      "print(libc.syscall(56, 0x10000000, 0, 0, 0, 0), ctypes.get_errno())",
      "-1 38\n");
}

TEST_P(SandboxReach, NoPrivilegeCanBeHadOrGained) {
  expect_output("import os\ntry: os.setuid(0); print('root')\nexcept OSError: print('no')", "no\n");
  if (all_guards())
    EXPECT_EQ(run({.command = {"/bin/sh", "-c", "mkdir m; umount /dev/null || mount -t tmpfs x m || echo no"}}).out,
              "no\n");
  else
    EXPECT_NE(run({.command = {"/usr/bin/id", "-u"}}).out, "0\n");
}

INSTANTIATE_TEST_SUITE_P(Guards, SandboxReach, ::testing::Bool(), guards_of);

// Tests that need every guard.
class SandboxWalls : public SandboxRun {
 protected:
  bool all_guards() const override { return true; }
};

TEST_P(SandboxWalls, FilesOfTheHostAreNotThere) {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  std::ofstream(folder.path() / "secret") << "31415";
  const std::string source = fs::path(__FILE__).string();
  expect_output(
      "import os\nfor p in ('/etc/passwd', '/etc/shadow', '/home', '/root', '/var', '/sys', '/boot', '/run', '/old', "
      "'" +
          folder.path().string() + "', '" + source +
          "', os.path.expanduser('~root/.bashrc')):\n  if os.path.lexists(p): print(p)\n"
          "os.symlink('" +
          (folder.path() / "secret").string() +
          "', 'link')\ntry: print(open('link').read())\nexcept OSError: print('no')\n"
          "print(sorted(os.listdir('/')) == sorted(set(os.listdir('/')) & {'bin', 'dev', 'etc', 'lib', 'lib32', "
          "'lib64', 'proc', 'sbin', "
          "'tmp', 'usr'}))",
      "no\nTrue\n");
}

TEST_P(SandboxWalls, OtherProcessesAreNotThere) {
  ::setenv("HONE_TEST_SECRET", "31415", 1);
  expect_output(
      "import os\nif os.path.exists('/proc/1'):\n  print([p for p in os.listdir('/proc') if p.isdigit()], b'31415' in "
      "open('/proc/1/environ', "
      "'rb').read())\n"
      "else: print(\"['1'] False\")\nprint(os.getpid(), os.getppid())",
      "['1'] False\n1 0\n");
  const SandboxFinished done = run({.command = {"/bin/ls", "/"}, .proc = false});
  EXPECT_EQ(done.out.find("proc"), std::string::npos) << done.out;
}

TEST_P(SandboxWalls, OnlyTheScratchFolderCanBeWritten) {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  std::ofstream(folder.path() / "precious") << "kept";
  expect_output(
      "import os\nfor p in ('/x', '/usr/x', '/usr/bin/x', '/etc/x', '/dev/x', '/etc/ld.so.cache', '/usr/bin/python3', "
      "'" +
          (folder.path() / "precious").string() +
          "'):\n  try: os.open(p, os.O_WRONLY | os.O_CREAT); print(p)\n  except OSError: pass\n"
          "open('/tmp/fine', 'w').write('x'); open('/dev/null', 'w').write('x'); print('done')",
      "done\n");
}

TEST_P(SandboxWalls, TheScratchFolderIsBoundedAsAWhole) {
  config.scratch_mb = 4;
  expect_output(
      "import os\nn = 0\ntry:\n  for i in range(64):\n    open(str(i), 'wb').write(bytes(1 << 20)); n += 1\nexcept "
      "OSError: pass\nprint(n <= 4)",
      "True\n");
  expect_output(
      "n = 0\ntry:\n  for i in range(100000): open(str(i), 'w').close(); n += 1\nexcept OSError: pass\nprint(n <= "
      "1024)",
      "True\n");
}

TEST_P(SandboxWalls, ReadableShowsAFolderMore) {
  const fs::path shown = source_folder();
  if (shown.string().starts_with("/tmp/")) GTEST_SKIP() << "the source tree is below /tmp";
  config.readable = {shown.string()};
  expect_output(
      "import os\np = '" + shown.string() +
          "'\nprint(os.path.exists(p + '/CMakeLists.txt'), os.listdir(os.path.dirname(p)) == [os.path.basename(p)])\n"
          "try: open(p + '/x', 'w')\nexcept OSError: print('no')",
      "True True\nno\n");
}

INSTANTIATE_TEST_SUITE_P(Guards, SandboxWalls, ::testing::Values(true), guards_of);

}  // namespace
}  // namespace hone::test
