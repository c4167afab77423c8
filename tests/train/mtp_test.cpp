// Training with multi-token prediction: its loss, micro-batches, ranks, adapters and critics.
#include "model/mtp.h"

#include <gtest/gtest.h>

#include "tests/support/ranks.h"
#include "tests/train/rig.h"
#include "train/parallel/zero.h"

namespace hone::test {
namespace {

struct Settings {
  std::string family = "qwen3";
  JsonObject changes{{"num_nextn_predict_layers", 2}};
  int64_t micro_batch_tokens = 64;
  std::string recompute = "none", trunk = "shared", objective = "sft";
  int steps = 1;
  LoraConfig lora{};
};

struct Outcome {
  StepReport report;
  std::vector<float> weights, base;
};

Outcome train(Context& context, const Settings& settings, StepExchange* ranks = nullptr) {
  TrainerConfig config;
  config.micro_batch_tokens = settings.micro_batch_tokens;
  config.recompute = settings.recompute;
  config.norm_piece = 64;
  config.critic.trunk = settings.trunk;
  const std::unique_ptr<Model> model =
      make_tiny(context, with(tiny_config(settings.family), settings.changes), true, settings.lora);
  Trainer trainer(context, *model, config, ranks);
  const size_t lengths[] = {7, 12, 3, 9};
  std::vector<Sample> samples = make_samples(lengths);
  Outcome out;
  for (int i = 0; i < settings.steps; ++i)
    out.report = trainer.step(pointers(samples), *make_objective(settings.objective), 0.01);
  model->gather_values();
  out.weights = weights_of(*model);
  for (const Param* param : model->base_params())
    for (const float value : param->value.as<float>()) out.base.push_back(value);
  return out;
}

class MtpTraining : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = cpu_device();
  Context context_{*device_};
};

TEST_F(MtpTraining, TheLossIsPartOfTheLoss) {
  // One module predicts every trained token: the masks begin at the third.
  const Outcome with_loss = train(context_, {.changes = {{"num_nextn_predict_layers", 1}}}),
                without = train(context_, {.changes = {{"num_nextn_predict_layers", 1}, {"mtp_loss_coef", 0.0}}});
  const double loss = with_loss.report.metrics.at("mtp/loss");
  EXPECT_GT(loss, 1);
  EXPECT_NEAR(with_loss.report.loss - without.report.loss, 0.3 * loss, 1e-5);
  EXPECT_NE(with_loss.weights, without.weights);
  EXPECT_EQ(without.report.metrics.count("mtp/loss"), 0u);
}

TEST_F(MtpTraining, LearnsToPredict) {
  const Outcome first = train(context_, {.objective = "sft", .steps = 1}),
                last = train(context_, {.objective = "sft", .steps = 200});
  EXPECT_LT(last.report.metrics.at("mtp/loss"), 0.3 * first.report.metrics.at("mtp/loss"));
  EXPECT_GT(last.report.metrics.at("mtp/accuracy"), 0.9);
}

TEST_F(MtpTraining, MicroBatchesAndRecomputationChangeNothingButRounding) {
  for (const char* family : {"qwen3", "olmoe"}) {
    const Outcome whole = train(context_, {.family = family}),
                  split = train(context_, {.family = family, .micro_batch_tokens = 9}),
                  full = train(context_, {.family = family, .recompute = "full"}),
                  selective = train(context_, {.family = family, .recompute = "selective"});
    EXPECT_NEAR(split.report.loss, whole.report.loss, 1e-5 * whole.report.loss);
    EXPECT_NEAR(split.report.grad_norm, whole.report.grad_norm, 1e-4 * whole.report.grad_norm);
    for (const char* name : {"mtp/loss", "mtp/accuracy"})
      EXPECT_NEAR(split.report.metrics.at(name), whole.report.metrics.at(name), 1e-5) << name;
    EXPECT_EQ(full.weights, whole.weights);
    EXPECT_EQ(selective.weights, whole.weights);
  }
}

TEST_F(MtpTraining, RanksHaveTheBitsOfOneTrainer) {
  for (const bool tied : {false, true}) {
    const Settings settings{.changes = {{"num_nextn_predict_layers", 2}, {"tie_word_embeddings", tied}},
                            .micro_batch_tokens = 9,
                            .steps = 2};
    const Outcome expected = train(context_, settings);
    for (const int stage : {1, 2, 3})
      for (const int count : {2, 3})
        on_ranks(count, [&](const Ranks& ranks, Context& context) {
          ZeroExchange exchange(*ranks.group(), stage);
          const Outcome own = train(context, settings, &exchange);
          SCOPED_TRACE(concat("stage ", stage, ", ranks ", count, ", tied ", tied));
          const double loss = own.report.metrics.at("mtp/loss"), wanted = expected.report.metrics.at("mtp/loss");
          EXPECT_NEAR(loss, wanted, 1e-6 * wanted);  // stage 1 adds the micro-batches of a rank first
          if (stage > 1) {
            EXPECT_EQ(loss, wanted);
            EXPECT_EQ(own.weights, expected.weights);
          }
          EXPECT_NEAR(own.report.loss, expected.report.loss, 1e-6 * expected.report.loss);
        });
  }
}

TEST_F(MtpTraining, FrozenModulesGiveAdaptersAGradient) {
  const LoraConfig lora{.r = 2, .target_modules = {"all-linear"}};
  const Outcome start = train(context_, {.steps = 0, .lora = lora}), own = train(context_, {.lora = lora}),
                without = train(context_,
                                {.changes = {{"num_nextn_predict_layers", 2}, {"mtp_loss_coef", 0.0}}, .lora = lora});
  EXPECT_EQ(own.base, start.base);
  EXPECT_NE(own.weights, start.weights);
  EXPECT_NE(own.report.grad_norm, without.report.grad_norm);
}

// A router's bias is not trained; a critic's lm_head neither. Both lie in the back unit.
TEST_F(MtpTraining, UntrainedParametersOfTheBackUnitAreNoObstacle) {
  const Outcome own = train(context_, {.family = "deepseek_v3",
                                       .changes = {{"num_nextn_predict_layers", 2}, {"router_bias_update_rate", 0.01}},
                                       .micro_batch_tokens = 9});
  EXPECT_EQ(own.report.metrics.count("mtp/loss"), 1u);
  Settings settings{.trunk = "separate"};
  TrainerConfig config;
  config.critic.trunk = "separate";
  const std::unique_ptr<Model> model = make_tiny(context_, with(tiny_config("qwen3"), settings.changes));
  Trainer trainer(context_, *model, config);
  const size_t lengths[] = {7, 3};
  const std::vector<Sample> samples = make_samples(lengths);
  for (const std::vector<float>& values : trainer.values(pointers(samples)))
    for (const float value : values) EXPECT_EQ(value, 0);
}

}  // namespace
}  // namespace hone::test
