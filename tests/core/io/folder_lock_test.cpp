// Only one process at a time may write a folder.
#include "core/io/folder_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "core/base/check.h"
#include "core/io/file.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone {
namespace {

TEST(FolderLock, TheSecondGetsAnErrorThatNamesTheHolder) {
  const test::TemporaryFolder folder;
  {
    const FolderLock first(folder.path());
    const std::string error = test::error_of([&] { FolderLock second(folder.path()); });
    EXPECT_NE(error.find(folder.path().string()), std::string::npos) << error;
    EXPECT_NE(error.find(concat("process ", ::getpid(), " on ", LockHolder::self().host)), std::string::npos) << error;
  }
  const FolderLock again(folder.path());
}

TEST(FolderLock, AProcessThatIsKilledLeavesTheFolderFree) {
  const test::TemporaryFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(folder.path());
    [[maybe_unused]] const ssize_t told = ::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_NE(test::error_of([&] { FolderLock lock(folder.path()); }).find(concat("process ", child)), std::string::npos);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const FolderLock lock(folder.path());
}

TEST(FolderLock, ProgramsThatTheHolderStartsDoNotInheritIt) {
  const test::TemporaryFolder folder;
  pid_t child = 0;
  {
    const FolderLock lock(folder.path());
    child = ::fork();
    if (child == 0) {
      ::execlp("sleep", "sleep", "60", nullptr);
      ::_exit(1);
    }
    for (int i = 0; i < 2000 && read_file(concat("/proc/", child, "/comm")) != "sleep\n"; ++i) ::usleep(1000);
  }
  EXPECT_EQ(test::error_of([&] { FolderLock lock(folder.path()); }), "no error");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(FolderLock, ANoteIsOfALivingProcessOnlyIfHostProcessAndStartAgree) {
  const LockHolder self = LockHolder::self();
  EXPECT_TRUE(self.is_alive());
  const LockHolder read = LockHolder::parse(self.text());
  EXPECT_EQ(read.host, self.host);
  EXPECT_TRUE(read.is_alive());
  EXPECT_FALSE((LockHolder{.host = "elsewhere", .pid = self.pid, .started = self.started}).is_alive());
  EXPECT_FALSE((LockHolder{.host = self.host, .pid = self.pid, .started = self.started + 1})
                   .is_alive());  // the process id was reused
  EXPECT_FALSE((LockHolder{.host = self.host, .pid = 0x7fffffff, .started = self.started}).is_alive());
  for (const char* text : {"", "{", "[]", R"({"host": 3})", "\xff"})
    EXPECT_TRUE(LockHolder::parse(text).host.empty()) << text;
}

TEST(FolderLock, ALockFileThatCannotBeMadeIsNamed) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "lock");
  EXPECT_NE(test::error_of([&] { FolderLock lock(folder.path()); }).find("lock: cannot make the lock"),
            std::string::npos);
}

TEST(CreateLockedFile, OneProcessWritesAndTheNextBegins) {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "x.tmp";
  const int first = create_locked_file(path);
  EXPECT_NE(test::error_of([&] { create_locked_file(path); }).find("x.tmp: another process is writing it"),
            std::string::npos);
  std::filesystem::rename(path, folder.path() / "x");  // finished: the next process writes another file
  const int second = create_locked_file(path);
  ::close(first);
  ::close(second);
}

}  // namespace
}  // namespace hone
