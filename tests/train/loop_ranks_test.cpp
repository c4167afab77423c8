// train_loop() on several ranks: equal state, one writer, and what happens if one or all of them fail.
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "core/io/file.h"
#include "tests/model/tiny_model.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"
#include "tests/support/support.h"
#include "tests/train/rig.h"
#include "train/loop.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

// A position in the data.
struct Loader : Stateful {
  int64_t at = 0;
  void save_state(StateSection& section) const override { section.values.set("at", at); }
  void load_state(const StateSection& section) override { at = section.values.at("at").as_int(); }
};

class LoopRanksTest : public ::testing::Test {
 protected:
  LoopRanksTest() : samples_(make_samples(std::array<size_t, 2>{6, 9})) {
    config_.steps = 5;
    config_.save_total_limit = 0;
    config_.eval_steps = 2;
  }

  using Body = std::function<void(const Ranks& ranks, int64_t step, Trainer& trainer, Loader& loader)>;
  // Trains on `count` ranks in the folder `name`; before(...) runs in each step before its update. Returns the error.
  std::string run(const std::string& name, int count, const Body& before = nullptr, double timeout = 20) {
    folder_ = root_.path() / name;
    make_folder(folder_);
    weights_.assign(static_cast<size_t>(count), {});
    return error_of([&] {
      on_ranks(
          count, [&](const Ranks& ranks, Context& context) { train(ranks, context, before); }, timeout);
    });
  }

  void train(const Ranks& ranks, Context& context, const Body& before) {
    MetricsLog log = ranks.is_first() ? MetricsLog(folder_) : MetricsLog();
    std::optional<Tokenizer> tokenizer;
    std::unique_ptr<Model> model;
    StageContext stage{.context = context,
                       .log = log,
                       .tokenizer = tokenizer,
                       .model = model,
                       .run_folder = folder_,
                       .checkpoints = folder_ / "checkpoints" / "stage",
                       .name = "stage",
                       .ranks = ranks};
    const fs::path newest = newest_checkpoint(ranks, stage.checkpoints);
    model = newest.empty() ? make_tiny(context, tiny_config("llama"), true)
                           : load_model(context, newest, {.gradients = true});
    stage.evaluate = [&](int64_t) { ranks.do_on_first("evaluation", [this] { ++evaluations_; }); };
    Trainer trainer(context, *model, {});
    Loader loader;
    const std::unique_ptr<Objective> objective = make_objective("sft");
    train_loop(stage, config_, trainer, {{"loader", &loader}}, [&](int64_t step, double rate) {
      const Rollback undo(loader);
      ++loader.at;
      if (before) before(ranks, step, trainer, loader);
      return trainer.step(pointers(samples_), *objective, rate);
    });
    weights_[static_cast<size_t>(ranks.rank())] = weights_of(*model);
  }
  fs::path checkpoint(int64_t step) const { return folder_ / "checkpoints" / "stage" / concat("step-", step); }
  bool saved(int64_t step) const { return fs::exists(checkpoint(step) / "manifest.json"); }

  TemporaryFolder root_;
  std::vector<Sample> samples_;
  LoopConfig config_;
  fs::path folder_;
  std::vector<std::vector<float>> weights_;  // by rank
  int evaluations_ = 0;
};

TEST_F(LoopRanksTest, EveryRankEndsLikeOneAndTheFirstWrites) {
  ASSERT_EQ(run("one", 1), "no error");
  const std::vector<float> alone = weights_[0];
  const fs::path one = checkpoint(5);
  ASSERT_EQ(run("three", 3), "no error");
  for (const std::vector<float>& each : weights_) EXPECT_EQ(each, alone);
  for (const char* file : {"model.safetensors", "trainer/trainer.safetensors", "trainer/loader.json"})
    EXPECT_TRUE(read_file(one / file) == read_file(checkpoint(5) / file)) << file;
  int64_t rows = 0;
  read_jsonl(folder_ / "metrics.jsonl", [&](const Json& row, int64_t) { EXPECT_EQ(row.at("step").as_int(), ++rows); });
  EXPECT_EQ(rows, 5);
  EXPECT_EQ(evaluations_, 4);  // two in each run
}

TEST_F(LoopRanksTest, AnErrorOfAllRanksIsSavedAndResumedAtAnotherCount) {
  ASSERT_EQ(run("whole", 1), "no error");
  const std::vector<float> uninterrupted = weights_[0];
  const auto fails = [](const Ranks&, int64_t step, Trainer&, Loader&) {
    if (step == 3) fail("the reward is lost");
  };
  const std::string end = run("stopped", 3, fails);
  EXPECT_TRUE(end.starts_with("the reward is lost; stopped after step 3 of stage stage, everything is saved")) << end;
  EXPECT_TRUE(saved(3));
  ASSERT_EQ(run("stopped", 2), "no error");
  for (const std::vector<float>& each : weights_) EXPECT_EQ(each, uninterrupted);
}

TEST_F(LoopRanksTest, AnErrorOfOneRankEndsTheRunWithItsNameAndNothingIsSaved) {
  config_.save_steps = 2;
  const std::string end = run("stopped", 3, [](const Ranks& ranks, int64_t step, Trainer&, Loader&) {
    if (step == 3 && ranks.rank() == 2) fail("its device is lost");
  });
  EXPECT_TRUE(end.starts_with("rank 2 (cpu): its device is lost; step 4 of stage stage had begun")) << end;
  EXPECT_NE(end.find("resume from the last checkpoint with: hone run --resume"), std::string::npos) << end;
  EXPECT_TRUE(saved(2));
  EXPECT_FALSE(saved(3));
  EXPECT_FALSE(saved(4));
}

TEST_F(LoopRanksTest, RanksWithOtherDataAreFound) {
  const std::string end = run("stopped", 3, [](const Ranks& ranks, int64_t step, Trainer&, Loader& loader) {
    if (step == 2 && ranks.rank() == 1) ++loader.at;
  });
  EXPECT_EQ(end,
            "rank 1 (cpu) disagrees with rank 0 at step 3: the position in the data is {\"at\": 4}, rank 0 has "
            "{\"at\": 3}");
}

TEST_F(LoopRanksTest, RanksWithOtherWeightsAreFound) {
  const std::string end = run("stopped", 2, [&](const Ranks& ranks, int64_t step, Trainer& trainer, Loader&) {
    if (step == 2 && ranks.rank() == 1) trainer.step(pointers(samples_), *make_objective("sft"), 1e-2);
  });
  EXPECT_TRUE(end.starts_with("rank 1 (cpu) disagrees with rank 0 at step 3: the loss is ")) << end;
}

TEST_F(LoopRanksTest, ARankThatHangsInAStepIsNamed) {
  const std::string end = run(
      "stopped", 2,
      [](const Ranks& ranks, int64_t step, Trainer&, Loader&) {
        if (step == 1 && ranks.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
      },
      1);
  EXPECT_EQ(end,
            "rank 1 (cpu) has made no progress for 1 s (parallel.timeout) at 'work of step 2'; rank 0 (cpu) waits for "
            "it at 'step 2'");
}

TEST_F(LoopRanksTest, ADiskThatIsFullEndsAllRanksWithOneMessage) {
  const std::string end = run("stopped", 2, [&](const Ranks& ranks, int64_t step, Trainer&, Loader&) {
    if (step == 1 && ranks.is_first()) write_file_atomic(folder_ / "checkpoints", "a file where the folder should be");
  });
  EXPECT_EQ(end, concat((folder_ / "checkpoints" / "stage").string(), ": cannot make the folder: Not a directory"));
}

}  // namespace
}  // namespace hone::test
