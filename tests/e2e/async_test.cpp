// Asynchronous runs: their bits, the staleness of completions, and that they learn as well as synchronous ones.
#include <signal.h>

#include <chrono>

#include "core/base/rng.h"
#include "core/io/file.h"
#include "tests/e2e/recipe_run.h"
#include "tests/e2e/whole_run.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> settings(int64_t max_staleness, std::vector<std::string> more = {}) {
  more.insert(more.end(),
              {"stage.0.max_staleness=" + std::to_string(max_staleness), "stage.0.prompts_per_step=4",
               "stage.0.num_generations=4", "stage.0.steps=8", "stage.0.save_steps=1", "stage.0.save_total_limit=0"});
  return more;
}

// The weights of the stage's last checkpoint.
std::string weights(const fs::path& run) { return read_file(run / "checkpoints/grpo/step-8/model.safetensors"); }

void expect_bounded(const RecipeRun& run, double max_staleness) {
  const std::vector<double> oldest = run.values("staleness/max");
  ASSERT_EQ(oldest.size(), 8u);
  for (size_t step = 0; step < 8; ++step) EXPECT_LE(oldest[step], std::min(max_staleness, static_cast<double>(step)));
}

TEST(AsyncRun, RepeatsBitForBitWithOneThreadAndWithTwoAndStaysWithinItsBound) {
  HONE_SHARED_OR_SKIP(data, "data");
  std::string before;
  for (const int64_t k : {0, 1, 2}) {
    SCOPED_TRACE(k);
    const RecipeRun one(data, "rl/async", settings(k, {"threads=1"})),
        two(data, "rl/async", settings(k, {"threads=2"}));
    EXPECT_TRUE(weights(one.path()) == weights(two.path()));
    EXPECT_EQ(one.values("reward"), two.values("reward"));
    EXPECT_FALSE(weights(one.path()) == before) << "the bound changes what is learned from";
    before = weights(one.path());
    if (k > 0) expect_bounded(one, static_cast<double>(k));
    if (k > 0) {
      EXPECT_EQ(one.values("staleness/mean").back(), k);
    }
  }
}

TEST(AsyncRun, RepliesThatTakeNewWeightsInTheMiddleAreNeverTooOld) {
  HONE_SHARED_OR_SKIP(data, "data");
  for (const int64_t k : {1, 2}) {
    const RecipeRun run(data, "rl/async",
                        settings(k, {"stage.0.deterministic=false", "rollout.max_num_batched_tokens=16"}));
    expect_bounded(run, static_cast<double>(k));
  }
}

TEST(AsyncRun, KilledAtRandomAndResumedIsTheUninterruptedRun) {
  HONE_SHARED_OR_SKIP(data, "data");
  const std::vector<std::string> changing = {"stage.0.filter_groups={ enable = true, max_num_gen_batches = 2 }",
                                             "stage.0.curriculum={ revisit_epochs = 2, threshold = 0.1 }"};
  const RecipeRun whole(data, "rl/async", settings(2, changing));
  const TemporaryFolder folder;
  std::vector<std::string> arguments = RecipeRun::arguments("rl/async", folder.path(), settings(2, changing));
  const fs::path run = folder.path() / "run";
  Rng random(5, 0);
  for (uint64_t kill = 0; kill < 3; ++kill) {
    end_at_checkpoint(arguments, run, concat("grpo/step-", 2 * (kill + 1)), SIGKILL, {"HONE_DATA=" + data.string()},
                      std::chrono::milliseconds(random.below(60)));
    arguments = {"run", "--resume", run.string()};
  }
  const Finished resumed = run_hone(arguments, {"HONE_DATA=" + data.string()});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_TRUE(weights(run) == weights(whole.path()));
  std::vector<double> rewards;
  read_jsonl(run / "metrics.jsonl", [&](const Json& row, int64_t) { rewards.push_back(row.at("reward").as_double()); });
  EXPECT_EQ(rewards, whole.values("reward"));
  for (const char* state : {"rounds.json", "rounds.safetensors", "trainer.safetensors"})
    for (const char* step : {"step-4", "step-7"})
      EXPECT_TRUE(fs::exists(run / "checkpoints/grpo" / step / "trainer" / state)) << step << " " << state;
}

TEST(AsyncRun, LearnsAsWellAsTheSynchronousRun) {
  HONE_SHARED_OR_SKIP(data, "data");
  std::vector<double> reached;
  for (const int64_t k : {0, 1, 2})
    reached.push_back(
        RecipeRun(data, "rl/async",
                  {concat("stage.0.max_staleness=", k), "stage.0.steps=40", "stage.0.lr_scheduler_type=constant"})
            .first_and_last("reward", 10)
            .second);
  for (const double reward : reached) EXPECT_GT(reward, 0.8 * reached.front()) << testing::PrintToString(reached);
  EXPECT_GT(reached.front(), 0.06);
}

}  // namespace
}  // namespace hone::test
