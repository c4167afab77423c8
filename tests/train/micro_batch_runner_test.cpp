#include "train/micro_batch_runner.h"

#include "tests/train/rig.h"

namespace hone {
namespace {

using test::make_samples, test::pointers, test::Rig;

constexpr size_t lengths[] = {7, 12, 3};

// A loss, and the gradients that a pass adds to zeroed ones.
struct Taken {
  double loss = 0;
  std::vector<float> logp, grads;
};

Taken take(bool linear) {
  Rig rig;
  rig.model->zero_grad(rig.context);
  const auto sft = make_objective("sft");
  PhaseTimer phases(rig.context);
  MicroBatchRunner pass(rig.context, *rig.model, {}, phases);
  const std::vector<Sample> samples = make_samples(lengths);
  MicroBatchData staging;
  staging.fill(pointers(samples));
  Taken out;
  MetricSums metrics;
  constexpr double scale = 0.125;
  phases.begin();
  if (linear) {
    std::vector<float> rows(staging.rows().size());
    const Tensor logp = host_view(std::span<float>(rows));
    pass.queue_static_grad(staging, *sft, scale, {}, logp, {});
    rig.context.synchronize();
    pass.read_rows(staging, logp, staging.logp);
    out.loss = pass.evaluate(staging, *sft, scale, metrics);
  } else {
    out.loss = pass.run(staging, *sft, scale, {}, nullptr, metrics);
  }
  out.logp = staging.logp;
  const auto grads = rig.model->flat_grads().as<float>();
  out.grads.assign(grads.begin(), grads.end());
  return out;
}

TEST(MicroBatchRunner, OnePassOverTheVocabularyAndTwoLearnTheSame) {
  const Taken one = take(true), two = take(false);
  EXPECT_EQ(one.loss, two.loss);
  EXPECT_EQ(one.logp, two.logp);
  double norm = 0;
  for (size_t i = 0; i < one.grads.size(); ++i) {
    ASSERT_NEAR(one.grads[i], two.grads[i], 1e-6) << i;
    norm += one.grads[i] * one.grads[i];
  }
  EXPECT_GT(norm, 1e-4);
}

// A batch without trained tokens is evaluated without a forward pass.
TEST(MicroBatchRunner, NothingToTrainOnHasNoLossAndNoGradient) {
  Rig rig;
  rig.model->zero_grad(rig.context);
  PhaseTimer phases(rig.context);
  MicroBatchRunner pass(rig.context, *rig.model, {}, phases);
  std::vector<Sample> samples = make_samples(lengths);
  for (Sample& sample : samples) sample.columns.assign(columns::mask, sample.columns.find(columns::mask).size(), 0);
  MicroBatchData staging;
  staging.fill(pointers(samples));
  MetricSums metrics;
  EXPECT_EQ(pass.run(staging, *make_objective("sft"), 1, {}, nullptr, metrics), 0);
  for (const float grad : rig.model->flat_grads().as<float>()) ASSERT_EQ(grad, 0);
}

}  // namespace
}  // namespace hone
