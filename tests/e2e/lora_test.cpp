// Complete runs that train adapters: their bits, their checkpoints, and how other commands read them.
#include <cmath>

#include "core/io/safetensors.h"
#include "tests/e2e/recipe_run.h"
#include "tests/e2e/whole_run.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

const std::string recipe = tiny_recipe("lora", 2, R"(
[[stage]]
kind = "pretrain"
generator = { kind = "arithmetic", digits = 1, heldout = 20, worked = 0.0 }
packing = "documents"
max_length = 32
batch_size = 8
steps = 8
[[stage]]
kind = "rl"
objective = "grpo"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
prompts_per_step = 3
num_generations = 4
steps = 6
save_steps = 2
save_total_limit = 0
learning_rate = 1e-2
beta = 0.05
sampling = { temperature = 0.7, max_tokens = 6 }
reward = { kind = "composite", parts = [ { kind = "number" }, { kind = "length", weight = 0.1, limit = 6, target = 3 } ] }
[[stage]]
kind = "rl"
name = "again"
objective = "ppo"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
prompts_per_step = 3
num_generations = 4
steps = 4
learning_rate = 1e-2
sampling = { temperature = 0.7, max_tokens = 6 }
reward = { kind = "length", limit = 6, target = 3 }
)",
                                       R"(lora = { r = 4, target_modules = "all-linear", merge = true })");

class LoraRunTest : public WholeRun {
 protected:
  LoraRunTest() : WholeRun(recipe) {}
  static std::string replies(const fs::path& model, bool exact = true) {
    const Finished done = run_hone({"generate", "--model", model.string(), "--prompt", "3+4=", "--max-tokens", "8",
                                    "--temperature", "0", "--json", exact ? "--logprobs" : "--ignore-eos"});
    EXPECT_EQ(done.code, 0) << done.err;
    return done.out;
  }
};

TEST_F(LoraRunTest, TrainsAdaptersOfThePretrainedModelAndMergesThem) {
  const fs::path path = run("whole"), checkpoints = path / "checkpoints", last = checkpoints / "again" / "step-4";
  EXPECT_TRUE(fs::exists(checkpoints / "pretrain" / "step-8" / "model.safetensors"));
  EXPECT_FALSE(fs::exists(last / "model.safetensors"));
  const Json config = parse_json(read_file(last / "adapter_config.json"), "adapter_config.json");
  EXPECT_EQ(fs::path(config.at("base_model_name_or_path").as_string()),
            fs::canonical(checkpoints / "pretrain" / "step-8"));
  const SafetensorsReader tensors(last / "adapter_model.safetensors");
  EXPECT_EQ(tensors.names().size(), 2u * 2 * 7);
  EXPECT_TRUE(tensors.contains("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"));

  // The sampler's log-probs equal the learner's, and a stage begins at its reference.
  int64_t steps = 0, first_rows = 0;
  double stage = -1;
  read_jsonl(path / "metrics.jsonl", [&](const Json& row, int64_t) {
    if (const Json* difference = row.find("sampling/sampling_logp_difference/max")) {
      EXPECT_EQ(difference->as_double(), 0.0);
      ++steps;
    }
    const Json* kl = row.find("kl");
    if (!kl || row.at("stage").as_double() == stage) return;
    stage = row.at("stage").as_double();
    EXPECT_EQ(kl->as_double(), 0.0);
    ++first_rows;
  });
  EXPECT_EQ(steps, 10);
  EXPECT_GE(first_rows, 1);

  // A merged model, by the run or by the command, gives the same results.
  const Finished exported =
      run_hone({"export", "--model", last.string(), "--out", (folder.path() / "merged").string()});
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_TRUE(read_file(folder.path() / "merged" / "model.safetensors") ==
              read_file(checkpoints / "again" / "merged" / "model.safetensors"));
  EXPECT_EQ(replies(last, false), replies(folder.path() / "merged", false));
  EXPECT_NE(replies(last), replies(checkpoints / "pretrain" / "step-8"));
  EXPECT_EQ(run_hone({"export", "--model", last.string(), "--out", (folder.path() / "merged").string()}).code, 1);
  const Finished eval = run_hone({"eval", "--model", last.string(), "--task", "arithmetic", "--limit", "4", "--json"});
  EXPECT_EQ(eval.code, 0) << eval.err;
}

TEST_F(LoraRunTest, KilledAndResumedIsTheUninterruptedRun) {
  const fs::path whole = run("whole");
  kill_and_resume(arguments("killed"), folder.path() / "killed", "grpo/step-2");
  for (const std::string stage : {"grpo/step-6/", "again/step-4/"})
    expect_same_checkpoints(whole, folder.path() / "killed",
                            {stage + "adapter_model.safetensors", stage + "trainer/trainer.safetensors"});
}

// A run can start from an adapter's folder: it continues to train the adapter without model.lora in the recipe.
TEST_F(LoraRunTest, AnAdapterIsAStart) {
  const fs::path last = run("whole") / "checkpoints" / "again" / "step-4";
  std::ofstream(folder.path() / "next.toml")
      << "[model]\npath = \"" << last.string()
      << "\"\n[[stage]]\nkind = \"sft\"\ngenerator = { kind = \"arithmetic\", digits = 1, heldout = 20 }\n"
         "prompt = \"{prompt}\"\ncompletion = \"{answer}\"\nsteps = 2\nbatch_size = 4\n";
  const Finished done =
      run_hone({"run", (folder.path() / "next.toml").string(), "runs=" + folder.path().string(), "name=next"});
  ASSERT_EQ(done.code, 0) << done.err;
  const fs::path out = folder.path() / "next" / "checkpoints" / "sft" / "step-2";
  EXPECT_TRUE(fs::exists(out / "adapter_model.safetensors"));
  EXPECT_FALSE(read_file(out / "adapter_model.safetensors") == read_file(last / "adapter_model.safetensors"));
}

// Checkpoints with adapters of experts say that they have no dropout, for PEFT. Training goes on with that of the
// folder that the run began with.
TEST_F(LoraRunTest, DropoutOfExpertsAdaptersSurvivesAResumption) {
  std::string experts = recipe.substr(0, recipe.find("[[stage]]\nkind = \"rl\""));
  experts.replace(experts.find("[model]\n"), 8,
                  "[model]\nfamily = \"olmoe\"\nrouter = { num_experts = 4, num_experts_per_tok = 2 }\n");
  const std::string sft =
      "[[stage]]\nkind = \"sft\"\ngenerator = { kind = \"arithmetic\", digits = 1, heldout = 20 }\n"
      "prompt = \"{prompt}\"\ncompletion = \"{answer}\"\nbatch_size = 4\nlearning_rate = 1e-2\n";
  std::ofstream(file()) << experts << sft << "steps = 2\n";
  const fs::path start = run("start") / "checkpoints" / "sft" / "step-2", config = start / "adapter_config.json";
  const auto train = [&](double dropout, const std::string& name) {
    Json edited = parse_json(read_file(config), "adapter_config.json");
    edited.set("lora_dropout", dropout);
    write_file_atomic(config, edited.dump());
    std::ofstream(folder.path() / "next.toml") << "[model]\npath = \"" << start.string() << "\"\n"
                                               << sft << "steps = 40\nsave_steps = 10\n";
    return std::vector<std::string>{"run", (folder.path() / "next.toml").string(), "runs=" + folder.path().string(),
                                    "name=" + name, "device=cpu"};
  };
  const std::string tensors = "sft/step-40/adapter_model.safetensors";
  ASSERT_EQ(run_hone(train(0, "without")).code, 0);
  ASSERT_EQ(run_hone(train(0.3, "whole")).code, 0);
  EXPECT_FALSE(read_file(folder.path() / "without/checkpoints" / tensors) ==
               read_file(folder.path() / "whole/checkpoints" / tensors));
  kill_and_resume(train(0.3, "killed"), folder.path() / "killed", "sft/step-10");
  expect_same_checkpoints(folder.path() / "whole", folder.path() / "killed", {tensors});
}

// A reward model that is an adapter with a head scores with both. The next stage starts from the same point as the
// reward model's stage.
TEST_F(LoraRunTest, ARewardModelIsAnAdapterWithItsHead) {
  const std::string pairs = (folder.path() / "pairs.jsonl").string();
  std::ofstream(pairs) << R"({"prompt": "1+1=", "chosen": "2", "rejected": "3"})" << '\n'
                       << R"({"prompt": "2+2=", "chosen": "4", "rejected": "3"})" << '\n';
  const std::string whole = recipe, rows = "files = [\"" + pairs + "\"]\nbatch_size = 2\nmax_length = 32\n";
  std::ofstream(file()) << whole.substr(0, whole.find("[[stage]]\nkind = \"rl\""))
                        << "[[stage]]\nkind = \"reward_model\"\nsteps = 20\nlearning_rate = 1e-2\n"
                        << rows << "[[stage]]\nkind = \"preference\"\nsteps = 3\n"
                        << rows;
  const fs::path checkpoints = run("pairs") / "checkpoints";
  const SafetensorsReader rewarder(checkpoints / "reward_model" / "step-20" / "adapter_model.safetensors");
  ASSERT_TRUE(rewarder.contains("base_model.model.score.weight"));
  float largest = 0;
  for (const float weight : rewarder.at("base_model.model.score.weight").as<float>())
    largest = std::max(largest, std::fabs(weight));
  EXPECT_GT(largest, 0);
  const SafetensorsReader policy(checkpoints / "dpo" / "step-3" / "adapter_model.safetensors");
  EXPECT_FALSE(policy.contains("base_model.model.score.weight"));
  std::vector<double> losses;
  read_jsonl(folder.path() / "pairs" / "metrics.jsonl", [&](const Json& row, int64_t) {
    if (const Json* loss = row.find("loss")) losses.push_back(loss->as_double());
  });
  ASSERT_EQ(losses.size(), 8u + 20 + 3);
  EXPECT_LT(losses[27], 0.5 * losses[8]);
  EXPECT_NEAR(losses[28], std::log(2.0), 1e-6);  // DPO starts at its reference
}

// The recipes with fewer steps.
TEST(LoraRecipes, SftAndDpoOnRealRowsAndGrpo) {
  HONE_SHARED_OR_SKIP(data, "data");
  const RecipeRun sft(data, "lora_sft", {"stage.sft.steps=20"});
  EXPECT_LT(sft.values("loss").back(), 0.85 * sft.values("loss").front());
  const RecipeRun dpo(data, "preference/dpo_lora",
                      {"stage.sft.steps=10", "stage.dpo.steps=12", "stage.dpo.limit=200", "stage.dpo.max_length=96"});
  EXPECT_NEAR(dpo.values("rewards/margins").front(), 0, 1e-6);  // the policy is still the reference
  EXPECT_GT(dpo.first_and_last("rewards/margins", 4).second, dpo.first_and_last("rewards/margins", 4).first);
  EXPECT_LT(dpo.values("eval_loss").back(), std::log(2.0));
  const RecipeRun grpo(data, "lora_grpo", {"stage.pretrain.steps=100", "stage.grpo.steps=6"});
  EXPECT_EQ(grpo.values("sampling/sampling_logp_difference/max"), std::vector<double>(6, 0.0));
  EXPECT_EQ(grpo.values("kl").front(), 0);
  EXPECT_GT(grpo.values("kl").back(), 0);
}

}  // namespace
}  // namespace hone::test
