// Every model family, with all weights and with adapters, under every objective: the gradient that the trainer writes
// is that of the step's loss, measured along the gradient's direction.
#include <cmath>

#include "tests/train/rig.h"
#include "train/teacher.h"

namespace hone {
namespace {

using test::make_samples, test::pointers, test::Rig;

constexpr size_t lengths[] = {7, 9, 3, 8};

// Every column that an objective may read; log-ratios are inside the clip range.
std::vector<Sample> full_samples(Rig& rig) {
  std::vector<Sample> samples = make_samples(lengths);
  std::vector<std::vector<int32_t>> sequences;
  for (const Sample& sample : samples) sequences.push_back(sample.tokens);
  const std::vector<TokenLogprobs> scores = compute_logprobs(rig.context, *rig.model, sequences, {});
  for (size_t s = 0; s < samples.size(); ++s) {
    Sample& sample = samples[s];
    const size_t n = sample.tokens.size();
    sample.columns.set(columns::behavior_logp, scores[s].logp);
    sample.columns.set(columns::reference_logp, scores[s].logp);
    for (size_t t = 0; t < n; ++t)
      sample.columns[columns::behavior_logp][t] += 0.05f,
          sample.columns[columns::reference_logp][t] -= 0.3f * static_cast<float>(s + 1);
    sample.columns.assign(columns::advantage, n, 0.5f + static_cast<float>(s)),
        sample.columns.assign(columns::returns, n, 0.5f), sample.columns.assign(columns::old_value, n, 0);
    for (const Column column : all_columns())  // columns of objectives: labels, margins
      if (!sample.columns.has(column))
        sample.columns.assign(column, column.size(1, n), column.info().per_sequence ? (s % 2 == 0 ? 1.f : -1.f) : -2.f);
  }
  return samples;
}

// A teacher of the same vocabulary that is another model. It caps its logits if the student does.
std::unique_ptr<Objective> make_taught(const std::string& name, Rig& rig) {
  std::unique_ptr<Objective> out = make_objective(name);
  if (auto* taught = dynamic_cast<TeacherObjective*>(out.get())) {
    const char* const family = rig.model->shape().logit_softcap > 0 ? "gemma2" : "llama";
    const Json config = test::with(test::tiny_config(family), {{"hidden_size", 16}, {"num_hidden_layers", 1}});
    taught->set_teacher(test::make_tiny(rig.context, config, false));
  }
  return out;
}

class FamilyObjective : public testing::TestWithParam<std::tuple<std::string, std::string, bool>> {};

TEST_P(FamilyObjective, TheGradientIsTheLosssOwn) {
  const auto& [family, name, lora] = GetParam();
  TrainerConfig config;
  config.optimizer = Choice<OptimizerSettings>("sgd");
  config.micro_batch_tokens = 16;
  Rig rig(config, family, lora ? LoraConfig{.r = 3, .target_modules = {"all-linear"}} : LoraConfig{});
  const std::unique_ptr<Objective> objective = make_taught(name, rig);
  const std::vector<Sample> samples = full_samples(rig);
  if (objective->needs().critic) {  // a value head of zeros passes no gradient to the trunk
    std::vector<float> head(static_cast<size_t>(rig.model->shape().hidden_size));
    for (size_t i = 0; i < head.size(); ++i) head[i] = 0.05f * static_cast<float>(i % 5) - 0.1f;
    rig.trainer.set_value_head(head);
  }
  const auto loss = [&] { return rig.trainer.step(pointers(samples), *objective, 0).loss; };
  loss();
  std::vector<float*> values;
  std::vector<float> direction, start;
  for (const Param* param : rig.model->params()) {
    if (!param->trainable) continue;
    for (const float g : param->grad.as<float>()) direction.push_back(g);
    for (float& value : param->value.as<float>()) values.push_back(&value), start.push_back(value);
  }
  double squares = 0;
  for (const float g : direction) squares += double{g} * g;
  ASSERT_GT(squares, 1e-6);
  // A distance of 0.0006 along the gradient: far above rounding, well inside the clip range, and so short that no
  // router chooses other experts.
  const double step = 0.0006 / std::sqrt(squares);
  const auto at = [&](double sign) {
    for (size_t i = 0; i < start.size(); ++i) *values[i] = static_cast<float>(start[i] + sign * step * direction[i]);
    return loss();
  };
  const double slope = (at(1) - at(-1)) / (2 * step);
  EXPECT_NEAR(slope, squares, 0.01 * squares + 1e-5);
}

class ObjectiveOnAModel : public testing::TestWithParam<std::string> {};

TEST_P(ObjectiveOnAModel, CuttingAStepIntoMicroBatchesChangesItsGradientByRoundingOnly) {
  std::vector<double> losses;
  std::vector<std::vector<float>> grads;
  for (const int64_t tokens : {64, 16}) {
    TrainerConfig config;
    config.micro_batch_tokens = tokens;
    Rig rig(config);
    const std::unique_ptr<Objective> objective = make_taught(GetParam(), rig);
    const std::vector<Sample> samples = full_samples(rig);
    losses.push_back(rig.trainer.step(pointers(samples), *objective, 0).loss);
    const auto grad = rig.model->flat_grads().as<float>();
    grads.emplace_back(grad.begin(), grad.end());
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-9 * (1 + std::abs(losses[0])));
  for (size_t i = 0; i < grads[0].size(); ++i)
    ASSERT_NEAR(grads[0][i], grads[1][i], 1e-6 + 1e-5 * std::abs(grads[0][i])) << i;
}

INSTANTIATE_TEST_SUITE_P(Registry, ObjectiveOnAModel, testing::ValuesIn(objectives().names()),
                         [](const auto& param) { return param.param; });

INSTANTIATE_TEST_SUITE_P(Registries, FamilyObjective,
                         testing::Combine(testing::ValuesIn(families().names()),
                                          testing::ValuesIn(objectives().names()), testing::Bool()),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" + std::get<1>(test.param) +
                                  (std::get<2>(test.param) ? "_lora" : "");
                         });

}  // namespace
}  // namespace hone
