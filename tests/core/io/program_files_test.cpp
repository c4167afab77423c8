#include "core/io/program_files.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/process.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

TEST(ProgramFiles, AFileOfTheWorkingFolderComesFirst) {
  const fs::path before = fs::current_path();
  const TemporaryFolder folder;
  fs::create_directory(folder.path() / "configs");
  std::ofstream(folder.path() / "configs" / "quickstart.toml") << "";
  fs::current_path(folder.path());
  const std::string here = find_program_file("configs/quickstart.toml"), none = find_program_file("configs/none.toml"),
                    absolute = find_program_file("/nowhere/x.toml");
  fs::current_path(before);
  EXPECT_EQ(here, "configs/quickstart.toml");
  EXPECT_EQ(none, "configs/none.toml");
  EXPECT_EQ(absolute, "/nowhere/x.toml");
}

// The layout of a package: PREFIX/bin/hone and PREFIX/share/hone/configs.
TEST(ProgramFiles, AnInstalledProgramFindsItsRecipesAndTasks) {
  const TemporaryFolder folder;
  fs::create_directories(folder.path() / "bin");
  fs::create_directories(folder.path() / "share" / "hone");
  fs::copy_file(hone_binary(), folder.path() / "bin" / "hone");
  fs::copy(source_folder() / "configs", folder.path() / "share" / "hone" / "configs", fs::copy_options::recursive);
  // $0 is the copy, $1 the build's program.
  const std::vector<std::string> elsewhere{"sh", "-c", "cd / && shift && exec \"$0\" \"$@\"",
                                           (folder.path() / "bin" / "hone").string()};
  const Finished tasks = Process({"list", "tasks"}, {}, "", elsewhere).wait();
  EXPECT_NE(tasks.out.find("arithmetic\n"), std::string::npos) << tasks.out << tasks.err;
  const Finished plan = Process({"plan", "configs/quickstart.toml"}, {}, "", elsewhere).wait();
  EXPECT_EQ(plan.code, 0) << plan.err;
}

}  // namespace
}  // namespace hone::test
