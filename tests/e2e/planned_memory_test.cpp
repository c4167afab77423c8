// hone plan against runs on several ranks: each rank uses the memory that the plan says, for every ZeRO stage.
#include <algorithm>
#include <map>

#include "tests/e2e/whole_run.h"

namespace hone::test {
namespace {

// Samples of nearly equal lengths, so that a run takes what the plan of the longest says.
constexpr const char* recipe = R"(
seed = 1
device = { kind = "cpu", memory = "4 GB" }
[model]
hidden_size = 128
num_hidden_layers = 3
num_attention_heads = 4
intermediate_size = 384
max_position_embeddings = 64
[parallel]
micro_batch_multiple = 6
[rollout]
kv_cache_tokens = 4096
max_num_seqs = 16
[[stage]]
kind = "tokenizer"
generator = { kind = "arithmetic", digits = 2, heldout = 20 }
documents = 500
vocab_size = 288
[[stage]]
kind = "pretrain"
generator = { kind = "arithmetic", digits = 2, heldout = 20 }
documents = 2000
max_length = 64
batch_size = 24
micro_batch_tokens = 256
steps = 2
[[stage]]
kind = "sft"
generator = { kind = "arithmetic", digits = 2, heldout = 20 }
batch_size = 144
micro_batch_tokens = 256
steps = 3
[[stage]]
kind = "rl"
generator = { kind = "arithmetic", digits = 2, heldout = 20 }
prompts_per_step = 6
num_generations = 8
micro_batch_tokens = 512
steps = 2
beta = 0.1   # gives equal rewards a gradient
sync_ref_model = true
ref_model_sync_steps = 1
sampling = { max_tokens = 63, ignore_eos = true }   # the model's positions end each completion
reward = { kind = "number" }
)";

class PlannedMemory : public WholeRun, public ::testing::WithParamInterface<std::pair<int, int>> {
 protected:
  PlannedMemory() : WholeRun(recipe) {}
};

// The run's peak after each stage, of rank 0.
std::map<int64_t, double> peaks_by_stage(const std::filesystem::path& run) {
  std::map<int64_t, double> out;
  read_jsonl(run / "metrics.jsonl", [&](const Json& row, int64_t) {
    if (const Json* peak = row.find("memory/peak_gb"), *stage = row.find("stage"); peak && stage)
      out[static_cast<int64_t>(stage->as_double())] = 1e9 * peak->as_double();
  });
  return out;
}

TEST_P(PlannedMemory, OfEachRankIsWithinFivePercent) {
  const auto [ranks, zero] = GetParam();
  const std::vector<std::string> layout{concat("parallel.ranks=", ranks), concat("parallel.zero=", zero)};
  const Finished done = run_hone(arguments("run", layout));
  ASSERT_EQ(done.code, 0) << done.err;
  const Finished planned = run_hone({"plan", file().string(), "--json", layout[0], layout[1]});
  ASSERT_EQ(planned.code, 0) << planned.err;
  const Json plan = parse_json(planned.out, "plan");
  const JsonArray& stages = plan.at("stages").as_array();
  ASSERT_EQ(stages.size(), 3u);
  // Peaks only grow, so each is compared with the largest plan so far.
  std::vector<double> largest(static_cast<size_t>(ranks));
  const std::map<int64_t, double> peaks = peaks_by_stage(folder.path() / "run");
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const JsonArray& of_ranks = stages[stage].at("ranks").as_array();
    ASSERT_EQ(of_ranks.size(), static_cast<size_t>(ranks));
    for (size_t rank = 0; rank < of_ranks.size(); ++rank)
      largest[rank] = std::max(largest[rank], of_ranks[rank].at("memory").at("total").as_double());
    // ZeRO-3 gathers whole values behind the last step of pretraining, to save them.
    const double measured = peaks.at(static_cast<int64_t>(stage) + 1), least = zero == 3 && stage == 0 ? 0.8 : 0.95;
    EXPECT_GE(measured, least * largest[0]) << stages[stage].at("name").as_string();
    EXPECT_LE(measured, 1.01 * largest[0]) << stages[stage].at("name").as_string();
  }
  const Json state = parse_json(read_file(folder.path() / "run" / "run.json"), "run.json");
  const Json& memory = state.at("about").at("memory");
  const JsonArray& measured = memory.at("rank_peak_bytes").as_array();
  ASSERT_EQ(measured.size(), static_cast<size_t>(ranks));
  double highest = 0;
  for (size_t rank = 0; rank < measured.size(); ++rank) {
    EXPECT_NEAR(measured[rank].as_double() / largest[rank], 1, 0.05) << "rank " << rank;
    highest = std::max(highest, measured[rank].as_double());
  }
  EXPECT_EQ(memory.at("peak_bytes").as_double(), highest);
  EXPECT_EQ(memory.at("planned_bytes").as_double(), *std::ranges::max_element(largest));
}

INSTANTIATE_TEST_SUITE_P(Layouts, PlannedMemory,
                         ::testing::Values(std::pair{1, 2}, std::pair{2, 2}, std::pair{3, 2}, std::pair{2, 1},
                                           std::pair{3, 3}),
                         [](const auto& layout) {
                           return concat("Ranks", layout.param.first, "Zero", layout.param.second);
                         });

}  // namespace
}  // namespace hone::test
