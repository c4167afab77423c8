// Losses made inside layers, in a trainer: they reach the step's loss, its metrics and the gradients.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/layer_models.h"
#include "tests/support/ranks.h"
#include "tests/train/rig.h"
#include "train/parallel/zero.h"

namespace hone::test {
namespace {

// A family of this program: config.json lists the layers.
std::unique_ptr<Model> make_listed(const Json& config, std::string_view) {
  std::vector<std::string> layers;
  for (const Json& layer : config.at("layers").as_array()) layers.push_back(layer.as_string());
  return make_model_of(layers, config);
}
[[maybe_unused]] const bool added = families().add("listed_layers", make_listed);

Json listed(const JsonArray& layers) { return JsonObject{{"model_type", "listed_layers"}, {"layers", layers}}; }

struct Outcome {
  StepReport report;
  std::vector<float> weights;
};

Outcome train(Context& context, const JsonArray& layers, const char* objective, int64_t micro_batch_tokens,
              const std::string& recompute = "none", StepExchange* ranks = nullptr) {
  TrainerConfig config;
  config.micro_batch_tokens = micro_batch_tokens;
  config.recompute = recompute;
  config.norm_piece = 64;
  const std::unique_ptr<Model> model = make_tiny(context, listed(layers));
  Trainer trainer(context, *model, config, ranks);
  const size_t lengths[] = {7, 12, 3, 9};
  const std::vector<Sample> samples = make_samples(lengths);
  Outcome out{trainer.step(pointers(samples), *make_objective(objective), 0.01), {}};
  model->gather_values();
  out.weights = weights_of(*model);
  return out;
}

class AuxLossInTraining : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = cpu_device();
  Context context_{*device_};
};

TEST_F(AuxLossInTraining, ReachesLossMetricsAndWeights) {
  const Outcome with = train(context_, {"pa", "ps"}, "sft", 64), without = train(context_, {"ps", "ps"}, "sft", 64);
  // Each trained token has the weight 1 / (number of trained tokens).
  EXPECT_NEAR(with.report.metrics.at("weight"), 1, 1e-5);
  const double term = MlpWithLoss::factor * with.report.metrics.at("norm_max");
  EXPECT_GT(term, 0);
  EXPECT_NEAR(with.report.loss - without.report.loss, term, 1e-5 * term);
  EXPECT_NE(with.report.grad_norm, without.report.grad_norm);
  EXPECT_EQ(without.report.metrics.count("weight"), 0u);
}

TEST_F(AuxLossInTraining, MicroBatchesAndRecomputationChangeNothingButRounding) {
  const Outcome whole = train(context_, {"pa", "oa"}, "sft", 64), split = train(context_, {"pa", "oa"}, "sft", 9),
                again = train(context_, {"pa", "oa"}, "sft", 64, "full");
  EXPECT_NEAR(split.report.loss, whole.report.loss, 1e-5 * whole.report.loss);
  EXPECT_NEAR(split.report.grad_norm, whole.report.grad_norm, 1e-4 * whole.report.grad_norm);
  EXPECT_EQ(again.report.loss, whole.report.loss);
  EXPECT_EQ(again.weights, whole.weights);
}

TEST_F(AuxLossInTraining, RanksHaveTheBitsOfOneTrainer) {
  const Outcome expected = train(context_, {"pa", "pa"}, "sft", 9);
  for (const int stage : {1, 2, 3})
    on_ranks(3, [&](const Ranks& ranks, Context& context) {
      ZeroExchange exchange(*ranks.group(), stage);
      const Outcome own = train(context, {"pa", "pa"}, "sft", 9, "none", &exchange);
      if (stage > 1) {
        EXPECT_EQ(own.report.loss, expected.report.loss);
        EXPECT_EQ(own.weights, expected.weights);
      }
      EXPECT_NEAR(own.report.loss, expected.report.loss, 1e-6 * expected.report.loss);
      EXPECT_EQ(own.report.metrics.at("norm_max"), expected.report.metrics.at("norm_max"));
    });
}

}  // namespace
}  // namespace hone::test
