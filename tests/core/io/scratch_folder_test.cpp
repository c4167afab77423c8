#include "core/io/scratch_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>

#include "tests/support/support.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

class ScratchFolders : public ::testing::Test {
 protected:
  void SetUp() override {
    const ScratchFolder first;  // the first object of a process removes stale folders
    ::setenv("TMPDIR", temporary.path().c_str(), 1);
  }
  void TearDown() override { ::unsetenv("TMPDIR"); }
  // Starts a process that makes a folder with files and is killed.
  static void make_and_die() {
    const pid_t child = ::fork();
    if (child == 0) {
      const ScratchFolder folder;
      fs::create_directories(fs::path(folder.path()) / "a/b");
      std::ofstream(fs::path(folder.path()) / "a/file") << "x";
      ::kill(::getpid(), SIGKILL);
    }
    ::waitpid(child, nullptr, 0);
  }
  int64_t count() const { return std::distance(fs::directory_iterator(temporary.path()), fs::directory_iterator()); }
  const TemporaryFolder temporary;
};

TEST_F(ScratchFolders, AreGoneWithTheObject) {
  {
    const ScratchFolder one, two;
    EXPECT_NE(one.path(), two.path());
    EXPECT_EQ(fs::status(one.path()).permissions(), fs::perms::owner_all);
    EXPECT_EQ(count(), 2);
  }
  EXPECT_EQ(count(), 0);
}

TEST_F(ScratchFolders, ThoseOfKilledProcessesAreRemovedAndThoseOfLivingOnesStay) {
  const ScratchFolder mine;
  std::ofstream(fs::path(mine.path()) / "kept") << "x";
  make_and_die();
  make_and_die();
  EXPECT_EQ(count(), 3);
  remove_stale_scratch_folders();
  EXPECT_EQ(count(), 1);
  EXPECT_TRUE(fs::exists(fs::path(mine.path()) / "kept"));
}

TEST_F(ScratchFolders, LinksFilesAndOtherFoldersStay) {
  const TemporaryFolder elsewhere;
  std::ofstream(elsewhere.path() / "precious") << "x";
  fs::create_directory_symlink(elsewhere.path(), temporary.path() / "hone-scratch-abcdef");
  std::ofstream(temporary.path() / "hone-scratch-ghijkl") << "x";
  fs::create_directory(temporary.path() / "other");
  make_and_die();
  for (const auto& entry : fs::directory_iterator(temporary.path()))  // in the stale folder
    if (entry.is_directory() && !entry.is_symlink() && entry.path().filename() != "other")
      fs::create_symlink(elsewhere.path(), entry.path() / "link");
  EXPECT_EQ(count(), 5);
  remove_stale_scratch_folders();
  EXPECT_EQ(count(), 4);  // the link, the file, the other folder, and `elsewhere`
  EXPECT_TRUE(fs::exists(elsewhere.path() / "precious"));
  if (::geteuid() != 0) return;
  const fs::path foreign = temporary.path() / "hone-scratch-mnopqr";
  fs::create_directory(foreign);
  ASSERT_EQ(::chown(foreign.c_str(), 12345, 12345), 0);
  remove_stale_scratch_folders();
  EXPECT_TRUE(fs::exists(foreign));
}

TEST_F(ScratchFolders, AnotherOwnerCannotLockItsFolder) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives a folder away";
  fs::permissions(temporary.path(), fs::perms::all);
  const ScratchFolder folder(12345, 12345);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(12345) != 0 || ::setuid(12345) != 0) ::_exit(2);
    const bool made = std::ofstream(folder.path() + "/file").good();
    const int outer = ::open(fs::path(folder.path()).parent_path().c_str(), O_RDONLY | O_DIRECTORY);
    ::_exit(made && outer < 0 ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace hone::test
