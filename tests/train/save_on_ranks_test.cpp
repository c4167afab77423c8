#include "train/ranks/save_on_ranks.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "core/device/tensor.h"
#include "core/io/file.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

// A rank's part of a state.
struct Part : Stateful {
  float value = 0;
  std::string name;
  bool fails = false;
  void save_state(StateSection& section) const override {
    HONE_CHECK(!fails, "its memory is lost");
    section.values.set("steps", 4);
    section.tensors.push_back({name, host_view(std::span(&value, 1))});
  }
  void load_state(const StateSection&) override {}
};

std::set<std::string> files_in(const fs::path& folder) {
  std::set<std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) out.insert(entry.path().lexically_relative(folder));
  return out;
}

// Saves on `count` ranks. failing: the rank that cannot write its part; -1: none.
std::string save(const fs::path& root, int count, int failing = -1, bool fill_fails = false) {
  return error_of([&] {
    on_ranks(count, [&](const Ranks& ranks, Context&) {
      Part trainer, loader;
      trainer.name = concat("m[", ranks.rank(), ":", ranks.rank() + 1, "]");
      trainer.fails = ranks.rank() == failing;
      loader.name = "order";
      const auto fill = [&](const fs::path& folder) {
        EXPECT_TRUE(ranks.is_first());
        HONE_CHECK(!fill_fails, "no space is left");
        write_file_atomic(folder / "config.json", "{}");
      };
      save_on_ranks(ranks, CheckpointWriter(root, 3), 0, fill, {{"trainer", &trainer}, {"loader", &loader}},
                    {"trainer"});
    });
  });
}

TEST(SaveOnRanks, EachWritesItsPartAndTheFirstAllElse) {
  const TemporaryFolder root;
  ASSERT_EQ(save(root.path(), 3), "no error");
  EXPECT_EQ(files_in(root.path() / "step-3"),
            (std::set<std::string>{"config.json", "manifest.json", "trainer/loader.json", "trainer/loader.safetensors",
                                   "trainer/trainer.json", "trainer/trainer-00001-of-00003.safetensors",
                                   "trainer/trainer-00002-of-00003.safetensors",
                                   "trainer/trainer-00003-of-00003.safetensors"}));
  EXPECT_EQ(newest_checkpoint(root.path()), root.path() / "step-3");
}

TEST(SaveOnRanks, OneRankWritesOneFile) {
  const TemporaryFolder root;
  ASSERT_EQ(save(root.path(), 1), "no error");
  EXPECT_TRUE(fs::exists(root.path() / "step-3/trainer/trainer.safetensors"));
}

TEST(SaveOnRanks, ARankThatCannotWriteIsNamedAndNothingIsLeft) {
  const TemporaryFolder root;
  const std::string start = concat("checkpoint ", (root.path() / "step-3").string(),
                                   " was not written (earlier checkpoints are unchanged): ");
  EXPECT_EQ(save(root.path(), 3, 2), start + "rank 2 (cpu): its memory is lost");
  EXPECT_EQ(save(root.path(), 3, -1, true), start + "rank 0 (cpu): no space is left");
  EXPECT_EQ(save(root.path(), 1, 0), start + "its memory is lost");
  EXPECT_TRUE(files_in(root.path()).empty());
}

}  // namespace
}  // namespace hone::test
