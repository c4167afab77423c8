#include "train/step_plan.h"

#include <gtest/gtest.h>

#include "tests/train/rig.h"

namespace hone {
namespace {

using test::make_samples, test::pointers;

int64_t by_length(int64_t length) { return length * (100 + length); }

std::vector<std::vector<size_t>> cut(const std::vector<size_t>& lengths, size_t unit, int64_t max_tokens,
                                     int64_t multiple) {
  const std::vector<Sample> samples = make_samples(lengths);
  std::vector<const Sample*> order = pointers(samples);
  std::vector<std::vector<size_t>> out;
  for (const MicroBatch& micro :
       cut_micro_batches(order, {.unit = unit, .max_tokens = max_tokens, .multiple = multiple, .cost = by_length})) {
    std::vector<size_t>& members = out.emplace_back();
    for (size_t i = micro.begin; i < micro.end; ++i) members.push_back(static_cast<size_t>(order[i] - samples.data()));
  }
  return out;
}

using Cuts = std::vector<std::vector<size_t>>;

TEST(CutMicroBatches, AMultipleOfOneKeepsTheSamplesInOrder) {
  EXPECT_EQ(cut({4, 4, 3, 5, 2, 2}, 1, 8, 1), (Cuts{{0, 1}, {2, 3}, {4, 5}}));
  EXPECT_EQ(cut({4, 4, 3, 5, 2, 2}, 2, 11, 1), (Cuts{{0, 1}, {2, 3}, {4, 5}}));
}

TEST(CutMicroBatches, BalancesTheCost) {
  EXPECT_EQ(cut({2, 9, 3, 4, 8, 2}, 1, 100, 2), (Cuts{{0, 3, 4}, {1, 2, 5}}));
  EXPECT_EQ(cut({1, 1, 1, 1, 1, 1}, 1, 100, 3), (Cuts{{0, 3}, {1, 4}, {2, 5}}));
}

TEST(CutMicroBatches, KeepsPairsAndRoom) {
  const std::vector<size_t> lengths = {9, 1, 1, 8, 5, 5, 3, 3, 7, 2, 6, 6};
  for (const int64_t multiple : {2, 3, 4})
    for (const int64_t max_tokens : {12, 20, 100}) {
      const Cuts cuts = cut(lengths, 2, max_tokens, multiple);
      std::vector<size_t> all;
      for (const std::vector<size_t>& members : cuts) {
        int64_t tokens = 0;
        for (size_t i = 0; i < members.size(); ++i) {
          tokens += static_cast<int64_t>(lengths[members[i]]);
          EXPECT_EQ(members[i] % 2, i % 2);
          EXPECT_EQ(members[i] / 2, members[i / 2 * 2] / 2);
        }
        EXPECT_TRUE(tokens <= max_tokens || members.size() == 2);
        EXPECT_TRUE(std::ranges::is_sorted(members));
        all.insert(all.end(), members.begin(), members.end());
      }
      EXPECT_EQ(cuts.size() % static_cast<size_t>(multiple) == 0 || cuts.size() == lengths.size() / 2, true);
      std::ranges::sort(all);
      for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], i);
      EXPECT_EQ(all.size(), lengths.size());
    }
}

TEST(CutMicroBatches, FewSamplesAndLongOnes) {
  EXPECT_EQ(cut({5}, 1, 100, 4), (Cuts{{0}}));
  EXPECT_EQ(cut({}, 1, 100, 4), Cuts{});
  EXPECT_EQ(cut({30, 2, 2, 30}, 1, 8, 2).size(), 4u) << "two samples longer than a micro-batch, and two bins more";
  EXPECT_EQ(cut({30, 2}, 1, 8, 2), (Cuts{{0}, {1}}));
  EXPECT_THROW(cut({5, 5, 5}, 2, 100, 2), Error);
}

TEST(PlanStep, CountsWhatPrecedesEachMicroBatch) {
  std::vector<Sample> samples = make_samples(std::vector<size_t>{7, 12, 3, 9});
  std::ranges::fill(samples[1].columns[columns::mask], 0.0f);
  TrainerConfig config;
  config.micro_batch_tokens = 12;
  const test::Rig rig;
  const StepCost cost = cost_of(*rig.model);
  const StepPlan plan = plan_step(pointers(samples), *make_objective("sft"), config, rig.model->shape(), cost);
  ASSERT_EQ(plan.micro_batches.size(), 3u);
  const auto facts = [&](size_t i) {
    const PlannedMicroBatch& m = plan.micro_batches[i];
    return std::vector<int64_t>{m.num_tokens, m.num_rows, m.first_token, m.first_row};
  };
  EXPECT_EQ(facts(0), (std::vector<int64_t>{7, 5, 0, 0}));
  EXPECT_EQ(facts(1), (std::vector<int64_t>{12, 0, 7, 5}));
  EXPECT_EQ(facts(2), (std::vector<int64_t>{12, 8, 19, 5}));
  EXPECT_EQ(plan.num_active(), 2u);
  EXPECT_EQ(plan.num_tokens, 31);
  EXPECT_EQ(plan.num_trained, 13);
  EXPECT_EQ(plan.scale, 1.0 / 13);
  EXPECT_TRUE(plan.idle.empty());
  double flops = 0;
  for (const int64_t length : {7, 12, 3, 9}) flops += cost.flops(length);
  EXPECT_EQ(plan.flops, flops);
}

}  // namespace
}  // namespace hone
