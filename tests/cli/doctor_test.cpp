// hone doctor on this machine, whatever it has.
#include <set>

#include "core/device/device.h"
#include "tests/cli/command_case.h"

namespace hone::test {
namespace {

class DoctorTest : public CommandCase {};

TEST_F(DoctorTest, EveryLineSaysWhatIsThereOrWhatToDo) {
  const Finished done = run_hone({"doctor"});
  ASSERT_EQ(done.code, 0) << done.err;
  for (const char* line : {"ok   hone ", "ok   processor ", "ok   threads ", "ok   cpu "})
    EXPECT_NE(done.out.find(line), std::string::npos) << line << " in: " << done.out;
  EXPECT_NE(done.out.find("cuda  "), std::string::npos) << done.out;
}

TEST_F(DoctorTest, JsonHasTheSameChecks) {
  const Finished done = run_hone({"doctor", "--json"}, {"HONE_DATA=/data"});
  ASSERT_EQ(done.code, 0) << done.err;
  std::set<std::string> good, bad;
  for (const Json& row : rows(done.out)) {
    (row.at("ok").as_bool() ? good : bad).insert(row.at("check").as_string());
    EXPECT_FALSE(row.at("found").as_string().empty());
  }
  for (const char* name : {"hone", "processor", "threads", "cpu", "HONE_DATA"})
    EXPECT_TRUE(good.contains(name)) << name;
  EXPECT_TRUE(good.contains("cuda") || bad.contains("cuda"));
}

// As hone list ops does, with or without a GPU.
TEST_F(DoctorTest, AnUnknownChoiceOfBodiesIsRefused) {
  const Finished done = run_hone({"doctor"}, {"HONE_CUDA_BODIES=hopper"});
  EXPECT_EQ(done.code, 1);
  EXPECT_EQ(done.out, "");
  for (const char* word : {"HONE_CUDA_BODIES", "\"hopper\"", "\"auto\"", "\"portable\""})
    EXPECT_NE(done.err.find(word), std::string::npos) << done.err;
  EXPECT_EQ(run_hone({"doctor"}, {"HONE_CUDA_BODIES=portable"}).code, 0);
}

// Whether the build or the machine lacks it, the error comes before a run folder is made.
TEST_F(DoctorTest, ARunOnAGpuThatIsNotThereEndsBeforeItStarts) {
  const std::string runs = (folder.path() / "runs").string(), recipe = source_folder() / "configs/quickstart.toml";
  for (const char* name : {"cuda", "cuda:99"})
    for (const char* ranks : {"0", "1", "2"}) {
      const Finished done =
          run_hone({"run", recipe, concat("device=", name), concat("parallel.ranks=", ranks), "runs=" + runs},
                   {"CUDA_VISIBLE_DEVICES="});
      EXPECT_EQ(done.code, 1) << done.err;
      EXPECT_TRUE(done.err.starts_with("hone: cuda: ") ||
                  done.err.find(concat("device '", name, "': this build of hone has no CUDA: install the package ")) !=
                      std::string::npos)
          << done.err;
      EXPECT_FALSE(std::filesystem::exists(runs));
    }
}

}  // namespace
}  // namespace hone::test
