// Online DPO, references that follow the policy, and critics that warm up: equal bits on any number of ranks and after
// a kill, and what each of them changes and leaves alone.
#include "tests/e2e/ranks_run.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* sums = R"(
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
micro_batch_tokens = 48
save_steps = 1
save_total_limit = 0
sampling = { max_tokens = 6 }
reward = { kind = "length", unit = "bytes", limit = 20, target = 3 }
)";

const std::string recipe = tiny_recipe("online", 2,
                                       concat(ranks_pretrain, R"(
[[stage]]
kind = "online_dpo"
prompts_per_step = 3
num_generations = 4
pairs_per_prompt = 2
num_mini_batches = 2
learning_rate = 1e-3
steps = 4
sync_ref_model = true
ref_model_sync_steps = 2
keep_rollouts = true)",
                                              sums, R"(
[[stage]]
kind = "preference"
files = ["FOLDER/pairs.jsonl"]
steps = 8
batch_size = 3
max_length = 32
micro_batch_tokens = 32
save_steps = 1
save_total_limit = 0
learning_rate = 1e-3
eval_share = 0.2
eval_steps = 3
sync_ref_model = true
ref_model_mixup_alpha = 0.3
ref_model_sync_steps = 3
[[stage]]
kind = "rl"
objective = "grpo"
prompts_per_step = 3
num_generations = 3
beta = 0.05
learning_rate = 1e-3
steps = 3
sync_ref_model = true
ref_model_sync_steps = 1)",
                                              sums, R"(
[[stage]]
kind = "rl"
objective = "ppo"
name = "separate"
critic = { trunk = "separate" }
critic_warmup = 2
prompts_per_step = 3
num_generations = 2
learning_rate = 1e-3
steps = 4)",
                                              sums, R"(
[[stage]]
kind = "rl"
objective = "ppo"
name = "shared"
critic_warmup = 2
prompts_per_step = 3
num_generations = 2
num_iterations = 2
learning_rate = 1e-3
steps = 3)",
                                              sums));

class OnlineRun : public RanksRun {
 protected:
  OnlineRun() : RanksRun("cpu", recipe) {}
  // Model, trainer and reference of every checkpoint, and metrics and samples.
  static void expect_same(const fs::path& a, const fs::path& b) {
    expect_same_run(a, b);
    for (const std::string& name : checkpoints_of(a))
      if (const auto one = merged_state(a / "checkpoints" / name, "reference"); !one.empty()) {
        EXPECT_TRUE(one == merged_state(b / "checkpoints" / name, "reference")) << name;
      }
  }
  static std::vector<double> values(const fs::path& run, double stage, const std::string& metric) {
    std::vector<double> out;
    read_jsonl(run / "metrics.jsonl", [&](const Json& row, int64_t) {
      const Json* const value = row.find(metric);
      if (value && row.at("stage").as_double() == stage) out.push_back(value->as_double());
    });
    return out;
  }
  static std::string model_of(const fs::path& run, const std::string& checkpoint) {
    return read_file(run / "checkpoints" / checkpoint / "model.safetensors");
  }
};

TEST_F(OnlineRun, AnyNumberOfRanksHasTheBitsOfOne) {
  const fs::path one = run_on(1);
  EXPECT_FALSE(merged_state(one / "checkpoints/online_dpo/step-4", "reference").empty());
  for (const auto& [ranks, zero] : {std::pair(2, 2), {2, 3}, {3, 2}, {3, 3}}) {
    SCOPED_TRACE(concat(ranks, " ranks, ZeRO-", zero));
    expect_same(one, run_on(ranks, {concat("parallel.zero=", zero)}, concat("on-", ranks, "-zero-", zero)));
  }
}

TEST_F(OnlineRun, KilledAndResumedIsTheUninterruptedRun) {
  const fs::path whole = run_on(1);
  for (const char* at : {"online_dpo/step-2", "dpo/step-4", "separate/step-1", "shared/step-2"}) {
    SCOPED_TRACE(at);
    const std::string name = concat("killed-", std::string(at).substr(0, 3));
    kill_and_resume(arguments(name, {"parallel.ranks=1", "parallel.micro_batch_multiple=2"}), folder.path() / name, at);
    expect_same(whole, folder.path() / name);
  }
}

// The reference is saved in parts, which another number of ranks reads.
TEST_F(OnlineRun, KilledOnTwoRanksItGoesOnWithThree) {
  const fs::path whole = run_on(1), run = folder.path() / "killed";
  EXPECT_EQ(
      end_at_checkpoint(arguments("killed", {"parallel.ranks=2", "parallel.zero=3", "parallel.micro_batch_multiple=2"}),
                        run, "online_dpo/step-2", SIGKILL)
          .code,
      128 + SIGKILL);
  const Finished resumed = run_hone({"run", "--resume", run.string(), "parallel.ranks=3", "parallel.zero=2"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  expect_same(whole, run);
}

TEST_F(OnlineRun, ReferencesMoveInTheStepsThatAreDue) {
  const fs::path run = run_on(1);
  const auto reference = [&](const std::string& name) { return merged_state(run / "checkpoints" / name, "reference"); };
  EXPECT_FALSE(reference("online_dpo/step-1") == reference("online_dpo/step-2"));
  EXPECT_TRUE(reference("online_dpo/step-2") == reference("online_dpo/step-3"));
  EXPECT_FALSE(reference("online_dpo/step-3") == reference("online_dpo/step-4"));
  EXPECT_TRUE(reference("dpo/step-1") == reference("dpo/step-2"));
  EXPECT_FALSE(reference("dpo/step-2") == reference("dpo/step-3"));
  EXPECT_FALSE(reference("grpo/step-1") == reference("grpo/step-2"));
  // ref = (1 - 0.3) ref + 0.3 policy.
  const SafetensorsReader before(run / "checkpoints/dpo/step-2/trainer/reference.safetensors"),
      after(run / "checkpoints/dpo/step-3/trainer/reference.safetensors"),
      policy(run / "checkpoints/dpo/step-3/model.safetensors");
  const std::string name = "model.norm.weight";
  const std::span<const float> old = before.at(name).as<float>(), mixed = after.at(name).as<float>(),
                               now = policy.at(name).as<float>();
  ASSERT_FALSE(now.empty());
  for (size_t i = 0; i < now.size(); ++i) EXPECT_NEAR(mixed[i], 0.7 * old[i] + 0.3 * now[i], 1e-6);
}

TEST_F(OnlineRun, OnlinePairsAreTheBestAndTheWorstAndHaveTheSamplersLogProbs) {
  const Finished done = run_hone(arguments("pairs", {"stage.online_dpo.num_mini_batches=1"}));
  ASSERT_EQ(done.code, 0) << done.err;
  const fs::path run = folder.path() / "pairs";
  const std::vector<double> difference = values(run, 2, "sampling/sampling_logp_difference/max"),
                            pairs = values(run, 2, "pairs"), margin = values(run, 2, "objective/scores_margin");
  EXPECT_EQ(difference, std::vector<double>(4, 0.0));
  ASSERT_EQ(pairs.size(), 4u);
  // The completions of a step are in its rollouts: the pairs follow from their rewards.
  std::map<int64_t, std::map<int64_t, std::vector<double>>> rewards;
  for (size_t step = 0; step < pairs.size(); ++step)
    read_jsonl(run / "rollouts" / concat("step-", 6 + step + 1, ".jsonl.gz"), [&](const Json& row, int64_t) {
      rewards[static_cast<int64_t>(step)][row.at("group").as_int()].push_back(row.at("reward").as_double());
    });
  for (size_t step = 0; step < pairs.size(); ++step) {
    double count = 0, sum = 0;
    for (auto [group, scores] : rewards.at(static_cast<int64_t>(step))) {
      ASSERT_EQ(scores.size(), 4u);
      std::ranges::sort(scores);
      for (const double gap : {scores[3] - scores[0], scores[2] - scores[1]}) {
        if (gap <= 0) break;
        ++count;
        sum += gap;
      }
    }
    EXPECT_EQ(pairs[step], count);
    if (count > 0) {
      EXPECT_NEAR(margin[step], sum / count, 1e-9);
    }
  }
}

TEST_F(OnlineRun, AStepWithoutPairsChangesNothing) {
  const Finished done = run_hone(arguments("flat", {"stage.online_dpo.margin=100"}));
  ASSERT_EQ(done.code, 0) << done.err;
  const fs::path run = folder.path() / "flat";
  EXPECT_EQ(values(run, 2, "pairs"), std::vector<double>(4, 0.0));
  EXPECT_EQ(values(run, 2, "loss"), std::vector<double>(4, 0.0));
  EXPECT_TRUE(model_of(run, "online_dpo/step-4") == model_of(run, "pretrain/step-6"));
}

TEST_F(OnlineRun, OtherLossesOfPairsLearnOnlineToo) {
  const std::vector<std::string> keys{
      "stage=[{kind = 'online_dpo', objective = 'simpo', generator = {kind = "
      "'arithmetic', digits = 1, heldout = 20}, prompts_per_step = 3, steps = 2, "
      "sampling = {max_tokens = 6}, reward = {kind = 'length', unit = 'bytes', limit = 20, target = 3}}]"};
  const fs::path trained = run_on(1);
  for (const char* objective : {"objective = 'simpo'", "objective = 'orpo'", "objective = 'dpo', loss_type = ['ipo']",
                                "objective = 'dpo', loss_type = ['aot']",
                                "objective = 'dpo', loss_type = ['sigmoid', 'sft'], loss_weights = [1.0, 0.5]"}) {
    SCOPED_TRACE(objective);
    std::string stage = keys.front();
    stage.replace(stage.find("objective = 'simpo'"), 19, objective);
    const Finished done = run_hone(arguments(
        "other", {stage, concat("model={path = '", (trained / "checkpoints/pretrain/step-6").string(), "'}")}));
    EXPECT_EQ(done.code, 0) << done.err;
    fs::remove_all(folder.path() / "other");
  }
}

TEST_F(OnlineRun, AWarmUpTrainsTheCriticAloneAndSamplingGoesOn) {
  const fs::path run = run_on(1);
  const std::string start = model_of(run, "grpo/step-3");
  for (const char* at : {"separate/step-1", "separate/step-2"}) EXPECT_TRUE(model_of(run, at) == start) << at;
  EXPECT_FALSE(model_of(run, "separate/step-3") == start);
  const std::string second = model_of(run, "separate/step-4");
  for (const char* at : {"shared/step-1", "shared/step-2"}) EXPECT_TRUE(model_of(run, at) == second) << at;
  EXPECT_FALSE(model_of(run, "shared/step-3") == second);
  const auto states = [&](const std::string& name) { return merged_state(run / "checkpoints" / name); };
  size_t of_policy = 0, of_critic = 0;
  for (const auto& [name, bytes] : states("separate/step-1")) {
    const bool critic = name.starts_with("critic.");
    const bool same = states("separate/step-2").at(name) == bytes;
    if (!critic) {
      EXPECT_TRUE(same) << name;
    }
    of_policy += !critic;
    of_critic += critic && !same;
  }
  EXPECT_GT(of_policy, 5u);
  EXPECT_GT(of_critic, 5u);
  for (const double stage : {5.0, 6.0}) {
    EXPECT_EQ(values(run, stage, "reward").size(), stage == 5 ? 4u : 3u);
    const std::vector<double> difference = values(run, stage, "sampling/sampling_logp_difference/max"),
                              norm = values(run, stage, "grad_norm"), ratio = values(run, stage, "val/ratio");
    for (const double x : difference) EXPECT_EQ(x, 0);
    for (const double x : norm) EXPECT_GT(x, 0);
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(ratio.at(i), 1) << "the policy is the one that sampled";
  }
}

}  // namespace
}  // namespace hone::test
