#include "train/stage.h"

#include <gtest/gtest.h>

#include "core/io/jsonl.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"
#include "tests/train/rig.h"
#include "tests/train/stage_context.h"
#include "train/loop.h"

namespace hone::test {
namespace {

// A stage of this test: it trains on fixed samples and asks for evaluations every two steps.
class Likelihood : public Stage {
 public:
  void fields(Fields& f) override { loop_.fields(f); }
  std::string default_name() const override { return "likelihood"; }
  int64_t steps() const override { return loop_.steps; }
  void run(StageContext& stage) const override {
    const std::vector<Sample> samples = make_samples(std::array<size_t, 2>{6, 9});
    const std::unique_ptr<Objective> objective = make_objective("sft");
    Trainer trainer(stage.context, *stage.model, loop_.trainer);
    LoopConfig loop = loop_;
    loop.steps = 5;
    loop.eval_steps = 2;
    train_loop(stage, loop, trainer, {}, [&](int64_t, double learning_rate) {
      return trainer.step(pointers(samples), *objective, learning_rate);
    });
  }

 private:
  LoopConfig loop_;
};

TEST(Stage, RunsOnAContextOfATemporaryFolder) {
  const TemporaryFolder folder;
  const std::unique_ptr<Device> device = cpu_device();
  Context context(*device);
  MetricsLog log(folder.path());
  std::optional<Tokenizer> tokenizer;
  std::unique_ptr<Model> model = make_tiny(context, tiny_config("llama"), true);
  std::vector<int64_t> evaluated;
  StageContext stage{.context = context,
                     .log = log,
                     .tokenizer = tokenizer,
                     .model = model,
                     .run_folder = folder.path(),
                     .checkpoints = folder.path() / "checkpoints" / "likelihood",
                     .name = "likelihood",
                     .index = 2,
                     .first_step = 100,
                     .evaluate = [&](int64_t step) { evaluated.push_back(step); }};
  Likelihood().run(stage);

  EXPECT_EQ(stage.result.steps, 5);
  EXPECT_EQ(stage.result.planned_steps, 5);
  EXPECT_EQ(stage.result.final_step, 5);
  EXPECT_EQ(stage.result.tokens, 5 * 15);
  EXPECT_EQ(evaluated, (std::vector<int64_t>{102, 104}));
  EXPECT_EQ(checkpoint_steps(stage.checkpoints).back(), 5);
  StateSection section;
  log.save_state(section);  // flushes
  std::vector<int64_t> steps;
  read_jsonl(folder.path() / "metrics.jsonl", [&](const Json& row, int64_t) {
    steps.push_back(row.at("step").as_int());
    EXPECT_EQ(row.at("stage").as_double(), 2);
  });
  EXPECT_EQ(steps, (std::vector<int64_t>{101, 102, 103, 104, 105}));
}

TEST(Stage, AResumedContextContinuesFromTheNewestCheckpoint) {
  const TemporaryFolder folder;
  const std::unique_ptr<Device> device = cpu_device();
  Context context(*device);
  StageFixture first(context, folder.path()), second(context, folder.path());
  first.model = make_tiny(context, tiny_config("llama"), true);
  Likelihood().run(*first.stage);
  second.model = load_model(context, newest_checkpoint(second.stage->checkpoints), {.gradients = true});
  Likelihood().run(*second.stage);
  EXPECT_EQ(second.stage->result.steps, 5);
  EXPECT_EQ(weights_of(*second.model), weights_of(*first.model));
}

TEST(Stage, TheSeedDependsOnTheNameAndNotOnThePlace) {
  EXPECT_EQ(stage_seed(5, "grpo"), uint64_t{5} ^ stream_of("grpo"));
  EXPECT_NE(stage_seed(5, "grpo"), stage_seed(5, "sft"));
}

TEST(StopRun, SaysHowToResume) {
  EXPECT_EQ(error_of([] { stop_run("runs/a", "step 3 of stage sft"); }),
            "stopped after step 3 of stage sft, everything is saved; go on with: hone run --resume runs/a");
  EXPECT_EQ(error_of([] { stop_run("runs/a", "stage sft", "the disk is full"); }),
            "the disk is full; stopped after stage sft, everything is saved; go on with: hone run --resume runs/a");
}

}  // namespace
}  // namespace hone::test
