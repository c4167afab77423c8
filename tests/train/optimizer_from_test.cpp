// optimizer_from = "previous": a stage goes on with the optimizer of the checkpoint that it starts from.
#include <gtest/gtest.h>

#include "core/config/config.h"
#include "core/io/file.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"
#include "tests/support/support.h"
#include "tests/train/rig.h"
#include "tests/train/stage_context.h"
#include "train/loop.h"
#include "train/parallel/zero.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

class OptimizerFrom : public ::testing::Test {
 protected:
  // A stage of `steps` steps in the folder `name`, from the checkpoint `start` (empty: random weights). A stage with
  // checkpoints is resumed. Every step has the same data.
  std::string run(const std::string& name, int64_t steps, const std::string& keys, const fs::path& start = {},
                  int64_t fail_at = -1) {
    const fs::path folder = root_.path() / name;
    make_folder(folder);
    StageFixture fixture(context_, folder);
    StageContext& stage = *fixture.stage;
    const fs::path newest = newest_checkpoint(stage.checkpoints);
    const fs::path from = newest.empty() ? start : newest;
    stage.start_folder = start;
    stage.model = from.empty() ? make_tiny(context_, tiny_config("llama"), true)
                               : load_model(context_, from, {.gradients = true});
    LoopConfig config;
    Config::from_text(concat("lr_scheduler_type = \"constant\"\nsteps = ", steps, "\n", keys), "recipe.toml")
        .read([&](Fields& f) { config.fields(f); });
    const std::string end = error_of([&] {
      Trainer trainer(context_, *stage.model, config.trainer);
      train_loop(stage, config, trainer, {}, [&](int64_t step, double rate) {
        HONE_CHECK(step != fail_at, "stopped by the test");
        return trainer.step(pointers(samples_), *objective_, rate);
      });
      updates_ = trainer.steps_done();
    });
    weights_ = weights_of(*stage.model);
    return end;
  }
  fs::path checkpoint(const std::string& name, int64_t step) const {
    return root_.path() / name / "checkpoints" / "stage" / concat("step-", step);
  }

  std::unique_ptr<Device> device_ = cpu_device();
  Context context_{*device_};
  TemporaryFolder root_;
  std::vector<Sample> samples_ = make_samples(std::array<size_t, 2>{6, 9});
  std::unique_ptr<Objective> objective_ = make_objective("sft");
  std::vector<float> weights_;
  int64_t updates_ = 0;
  int count_ = 0;
};

const std::string previous = "optimizer_from = \"previous\"\n";

TEST_F(OptimizerFrom, TwoStagesHaveTheBitsOfOneForEveryOptimizer) {
  for (const std::string& kind : optimizers().names()) {
    const std::string keys = concat("optimizer = \"", kind, "\"\n");
    ASSERT_EQ(run("whole-" + kind, 6, keys), "no error");
    const std::vector<float> whole = weights_;
    ASSERT_EQ(run("first-" + kind, 4, keys), "no error");
    ASSERT_EQ(run("second-" + kind, 2, keys + previous, checkpoint("first-" + kind, 4)), "no error");
    EXPECT_EQ(weights_, whole) << kind;
    EXPECT_EQ(updates_, 6) << kind;  // the step count goes on: bias corrections and random streams
    if (kind == "sgd") continue;     // without momentum it has no state
    ASSERT_EQ(run("anew-" + kind, 2, keys, checkpoint("first-" + kind, 4)), "no error");
    EXPECT_NE(weights_, whole) << kind;
  }
}

// One stable phase, two decays: each branch is what it is without the other.
TEST_F(OptimizerFrom, AStableRunIsBranched) {
  ASSERT_EQ(run("stable", 4, ""), "no error");
  const std::string decay = previous + "lr_scheduler_type = \"wsd\"\ndecay_ratio = 1.0\ndecay_type = \"";
  const auto branch = [&](const std::string& name, const std::string& type) {
    const fs::path folder = root_.path() / name;
    make_folder(folder);
    StageFixture fixture(context_, folder);
    fixture.stage->start_folder = checkpoint("stable", 4);
    fixture.stage->model = load_model(context_, checkpoint("stable", 4), {.gradients = true});
    LoopConfig config;
    Config::from_text("steps = 3\n" + decay + type + "\"\n", "recipe.toml").read([&](Fields& f) { config.fields(f); });
    Trainer trainer(context_, *fixture.stage->model, config.trainer);
    train_loop(*fixture.stage, config, trainer, {},
               [&](int64_t, double rate) { return trainer.step(pointers(samples_), *objective_, rate); });
    return weights_of(*fixture.stage->model);
  };
  const std::vector<float> root = branch("a", "1-sqrt"), linear = branch("b", "linear");
  EXPECT_NE(root, linear);
  EXPECT_EQ(branch("c", "1-sqrt"), root);
}

TEST_F(OptimizerFrom, AKilledStageResumesFromItsOwnCheckpoint) {
  ASSERT_EQ(run("first", 3, ""), "no error");
  ASSERT_EQ(run("whole", 4, previous, checkpoint("first", 3)), "no error");
  const std::vector<float> whole = weights_;
  EXPECT_TRUE(says(run("killed", 4, previous, checkpoint("first", 3), 2), "stopped by the test"));
  ASSERT_EQ(run("killed", 4, previous, checkpoint("first", 3)), "no error");
  EXPECT_EQ(weights_, whole);
  EXPECT_EQ(updates_, 7);
}

TEST_F(OptimizerFrom, WhatDoesNotFitIsNamed) {
  ASSERT_EQ(run("first", 2, ""), "no error");
  const fs::path from = checkpoint("first", 2);
  const auto message = [&](const std::string& keys, const fs::path& start) {
    return run(concat("bad-", ++count_), 2, previous + keys, start);
  };
  EXPECT_TRUE(says(message("", {}), "stage stage: optimizer_from = previous: the stage starts from random weights"));
  const std::string kinds = message("optimizer = \"muon\"", from);
  EXPECT_TRUE(says(kinds, "trainer/trainer.json: its optimizer is adamw, and this stage's is muon")) << kinds;
  const std::string dtypes = message("moments = \"bf16\"", from);
  EXPECT_TRUE(says(dtypes,
                   "trainer/trainer.safetensors: optimizer state: exp_avg.model.embed_tokens.weight is f32, "
                   "and bf16 is wanted: set moments as it was in the run that saved the state"))
      << dtypes;
  fs::remove(from / "trainer" / "trainer.safetensors");
  const std::string no_file = message("", from);
  EXPECT_TRUE(says(no_file, "trainer/trainer.safetensors: the file is missing: optimizer state: exp_avg.")) << no_file;
  fs::remove_all(from / "trainer");
  const std::string missing = message("", from);
  EXPECT_TRUE(says(missing, "the checkpoint has no section 'trainer'")) << missing;
}

// A model of another shape has parameters of other sizes.
TEST_F(OptimizerFrom, AStateOfAnotherModelIsNamed) {
  Rig small({}, "llama"), other({}, "gpt2");
  small.trainer.step(pointers(samples_), *objective_, 0.01);
  StateSection section;
  small.trainer.save_state(section);
  const std::string message = error_of([&] { other.trainer.continue_from(section); });
  EXPECT_TRUE(says(message, "optimizer state: exp_avg.transformer.wte.weight is missing")) << message;
  EXPECT_EQ(other.trainer.steps_done(), 0);
}

// Learns the values of a critic and nothing else.
struct Values : Objective {
  Needs needs() const override { return {.critic = true}; }
  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums&) const override {
    double sum = 0;
    for (size_t t = 0; t < batch[columns::mask].size(); ++t) {
      const double weight = batch.scale * batch[columns::mask][t], error = batch[columns::value][t] - 1;
      sum += 0.5 * weight * error * error;
      grad.value[t] = static_cast<float>(weight * error);
    }
    return sum;
  }
};

// The policy's optimizer goes on; a critic counts its updates from 1, also after a resume.
TEST_F(OptimizerFrom, ACriticStartsAnew) {
  TrainerConfig config;
  config.critic.trunk = "separate";
  Rig first(config), fresh(config), resumed(config);
  for (int step = 0; step < 3; ++step) first.trainer.step(pointers(samples_), *objective_, 0.01);
  StateSection section;
  first.trainer.save_state(section);
  Rig continued(config);
  continued.trainer.continue_from(section);
  for (int step = 0; step < 2; ++step) {
    fresh.trainer.step(pointers(samples_), Values(), 0.01);
    continued.trainer.step(pointers(samples_), Values(), 0.01);
    EXPECT_EQ(continued.trainer.value_head(), fresh.trainer.value_head()) << step;
  }
  EXPECT_EQ(continued.trainer.steps_done(), 5);
  StateSection saved;
  continued.trainer.save_state(saved);
  std::ranges::copy(weights_of(*continued.model), resumed.model->flat_values().as<float>().begin());
  resumed.trainer.load_state(saved);
  fresh.trainer.step(pointers(samples_), Values(), 0.01);
  resumed.trainer.step(pointers(samples_), Values(), 0.01);
  EXPECT_EQ(resumed.trainer.value_head(), fresh.trainer.value_head());
}

TEST_F(OptimizerFrom, RanksGoOnFromAStateOfOneRank) {
  TrainerConfig config;
  Config::from_text("optimizer = \"muon\"\nmicro_batch_tokens = 14", "test").read([&](Fields& f) { config.fields(f); });
  config.norm_piece = 64;
  Rig first(config), whole(config);
  for (int step = 0; step < 4; ++step) {
    if (step < 2) first.trainer.step(pointers(samples_), *objective_, 0.01);
    whole.trainer.step(pointers(samples_), *objective_, 0.01);
  }
  StateSection section;
  first.trainer.save_state(section);
  const std::vector<float> start = weights_of(*first.model), expected = weights_of(*whole.model);
  on_ranks(3, [&](const Ranks& ranks, Context& context) {
    ZeroExchange exchange(*ranks.group(), 2);
    const std::unique_ptr<Model> model = make_tiny(context, tiny_config("llama"), true);
    std::ranges::copy(start, model->flat_values().as<float>().begin());
    Trainer trainer(context, *model, config, &exchange);
    trainer.continue_from(section);
    for (int step = 0; step < 2; ++step) trainer.step(pointers(samples_), *objective_, 0.01);
    EXPECT_EQ(weights_of(*model), expected);
  });
}

}  // namespace
}  // namespace hone::test
