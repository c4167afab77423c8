#include "train/memory_plan.h"

#include "tests/train/rig.h"

namespace hone {
namespace {

using test::pointers, test::Rig;

// Samples with all tokens but the first trained on, as the plan counts them.
std::vector<Sample> whole(size_t count, size_t length) {
  const std::vector<size_t> lengths(count, length);
  std::vector<Sample> out = test::make_samples(lengths);
  for (Sample& sample : out) sample.columns[columns::mask][1] = 1;
  return out;
}

TrainerConfig micro_batches_of(int64_t tokens) {
  TrainerConfig out;
  out.micro_batch_tokens = tokens;
  return out;
}

StepPlan plan_of(Rig& rig, const std::vector<Sample>& samples, int64_t micro_batch_tokens) {
  return plan_step(pointers(samples), *make_objective("sft"), micro_batches_of(micro_batch_tokens), rig.model->shape(),
                   cost_of(*rig.model));
}

std::optional<PeakBytes> widen(MemoryPlan& reservation, Rig& rig, const std::vector<Sample>& samples,
                               int64_t micro_batch_tokens = 4096) {
  return reservation.grow_to_fit(rig.context, *rig.model, micro_batches_of(micro_batch_tokens), *make_objective("sft"),
                                 plan_of(rig, samples, micro_batch_tokens));
}

TEST(MemoryPlan, IsWhatTheLargestMicroBatchThenTakes) {
  Rig rig(micro_batches_of(20));
  const std::vector<Sample> samples = whole(5, 10);  // micro-batches of two, two and one sample
  MemoryPlan reservation;
  const std::optional<PeakBytes> counted = widen(reservation, rig, samples, 20);
  ASSERT_TRUE(counted);
  rig.trainer.step(pointers(samples), *make_objective("sft"), 0);
  EXPECT_EQ(counted->tape, rig.trainer.peak().tape);
  EXPECT_EQ(counted->columns, rig.trainer.peak().columns);
  EXPECT_EQ(counted->critic, 0u);
  EXPECT_GT(counted->scratch, 0u);
  // The plan omits bodies that do not report their scratch memory.
  EXPECT_LE(counted->scratch, rig.trainer.peak().scratch);
}

TEST(MemoryPlan, ASecondOneIsWiderThanAskedForAndServesWhatIsSmaller) {
  Rig rig;
  MemoryPlan reservation;
  const std::optional<PeakBytes> first = widen(reservation, rig, whole(4, 8)),
                                 second = widen(reservation, rig, whole(4, 12));
  ASSERT_TRUE(first && second);
  EXPECT_GT(second->tape, first->tape);
  EXPECT_FALSE(widen(reservation, rig, whole(4, 12)));
  EXPECT_FALSE(widen(reservation, rig, whole(5, 12)));  // 60 tokens fit: the second plan adds a quarter to 48
  EXPECT_TRUE(widen(reservation, rig, whole(6, 12)));
}

TEST(MemoryPlan, WhatOnlyCountsTakesNone) {
  const std::unique_ptr<Device> meta = devices().at("meta")(0);
  Context counting(*meta);
  Rig rig;
  EXPECT_FALSE(
      MemoryPlan().grow_to_fit(counting, *rig.model, {}, *make_objective("sft"), plan_of(rig, whole(1, 4), 4096)));
}

}  // namespace
}  // namespace hone
