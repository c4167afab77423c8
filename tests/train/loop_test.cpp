#include "train/loop.h"

#include <gtest/gtest.h>

#include "core/io/file.h"
#include "tests/model/tiny_model.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"
#include "tests/train/rig.h"
#include "tests/train/stage_context.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

// A position in the data: the state that a stage must restore if a step fails.
struct Place : Stateful {
  int64_t at = 0;
  void save_state(StateSection& section) const override { section.values.set("at", at); }
  void load_state(const StateSection& section) override { at = section.values.at("at").as_int(); }
};

class TrainLoopTest : public ::testing::Test {
 protected:
  TrainLoopTest() : device_(cpu_device()), context_(*device_), samples_(make_samples(std::array<size_t, 2>{6, 9})) {
    config_.steps = 6;
    config_.save_total_limit = 0;
  }

  // Runs in `folder` to the end, or until fail_at(step, trainer) throws. Returns the message of the error.
  std::string run(const std::string& name,
                  const std::function<void(int64_t step, Trainer& trainer)>& fail_at = nullptr) {
    folder_ = root_.path() / name;
    make_folder(folder_);
    StageFixture fixture(context_, folder_);
    StageContext& stage = *fixture.stage;
    const fs::path newest = newest_checkpoint(stage.checkpoints);
    stage.model =
        newest.empty() ? make_tiny(context_, model_config_, true) : load_model(context_, newest, {.gradients = true});
    Trainer trainer(context_, *stage.model, {});
    Place place;
    const std::unique_ptr<Objective> objective = make_objective("sft");
    const std::string end = error_of([&] {
      train_loop(stage, config_, trainer, {{"place", &place}}, [&](int64_t step, double rate) {
        const Rollback undo(place);
        EXPECT_EQ(place.at, step);
        ++place.at;
        if (fail_at) fail_at(step, trainer);
        return trainer.step(pointers(samples_), *objective, rate);
      });
    });
    weights_ = weights_of(*stage.model);
    result_ = stage.result;
    return end;
  }
  bool saved(int64_t step) const {
    return fs::exists(folder_ / "checkpoints" / "stage" / concat("step-", step) / "manifest.json");
  }

  std::unique_ptr<Device> device_;
  Context context_;
  TemporaryFolder root_;
  std::vector<Sample> samples_;
  LoopConfig config_;
  Json model_config_ = tiny_config("llama");
  fs::path folder_;
  std::vector<float> weights_;
  StageResult result_;
};

// hone has no dropout but that of adapters.
TEST_F(TrainLoopTest, DropoutOfTheConfigIsSaidOnceNotToApply) {
  const JsonObject dropout{{"attention_dropout", 0.125}, {"resid_pdrop", 0.0}, {"embd_pdrop", 0.25}};
  model_config_ = with(tiny_config("phi3"), dropout);
  testing::internal::CaptureStderr();
  EXPECT_EQ(run("first"), "no error");
  EXPECT_EQ(run("second"), "no error");
  const std::string warning = testing::internal::GetCapturedStderr();
  const std::string words = "config.json of the model has attention_dropout = 0.125, embd_pdrop = 0.25; hone trains";
  EXPECT_PRED2(says, warning, words);
  EXPECT_EQ(warning.find(words), warning.rfind(words));
}

TEST_F(TrainLoopTest, AnyErrorInAStepSavesTheStepsBeforeItAndTheResumedRunIsTheSame) {
  ASSERT_EQ(run("whole"), "no error");
  const std::vector<float> uninterrupted = weights_;
  const auto fails = [](int64_t step, Trainer&) {
    if (step == 3) throw std::runtime_error("the device is lost");
  };
  const std::string end = run("stopped", fails);
  EXPECT_NE(end.find("the device is lost"), std::string::npos) << end;
  EXPECT_NE(end.find("stopped after step 3 of stage stage, everything is saved; resume with: hone run --resume"),
            std::string::npos)
      << end;
  EXPECT_TRUE(saved(3));
  ASSERT_EQ(run("stopped"), "no error");
  EXPECT_EQ(weights_, uninterrupted);
}

// The next stage's rows of metrics begin after the last step.
TEST_F(TrainLoopTest, FewerStepsThanWereMadeCountAsThoseThatWereMade) {
  ASSERT_EQ(run("shortened"), "no error");
  config_.steps = 4;
  ASSERT_EQ(run("shortened"), "no error");
  EXPECT_EQ(result_.steps, 6);
  EXPECT_EQ(result_.planned_steps, 6);
}

TEST_F(TrainLoopTest, OutOfMemoryIsAnErrorLikeAnyOther) {
  const std::string end = run("stopped", [](int64_t step, Trainer&) {
    if (step == 2) throw std::bad_alloc();
  });
  EXPECT_NE(end.find("stopped after step 2"), std::string::npos) << end;
  EXPECT_TRUE(saved(2));
}

TEST_F(TrainLoopTest, AHalfUpdatedStateIsNotSaved) {
  const std::string end = run("stopped", [&](int64_t step, Trainer& trainer) {
    if (step < 2) return;
    trainer.step(pointers(samples_), *make_objective("sft"), 1);
    fail("the second update fails");
  });
  EXPECT_NE(
      end.find("the second update fails; step 3 of stage stage had begun to change the weights, which are not saved"),
      std::string::npos)
      << end;
  EXPECT_FALSE(saved(2));
  EXPECT_FALSE(saved(3));
}

TEST_F(TrainLoopTest, AnErrorThatCannotBeSavedAfterIsStillTheError) {
  const std::string end = run("stopped", [&](int64_t step, Trainer&) {
    if (step < 2) return;
    write_file_atomic(folder_ / "checkpoints", "a file where the folder should be");
    fail("the reward is lost");
  });
  EXPECT_TRUE(end.starts_with("the reward is lost; and step 2 of stage stage could not be saved: ")) << end;
}

TEST_F(TrainLoopTest, ACheckpointByTheClockChangesNothing) {
  config_.save_minutes = 0;
  ASSERT_EQ(run("never"), "no error");
  const std::vector<float> never = weights_;
  EXPECT_FALSE(saved(3));
  config_.save_minutes = 1e-9;
  ASSERT_EQ(run("always"), "no error");
  EXPECT_EQ(weights_, never);
  for (int64_t step = 1; step <= 6; ++step) EXPECT_TRUE(saved(step)) << step;
}

}  // namespace
}  // namespace hone::test
