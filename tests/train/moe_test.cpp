// Training a mixture of experts: the balance loss does not depend on micro-batches and ranks.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/elementwise/noise.h"
#include "model/forward.h"
#include "tests/model/tiny_model.h"
#include "tests/support/ranks.h"
#include "tests/train/rig.h"
#include "train/parallel/zero.h"

namespace hone::test {
namespace {

struct Outcome {
  StepReport report;
  std::vector<float> weights;
};

Outcome train(Context& context, const JsonObject& changes, int64_t micro_batch_tokens,
              const std::string& recompute = "none", StepExchange* ranks = nullptr) {
  TrainerConfig config;
  config.micro_batch_tokens = micro_batch_tokens;
  config.recompute = recompute;
  config.norm_piece = 64;
  const std::unique_ptr<Model> model =
      make_tiny(context, with(with(tiny_config("olmoe"), {{"num_experts_per_tok", 2}}), changes));
  Trainer trainer(context, *model, config, ranks);
  const size_t lengths[] = {7, 12, 3, 9};
  const std::vector<Sample> samples = make_samples(lengths);
  Outcome out{trainer.step(pointers(samples), *make_objective("sft"), 0.01), {}};
  model->gather_values();
  out.weights = weights_of(*model);
  return out;
}

class MoeTraining : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = cpu_device();
  Context context_{*device_};
};

TEST_F(MoeTraining, TheBalanceLossIsPartOfTheLoss) {
  const Outcome with_loss = train(context_, {}, 64), without = train(context_, {{"router_aux_loss_coef", 0.0}}, 64);
  const double balance = with_loss.report.metrics.at("moe/balance_loss");
  EXPECT_EQ(without.report.metrics.at("moe/balance_loss"), balance);
  EXPECT_NEAR(with_loss.report.loss - without.report.loss, 0.1 * balance, 1e-5);
  EXPECT_NE(with_loss.weights, without.weights);
}

// As in transformers, every token counts, also those of prompts, which the loss masks.
TEST_F(MoeTraining, TheBalanceLossCountsEveryToken) {
  const size_t lengths[] = {7, 12, 3, 9};
  const std::vector<Sample> samples = make_samples(lengths);
  for (const char* scope_name : {"sequence", "micro_batch"}) {
    SCOPED_TRACE(scope_name);
    const JsonObject changes{{"router_aux_loss_scope", scope_name}, {"num_experts_per_tok", 2}};
    const std::unique_ptr<Model> model = make_tiny(context_, with(tiny_config("olmoe"), changes));
    const ScratchScope scope(context_);
    std::vector<BatchPart> parts;
    for (const Sample& sample : samples) parts.push_back({.tokens = sample.tokens});
    const Batch batch = pack_batch(context_, context_.scratch(), parts);
    const auto tokens = static_cast<size_t>(batch.num_tokens);
    const std::vector<float> weights(tokens, 1 / static_cast<float>(tokens));
    std::vector<float> sums(static_cast<size_t>(model->num_aux_sums()));
    const std::vector<int32_t> rows{0};
    TrainingPass pass(context_, *model, Recompute::none);
    pass.forward(batch, host_view(std::span(rows)), {}, {},
                 {.weights = host_view(std::span(weights)), .sums = host_view(std::span(sums))});
    const AuxReport expected = model->end_step(context_, std::vector<double>(sums.begin(), sums.end()));
    const Outcome trained = train(context_, {{"router_aux_loss_scope", scope_name}}, 64);
    for (const auto& [name, value] : expected.metrics())
      EXPECT_NEAR(trained.report.metrics.at(name), value, 1e-5 * std::abs(value) + 1e-7) << name;
    // Shares of a layer's choices: whole numbers of the choices of all tokens.
    const double choices = trained.report.metrics.at("moe/load/0/0") * 2 * static_cast<double>(tokens);
    EXPECT_NEAR(choices, std::round(choices), 1e-4);
  }
}

TEST_F(MoeTraining, MicroBatchesChangeTheBalanceLossByRoundingOnly) {
  const Outcome whole = train(context_, {}, 64), split = train(context_, {}, 9),
                again = train(context_, {}, 64, "full");
  EXPECT_NEAR(split.report.loss, whole.report.loss, 1e-5 * whole.report.loss);
  EXPECT_NEAR(split.report.grad_norm, whole.report.grad_norm, 1e-4 * whole.report.grad_norm);
  for (const auto& [name, value] : whole.report.metrics)
    if (name.starts_with("moe/")) {
      EXPECT_NEAR(split.report.metrics.at(name), value, 1e-5) << name;
    }
  EXPECT_EQ(again.report.loss, whole.report.loss);
  EXPECT_EQ(again.weights, whole.weights);
}

TEST_F(MoeTraining, RanksHaveTheBitsOfOneTrainer) {
  const JsonObject changes{{"router_z_loss_coef", 0.01}, {"router_bias_update_rate", 0.01}};
  const Outcome expected = train(context_, changes, 9);
  on_ranks(3, [&](const Ranks& ranks, Context& context) {
    ZeroExchange exchange(*ranks.group(), 2);
    const Outcome own = train(context, changes, 9, "none", &exchange);
    EXPECT_EQ(own.report.loss, expected.report.loss);
    EXPECT_EQ(own.weights, expected.weights);
    EXPECT_EQ(own.report.metrics.at("moe/load_entropy"), expected.report.metrics.at("moe/load_entropy"));
  });
}

}  // namespace
}  // namespace hone::test
