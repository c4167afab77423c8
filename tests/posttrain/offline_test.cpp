#include "posttrain/offline.h"

#include <gtest/gtest.h>

#include "posttrain/reference.h"
#include "tests/data/entries.h"
#include "tests/train/rig.h"
#include "train/held_out.h"

namespace hone {
namespace {

using test::entries;

using test::make_samples, test::pointers, test::Rig;

std::vector<Group> numbered(int count) {
  std::vector<Group> out(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) out[static_cast<size_t>(i)].task.id = std::to_string(i);
  return out;
}

TEST(HoldOut, TakesAShareThatTheSeedDrawsAndKeepsTheOrder) {
  std::vector<Group> rest = numbered(40), again = numbered(40), other = numbered(40);
  const std::vector<Group> held = hold_out(rest, 0.25, 5);
  EXPECT_EQ(held.size(), 10u);
  EXPECT_EQ(rest.size(), 30u);
  std::vector<bool> seen(40);
  for (const std::vector<Group>* part : {&held, static_cast<const std::vector<Group>*>(&rest)})
    for (size_t i = 0; i < part->size(); ++i) {
      const int id = std::stoi((*part)[i].task.id);
      EXPECT_FALSE(seen[static_cast<size_t>(id)]);
      seen[static_cast<size_t>(id)] = true;
      if (i > 0) {
        EXPECT_GT(id, std::stoi((*part)[i - 1].task.id));
      }
    }
  const auto ids = [](const std::vector<Group>& groups) {
    std::string out;
    for (const Group& group : groups) out += group.task.id + " ";
    return out;
  };
  EXPECT_EQ(ids(held), ids(hold_out(again, 0.25, 5)));
  EXPECT_NE(ids(held), ids(hold_out(other, 0.25, 6)));
}

TEST(HoldOut, NeverTakesAllOrNothing) {
  std::vector<Group> two = numbered(2), one = numbered(1);
  EXPECT_EQ(hold_out(two, 0.01, 1).size(), 1u);
  EXPECT_THROW(hold_out(one, 0.5, 1), Error);
}

constexpr size_t lengths[] = {7, 12, 3, 9};

TEST(MeasureLoss, IsTheLossOfAStepThatLearnsNothing) {
  for (const char* name : {"sft", "dpo", "simpo", "orpo"}) {
    TrainerConfig config;
    config.optimizer = Choice<OptimizerSettings>("sgd"), config.micro_batch_tokens = 20;
    Rig rig(config);
    std::vector<Sample> samples = make_samples(lengths);
    for (Sample& sample : samples) sample.columns.assign(columns::reference_logp, sample.tokens.size(), -2.5f);
    const auto objective = make_objective(name);
    const Metrics measured = measure_loss(rig.context, *rig.model, rig.trainer, 1, pointers(samples), *objective);
    const std::vector<float> before = test::weights_of(*rig.model);
    const StepReport step = rig.trainer.step(pointers(samples), *objective, 0);
    EXPECT_NEAR(measured.at("loss"), step.loss, 1e-12 * (1 + std::abs(step.loss))) << name;
    for (const auto& [metric, value] : step.metrics)
      if (metric != "loss") {
        EXPECT_NEAR(measured.at(metric), value, 1e-9) << name << " " << metric;
      }
    EXPECT_EQ(before, test::weights_of(*rig.model));
  }
}

TEST(Reference, LogProbsScoredAtOnceOrWhenTheyAreNeededAreTheSameBits) {
  Rig rig;
  const auto groups_of = [](const std::vector<Sample>& samples) {
    std::vector<Group> out;
    for (const Sample& sample : samples) out.emplace_back().samples.push_back(sample);
    return out;
  };
  std::vector<Group> at_once = groups_of(make_samples(lengths)), one_by_one = at_once;
  Reference reference(rig.context, test::make_tiny(rig.context, test::tiny_config("llama")), 1);
  reference.score_into(at_once);
  for (const size_t i : {2, 0, 3, 1, 0}) {
    Sample* sample = &one_by_one[i].samples[0];
    reference.score_missing({&sample, 1});
  }
  for (size_t i = 0; i < at_once.size(); ++i)
    EXPECT_EQ(entries(at_once[i].samples[0], columns::reference_logp),
              entries(one_by_one[i].samples[0], columns::reference_logp))
        << i;
}

}  // namespace
}  // namespace hone
