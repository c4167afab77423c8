// A step's gradient is the left fold of its micro-batches' gradients, and an update of shards is the update of the
// whole: N ranks give the bits of one.
#include "tests/train/hand_ranks.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

using test::make_samples, test::pointers;

// Odd lengths; the fourth sample is not trained on, so it makes a micro-batch of its own with nothing to learn.
std::vector<Sample> samples_of(int step) {
  std::vector<size_t> lengths = {7, 12, 3, 13, 9, 2, 14, 5, 11};
  lengths.resize(lengths.size() - static_cast<size_t>(step));
  std::vector<Sample> out = make_samples(lengths);
  for (Sample& sample : out) std::ranges::rotate(sample.tokens, sample.tokens.begin() + step % 2);
  std::ranges::fill(out[3].columns[columns::mask], 0.0f);
  for (size_t i = 0; i < out.size(); ++i)
    out[i].columns.assign(columns::returns, out[i].tokens.size(), 0.5f - 0.25f * static_cast<float>(i));
  return out;
}

// Its gradient depends on the log-probs and, with a critic, on the values.
struct Squares : Objective {
  explicit Squares(bool with_critic) : critic(with_critic) {}
  Needs needs() const override { return {.critic = critic}; }
  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    double sum = 0;
    for (size_t t = 0; t < batch[columns::logp].size(); ++t) {
      const double weight = batch.scale * batch[columns::mask][t], logp = batch[columns::logp][t];
      sum += weight * logp * logp;
      grad.logp[t] = static_cast<float>(2 * weight * logp);
      metrics.add("logp", logp, batch[columns::mask][t]);
      metrics.minimum("logp/min", logp);
      if (!critic) continue;
      const double error = batch[columns::value][t] - batch[columns::returns][t];
      sum += 0.5 * weight * error * error;
      grad.value[t] = static_cast<float>(weight * error);
      metrics.maximum("error/max", error);
    }
    return sum;
  }
  bool critic;
};

TEST(HandRanks, AnyNumberGivesTheBitsOfOne) {
  for (const test::RunCase& run : test::run_cases())
    for (const size_t ranks : {1u, 2u, 3u, 4u}) {
      test::expect_ranks_equal_one(ranks, run, *make_objective("sft"), samples_of);
      test::expect_ranks_equal_one(ranks, run, Squares(false), samples_of);
    }
}

TEST(HandRanks, ACriticIsFoldedAlike) {
  for (const char* trunk : {"shared", "separate"})
    for (test::RunCase run : test::run_cases()) {
      run.name += concat(", critic ", trunk);
      run.config.critic.trunk = trunk;
      test::expect_ranks_equal_one(3, run, Squares(true), samples_of);
    }
}

// The staging buffers are needed: the embedding and a tied lm_head add to the same gradient, so micro-batches that add
// to one buffer leave other bits.
TEST(HandRanks, AddingInPlaceHasOtherBits) {
  TrainerConfig config;
  config.micro_batch_tokens = 14;
  const std::unique_ptr<Device> device = test::cpu_device();
  Context context(*device);
  const Json tied = test::with(test::tiny_config("llama"), {{"tie_word_embeddings", true}});
  const std::unique_ptr<Model> folded = test::make_tiny(context, tied), in_place = test::make_tiny(context, tied);
  Trainer trainer(context, *folded, config);
  const std::vector<Sample> samples = samples_of(0);
  const auto sft = make_objective("sft");
  trainer.step(pointers(samples), *sft, 0);
  const StepPlan plan = plan_step(pointers(samples), *sft, config, in_place->shape(), cost_of(*in_place));
  PhaseTimer phases(context);
  MicroBatchRunner runner(context, *in_place, config, phases);
  in_place->zero_grad(context);
  phases.begin();
  for (const PlannedMicroBatch& micro : plan.micro_batches) {
    MicroBatchData data;
    data.fill(plan.samples_of(micro));
    std::vector<float> logp(static_cast<size_t>(micro.num_rows));
    runner.queue_static_grad(data, *sft, plan.scale, {}, host_view(std::span(logp)), {});
  }
  const auto a = folded->flat_grads().as<float>(), b = in_place->flat_grads().as<float>();
  EXPECT_FALSE(std::ranges::equal(a, b));
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-6) << i;
}

}  // namespace
}  // namespace hone
