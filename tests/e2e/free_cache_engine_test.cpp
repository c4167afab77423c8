// rollout.free_cache_engine: the learner and its engine hold device memory in turn. Runs have the same bits with it, on
// any number of ranks and after a kill, and need less memory, as planned.
#include "tests/e2e/ranks_run.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* sums = R"(
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
learning_rate = 1e-3
save_steps = 1
save_total_limit = 0
micro_batch_tokens = 48
prompts_per_step = 4
num_generations = 3
sampling = { max_tokens = 12 }
reward = { kind = "length", unit = "bytes", limit = 20, target = 3 }
)";

// The evaluation after each second step makes an engine of its own beside the one that rests.
const std::string recipe = tiny_recipe("turns", 2,
                                       concat(ranks_pretrain, R"(
[[eval]]
task = "arithmetic"
limit = 5
[[stage]]
kind = "rl"
objective = "grpo"
beta = 0.05
num_mini_batches = 2
eval_steps = 2
steps = 4)",
                                              sums, R"(
[[stage]]
kind = "rl"
objective = "ppo"
name = "separate"
critic = { trunk = "separate" }
num_iterations = 2
steps = 3)",
                                              sums, R"(
[[stage]]
kind = "online_dpo"
steps = 3)",
                                              sums));

class FreeCacheEngine : public RanksRun {
 protected:
  FreeCacheEngine() : RanksRun("cpu", recipe) {}
  static std::vector<std::string> turns(std::vector<std::string> more = {}) {
    more.emplace_back("rollout.free_cache_engine=true");
    return more;
  }
};

TEST_F(FreeCacheEngine, ChangesNoBitOnAnyNumberOfRanks) {
  const fs::path kept = run_on(1);
  expect_same_run(kept, run_on(1, turns(), "one"));
  expect_same_run(kept, run_on(2, turns(), "two"));
  expect_same_run(kept, run_on(2, turns({"parallel.zero=3"}), "divided"));
}

TEST_F(FreeCacheEngine, KilledAndResumedIsTheUninterruptedRun) {
  const fs::path kept = run_on(1);
  for (const char* at : {"grpo/step-2", "separate/step-1", "online_dpo/step-2"}) {
    SCOPED_TRACE(at);
    const std::string name = concat("killed-", std::string(at).substr(0, 3));
    kill_and_resume(arguments(name, turns({"parallel.ranks=1", "parallel.micro_batch_multiple=2"})),
                    folder.path() / name, at);
    expect_same_run(kept, folder.path() / name);
  }
}

// The key may change when a run is resumed.
TEST_F(FreeCacheEngine, AResumedRunMayBeginAndEndTurns) {
  const fs::path kept = run_on(1);
  for (const bool first : {true, false}) {
    const std::string name = concat("from-", first ? "true" : "false");
    const auto key = [](bool on) { return concat("rollout.free_cache_engine=", on ? "true" : "false"); };
    const fs::path run = folder.path() / name;
    end_at_checkpoint(arguments(name, {"parallel.ranks=1", "parallel.micro_batch_multiple=2", key(first)}), run,
                      "grpo/step-2", SIGKILL);
    const Finished resumed = run_hone({"run", "--resume", run.string(), key(!first)});
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    expect_same_run(kept, run);
  }
}

TEST_F(FreeCacheEngine, ChangesNoBitOfAdaptersAndQuantizedRollouts) {
  const std::vector<std::vector<std::string>> all{{"model.lora={r=4, target_modules=\"all-linear\"}"},
                                                  {"rollout.quantization=int8", "rollout.kv_cache_dtype=fp8"},
                                                  {"rollout.speculative.method=ngram"}};
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(all[i].front());
    expect_same_run(run_on(1, all[i], concat("kept-", i)), run_on(1, turns(all[i]), concat("turns-", i)));
  }
}

// The largest figure of a metric of memory.
double highest(const fs::path& run, const std::string& metric) {
  double out = 0;
  read_jsonl(run / "metrics.jsonl", [&](const Json& row, int64_t) {
    if (const Json* value = row.find(metric)) out = std::max(out, value->as_double());
  });
  return out;
}

// One rl stage whose activations and KV cache are about the same size.
class FreeCacheEngineMemory : public WholeRun {
 protected:
  FreeCacheEngineMemory()
      : WholeRun(R"(
seed = 1
device = { kind = "cpu", memory = "4 GB" }
[model]
hidden_size = 128
num_hidden_layers = 4
num_attention_heads = 4
max_position_embeddings = 64
[rollout]
kv_cache_tokens = 8192
max_num_seqs = 64
[[stage]]
kind = "tokenizer"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
vocab_size = 270
[[stage]]
kind = "rl"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
prompts_per_step = 16
num_generations = 4
micro_batch_tokens = 1024
steps = 3
beta = 0.1
sampling = { max_tokens = 63, ignore_eos = true }   # the model's positions end each completion
reward = { kind = "number" }
)") {}
};

TEST_F(FreeCacheEngineMemory, IsLowerWhileTheLearnerTrainsAndAsPlanned) {
  const fs::path kept = run("kept");
  const Finished done = run_hone(arguments("turns", {"rollout.free_cache_engine=true"}));
  ASSERT_EQ(done.code, 0) << done.err;
  const fs::path turns = folder.path() / "turns";
  expect_same_rows(kept / "metrics.jsonl", turns / "metrics.jsonl");
  const double cache = 8192.0 * 4 * 2 * 128 * 4 * 1e-9, plan = highest(turns, "memory/planned_gb"),
               peak = highest(turns, "memory/peak_gb");
  // Behind a step the engine rests, and the activations are there until the next one.
  EXPECT_LE(highest(turns, "memory/allocated_gb"), highest(kept, "memory/allocated_gb") - cache);
  EXPECT_LE(peak, highest(kept, "memory/peak_gb") - 0.5 * cache);
  EXPECT_LE(peak, plan);
  EXPECT_LE(plan, 1.1 * peak);
}

}  // namespace
}  // namespace hone::test
