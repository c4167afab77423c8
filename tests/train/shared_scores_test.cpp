#include "train/shared_scores.h"

#include <gtest/gtest.h>

#include "core/comm/launch.h"
#include "tests/support/ranks.h"
#include "tests/train/rig.h"
#include "train/held_out.h"

namespace hone::test {
namespace {

TEST(SharedScores, TheLongestGoFirstToTheRankWithTheLeastWork) {
  const std::vector<int64_t> costs{1, 9, 4, 5, 4};
  EXPECT_EQ(deal_by_cost(costs, 2), (std::vector<int>{1, 0, 1, 1, 0}));  // 9 + 4, 5 + 4 + 1
  EXPECT_EQ(deal_by_cost(costs, 1), (std::vector<int>(5, 0)));
  EXPECT_EQ(deal_by_cost({}, 3), std::vector<int>());
  EXPECT_EQ(deal_by_cost(std::vector<int64_t>{2, 2}, 3), (std::vector<int>{0, 1}));
}

std::vector<std::vector<int32_t>> sequences(std::span<const size_t> lengths) {
  std::vector<std::vector<int32_t>> out;
  for (size_t i = 0; i < lengths.size(); ++i)
    out.push_back(random_tokens(lengths[i], 19, static_cast<uint32_t>(i + 1)));
  return out;
}

TEST(SharedScores, LogProbsHaveTheBitsOfOneRank) {
  const std::vector<size_t> many{7, 1, 12, 30, 3, 9, 9}, few{5};
  for (const std::vector<size_t>& lengths : {many, few, {}})
    for (const bool all : {false, true}) {
      const LogprobOptions options{.temperature = 0.7, .entropy = all, .hit = all, .batch_tokens = 24};
      const std::vector<std::vector<int32_t>> scored = sequences(lengths);
      Rig rig;
      const std::vector<TokenLogprobs> one = compute_logprobs(rig.context, *rig.model, scored, options);
      for (const int num_ranks : {2, 3})
        on_ranks(num_ranks, [&](const Ranks& ranks, Context& context) {
          const std::unique_ptr<Model> model = make_tiny(context, tiny_config("llama"), false);
          const std::vector<TokenLogprobs> out = shared_logprobs(ranks, context, *model, scored, options);
          ASSERT_EQ(out.size(), one.size());
          for (size_t i = 0; i < out.size(); ++i) {
            EXPECT_EQ(out[i].logp, one[i].logp);
            EXPECT_EQ(out[i].entropy, one[i].entropy);
            EXPECT_EQ(out[i].hit, one[i].hit);
          }
        });
    }
}

// The loss is that of values and log-probs together.
struct Both : Objective {
  Needs needs() const override { return {.critic = true, .token_accuracy = true}; }
  double loss(const TokenBatch& batch, TokenGrad, MetricSums& metrics) const override {
    double sum = 0;
    for (size_t t = 0; t < batch[columns::mask].size(); ++t) {
      sum += batch.scale * batch[columns::mask][t] * (batch[columns::value][t] - batch[columns::logp][t]);
      metrics.add("value", batch[columns::value][t], 1);
    }
    return sum;
  }
};

TEST(SharedScores, ValuesAndHeldOutLossHaveTheBitsOfOneRank) {
  const std::vector<size_t> lengths{7, 12, 3, 9, 5};
  const std::vector<Sample> samples = make_samples(lengths);
  std::vector<float> head(static_cast<size_t>(tiny_config("llama").at("hidden_size").as_int("hidden_size")));
  for (size_t i = 0; i < head.size(); ++i) head[i] = 0.01f * static_cast<float>(i) - 0.05f;
  const auto measure = [&](const Ranks& ranks, Context& context, Model& model,
                           std::vector<std::vector<float>>& values) {
    TrainerConfig config;
    config.micro_batch_tokens = 20;
    Trainer trainer(context, model, config);
    trainer.set_value_head(head);
    values = shared_values(ranks, trainer, pointers(samples));
    return measure_loss(context, model, trainer, 0.9, pointers(samples), Both(), ranks);
  };
  Rig rig;
  std::vector<std::vector<float>> one;
  const Metrics expected = measure({}, rig.context, *rig.model, one);
  EXPECT_NE(one[0][1], one[1][2]);
  for (const int num_ranks : {2, 3})
    on_ranks(num_ranks, [&](const Ranks& ranks, Context& context) {
      const std::unique_ptr<Model> model = make_tiny(context, tiny_config("llama"), true);
      std::vector<std::vector<float>> values;
      EXPECT_EQ(measure(ranks, context, *model, values), expected);
      EXPECT_EQ(values, one);
    });
}

}  // namespace
}  // namespace hone::test
