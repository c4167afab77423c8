#include "core/base/shared_library.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "core/base/check.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

constexpr const char* kVariable = "HONE_TEST_LIBRARIES";

std::string error_of(const LibraryRequest& request) {
  try {
    SharedLibrary library(request);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SharedLibrary, FindsAFunctionOfTheFirstFileThatLoads) {
  const SharedLibrary library({.name = "math", .files = {"libhone_none.so.9", "libm.so.6"}});
  double (*cosine)(double) = nullptr;
  library.find(cosine, "cos");
  EXPECT_EQ(cosine(0), 1.0);
  EXPECT_NE(library.path().find("/libm"), std::string::npos) << library.path();
}

TEST(SharedLibrary, AMissingLibraryIsNamedWithTheFoldersAndTheAdvice) {
  const std::string error = error_of({.name = "cuFoo 13",
                                      .files = {"libcuFoo.so.13", "libcuFoo.so.12"},
                                      .folders = {"/usr/local/foo/lib64"},
                                      .advice = ": install libcufoo"});
  EXPECT_EQ(error,
            "cuFoo 13 is missing: libcuFoo.so.13 is in none of the system's library folders and none of "
            "/usr/local/foo/lib64: install libcufoo");
}

TEST(SharedLibrary, AFileThatDoesNotLoadIsNamedWithTheReason) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "libcuFoo.so.13") << "this is no library";
  const std::string error = error_of({.name = "cuFoo 13",
                                      .files = {"libcuFoo.so.13"},
                                      .folders = {folder.path().string()},
                                      .advice = ": install libcufoo"});
  EXPECT_NE(error.find("cuFoo 13 cannot be loaded: "), std::string::npos) << error;
  EXPECT_NE(error.find((folder.path() / "libcuFoo.so.13").string()), std::string::npos) << error;
  EXPECT_NE(error.find(": install libcufoo"), std::string::npos) << error;
}

TEST(SharedLibrary, FoldersOfTheVariableComeFirst) {
  const TemporaryFolder folder;
  const SharedLibrary system({.name = "math", .files = {"libm.so.6"}});
  std::filesystem::copy_file(system.path(), folder.path() / "libm_copy.so.1");
  ASSERT_EQ(::setenv(kVariable, ("/nowhere:" + folder.path().string()).c_str(), 1), 0);
  const SharedLibrary copy({.name = "copy", .files = {"libm_copy.so.1"}, .folders_variable = kVariable});
  EXPECT_EQ(copy.path(), (folder.path() / "libm_copy.so.1").string());
  ::unsetenv(kVariable);
  EXPECT_NE(error_of({.name = "copy", .files = {"libm_copy2.so.1"}, .folders_variable = kVariable}), "");
}

TEST(SharedLibrary, AFunctionThatIsNotExportedIsAnErrorWithTheFile) {
  const SharedLibrary library({.name = "math 9", .files = {"libm.so.6"}});
  void (*function)() = nullptr;
  try {
    library.find(function, "hone_no_such_function");
    FAIL() << "found";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(library.path() + ": it has no function hone_no_such_function"), std::string::npos) << text;
    EXPECT_NE(text.find("math 9"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace hone::test
