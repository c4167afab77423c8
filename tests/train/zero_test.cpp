// The ZeRO stages on threads: with ZeRO-2 and 3, N ranks give the bits of one trainer.
#include "train/parallel/zero.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <mutex>

#include "tests/support/ranks.h"
#include "tests/train/hand_ranks.h"
#include "train/parallel/value_shards.h"
#include "train/shared_scores.h"

namespace hone {
namespace {

using test::make_samples, test::pointers;

std::vector<Sample> samples_of(int step) {
  std::vector<size_t> lengths = {7, 12, 3, 13, 9, 2, 14, 5, 11};
  lengths.resize(lengths.size() - 2 * static_cast<size_t>(step));
  std::vector<Sample> out = make_samples(lengths);
  std::ranges::fill(out[1].columns[columns::mask], 0.0f);
  for (size_t i = 0; i < out.size(); ++i)
    out[i].columns.assign(columns::returns, out[i].tokens.size(), 0.5f - 0.25f * static_cast<float>(i));
  return out;
}

// Its gradient depends on the log-probs and, with a critic, on the values. Without one, samples of three tokens have
// none.
struct Squares : Objective {
  explicit Squares(bool with_critic) : critic(with_critic) {}
  Needs needs() const override { return {.entropy = true, .critic = critic}; }
  bool has_no_gradient(const Sample& sample) const override { return !critic && sample.tokens.size() == 3; }
  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    const std::span<const float> entropy = batch[columns::entropy];
    double sum = 0;
    for (size_t t = 0; t < batch[columns::logp].size(); ++t) {
      const double weight = batch.scale * batch[columns::mask][t], logp = batch[columns::logp][t];
      sum += weight * logp * logp;
      grad.logp[t] = static_cast<float>(2 * weight * logp);
      metrics.add("entropy", entropy[t], batch[columns::mask][t]);
      metrics.minimum("logp/min", logp);
      if (!critic || batch.find(columns::value).empty()) continue;
      const double error = batch[columns::value][t] - batch[columns::returns][t];
      sum += 0.5 * weight * error * error;
      grad.value[t] = static_cast<float>(weight * error);
    }
    const bool is_bad = bad_tokens > 0 && batch.num_tokens() == bad_tokens;
    return is_bad ? std::numeric_limits<double>::quiet_NaN() : sum;
  }
  bool critic;
  int critic_warmup = 0;  // first steps that update the critic alone
  size_t bad_tokens = 0;  // a micro-batch of this number of tokens has a loss that is not finite
};

// What a run leaves: the reports of its steps, weights, value head.
struct Outcome {
  std::vector<double> numbers;
  std::vector<Metrics> metrics;
  std::vector<std::byte> weights;
  std::vector<float> head;
  bool operator==(const Outcome&) const = default;
};

constexpr int steps = 3;

Outcome train(Context& context, const test::RunCase& run, const Objective& objective, StepExchange* exchange) {
  const std::unique_ptr<Model> model = test::make_tiny(context, run.model, true, run.lora);
  Trainer trainer(context, *model, run.config, exchange);
  Outcome out;
  for (int step = 0; step < steps; ++step) {
    const std::vector<Sample> samples = samples_of(step);
    const auto* squares = dynamic_cast<const Squares*>(&objective);
    const Updated updated = squares && step < squares->critic_warmup ? Updated::critic : Updated::all;
    const StepReport report = trainer.step(pointers(samples), objective, 0.01, updated);
    out.numbers.insert(out.numbers.end(), {report.loss, report.grad_norm, report.flops});
    out.metrics.push_back(report.metrics);
  }
  model->gather_values();
  const auto* data = static_cast<const std::byte*>(model->flat_values().data);
  out.weights.assign(data, data + model->flat_values().bytes());
  if (objective.needs().critic) out.head = trainer.value_head();
  return out;
}

Outcome train_alone(const test::RunCase& run, const Objective& objective) {
  const std::unique_ptr<Device> device = test::cpu_device();
  Context context(*device);
  return train(context, run, objective, nullptr);
}

// What each rank ends with.
std::vector<Outcome> train_on_ranks(const test::RunCase& run, const Objective& objective, int num_ranks,
                                    int64_t stage) {
  std::mutex mutex;
  std::vector<Outcome> out;
  test::on_ranks(num_ranks, [&](const Ranks& ranks, Context& own) {
    ZeroExchange exchange(*ranks.group(), stage);
    Outcome outcome = train(own, run, objective, &exchange);
    const std::scoped_lock lock(mutex);
    out.push_back(std::move(outcome));
  });
  EXPECT_EQ(out.size(), static_cast<size_t>(num_ranks));
  return out;
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.numbers, b.numbers);
  EXPECT_EQ(a.metrics, b.metrics);
  EXPECT_EQ(a.head, b.head);
  EXPECT_TRUE(a.weights == b.weights);
}

void expect_ranks_equal_one(const test::RunCase& run, const Objective& objective, std::initializer_list<int> counts) {
  const Outcome one = train_alone(run, objective);
  for (const int num_ranks : counts)
    for (const int64_t stage : {2, 3}) {
      SCOPED_TRACE(concat(run.name, ", ", num_ranks, " ranks, ZeRO-", stage));
      for (const Outcome& outcome : train_on_ranks(run, objective, num_ranks, stage)) expect_same(outcome, one);
    }
}

TEST(Zero, AnyNumberOfRanksGivesTheBitsOfOne) {
  for (const test::RunCase& run : test::run_cases()) {
    expect_ranks_equal_one(run, *make_objective("sft"), {2, 3, 4});
    expect_ranks_equal_one(run, Squares(false), {2, 3, 4});
  }
}

// Gradients without a contribution in some micro-batches (experts without tokens), those of products that only add
// (latent attention), layers that share keys and values, and further tokens predicted through a tied lm_head.
TEST(Zero, AnyNumberOfRanksGivesTheBitsOfOneForEveryKindOfLayer) {
  const auto run_case = [](const char* name, const char* family, const JsonObject& changes,
                           const LoraConfig& lora = {}) {
    test::RunCase out = test::run_cases().front();
    out.name = name;
    out.model = test::with(test::tiny_config(family), changes);
    out.lora = lora;
    return out;
  };
  const JsonObject one_expert{{"num_experts_per_tok", 1}, {"n_group", 1}, {"topk_group", 1}};
  for (const test::RunCase& run :
       {run_case("one expert", "olmoe", one_expert),
        run_case("one expert, latent attention", "deepseek_v3", one_expert),
        run_case("a bias of the choice that moves", "olmoe", {{"router_bias_update_rate", 0.01}}),
        run_case("a bias before a norm", "hone_decoder",
                 {{"mlp", "experts"},
                  {"num_experts", 4},
                  {"num_experts_per_tok", 2},
                  {"moe_intermediate_size", 16},
                  {"norm_placement", "both"},
                  {"router_bias_update_rate", 0.01}}),
        run_case("a bias that adapters freeze", "olmoe", {{"router_bias_update_rate", 0.01}},
                 {.r = 2, .target_modules = {"all-linear"}}),
        run_case("one expert, adapters", "olmoe", one_expert, {.r = 2, .target_modules = {"all-linear"}}),
        run_case("further tokens, tied", "qwen3", {{"num_nextn_predict_layers", 2}, {"tie_word_embeddings", true}}),
        run_case("sinks and biases of experts", "gpt_oss", one_expert),
        run_case("shared keys and values", "hone_decoder",
                 {{"num_hidden_layers", 4}, {"kv_share", 2}, {"sliding_window", Json()}})}) {
    expect_ranks_equal_one(run, *make_objective("sft"), {2, 3});
    expect_ranks_equal_one(run, Squares(false), {3});
  }
}

TEST(Zero, CriticsAreShardedAlike) {
  for (const char* trunk : {"shared", "separate"})
    for (test::RunCase run : test::run_cases()) {
      run.name += concat(", critic ", trunk);
      run.config.critic.trunk = trunk;
      expect_ranks_equal_one(run, Squares(true), {3});
    }
}

TEST(Zero, CriticsWarmUpAlike) {
  for (const char* trunk : {"shared", "separate"}) {
    test::RunCase run = test::run_cases().front();
    run.name += concat(", warm-up of critic ", trunk);
    run.config.critic.trunk = trunk;
    Squares objective(true);
    objective.critic_warmup = 2;
    expect_ranks_equal_one(run, objective, {2, 3});
  }
}

// The numbers of an outcome in f32: losses, norms, weights.
void expect_close(const Outcome& a, const Outcome& b, double tolerance) {
  ASSERT_EQ(a.numbers.size(), b.numbers.size());
  for (size_t i = 0; i < a.numbers.size(); ++i)
    EXPECT_NEAR(a.numbers[i], b.numbers[i], tolerance * std::max(1.0, std::abs(b.numbers[i]))) << i;
  ASSERT_EQ(a.weights.size(), b.weights.size());
  std::vector<float> x(a.weights.size() / sizeof(float)), y(x.size());
  std::memcpy(x.data(), a.weights.data(), a.weights.size());
  std::memcpy(y.data(), b.weights.data(), b.weights.size());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], tolerance) << i;
}

// Each rank sums its own micro-batches first: repeatable, and other last bits than one rank has.
TEST(Zero1, RepeatsItsBitsAndIsCloseToOneRank) {
  for (test::RunCase run : test::run_cases())
    for (const char* trunk : {"none", "separate"}) {
      const bool critic = std::string(trunk) != "none";
      if (critic) run.config.critic.trunk = trunk;
      run.config.optimizer = Choice<OptimizerSettings>("sgd");  // a step is linear in the gradient
      const Squares objective(critic);
      const Outcome one = train_alone(run, objective);
      for (const int num_ranks : {2, 3}) {
        SCOPED_TRACE(concat(run.name, ", ", num_ranks, " ranks, critic ", trunk));
        const std::vector<Outcome> first = train_on_ranks(run, objective, num_ranks, 1),
                                   again = train_on_ranks(run, objective, num_ranks, 1);
        for (const Outcome& outcome : first) expect_same(outcome, first.front());
        for (const Outcome& outcome : again) expect_same(outcome, first.front());
        expect_close(first.front(), one, 1e-5);
      }
    }
}

// No rank sums anything then.
TEST(Zero1, HasTheBitsOfOneRankIfEachHasOneMicroBatch) {
  test::RunCase run = test::run_cases().front();
  run.config.micro_batch_tokens = 40;
  const Squares objective(false);
  const Outcome one = train_alone(run, objective);
  for (const Outcome& outcome : train_on_ranks(run, objective, 4, 1)) expect_same(outcome, one);
}

// The sum of a rank's own micro-batches has another order than the left fold.
TEST(Zero1, HasOtherBitsThanOneRank) {
  const test::RunCase run = test::run_cases().front();
  const Squares objective(false);
  EXPECT_FALSE(train_on_ranks(run, objective, 2, 1).front().weights == train_alone(run, objective).weights);
}

// Between passes a rank has no memory for the layers' values; a gather brings them back, and no pass changes them.
TEST(Zero3, ValuesAreGatheredAndReleased) {
  const test::RunCase run = test::run_cases().front();
  test::on_ranks(3, [&](const Ranks& ranks, Context& context) {
    ZeroExchange exchange(*ranks.group(), 3);
    const std::unique_ptr<Model> model = test::make_tiny(context, run.model, true, run.lora);
    const std::vector<float> before = test::weights_of(*model);
    Trainer trainer(context, *model, run.config, &exchange);
    const std::vector<Param*> layer = model->layer_modules(1).params;
    for (const Param* param : layer) EXPECT_EQ(param->value.data, nullptr);
    EXPECT_NE(model->lm_head().value.data, nullptr);
    EXPECT_EQ(model->flat_values().data, nullptr);
    EXPECT_EQ(model->flat_values().size(), static_cast<int64_t>(before.size()));
    model->gather_values();
    EXPECT_EQ(test::weights_of(*model), before);
    for (const Param* param : layer) EXPECT_NE(param->value.data, nullptr);
    trainer.step(pointers(samples_of(0)), *make_objective("sft"), 0);
    for (const Param* param : layer) EXPECT_EQ(param->value.data, nullptr);
    model->gather_values();
    EXPECT_EQ(test::weights_of(*model), before);
  });
}

// A loss that is not finite on one rank is refused by all of them with the same message.
TEST(Zero, ALossThatIsNotFiniteIsRefusedByAllRanks) {
  for (const int64_t stage : {1, 2, 3})
    for (const char* trunk : {"none", "shared", "separate"}) {
      test::RunCase run = test::run_cases().front();
      const bool critic = std::string(trunk) != "none";
      if (critic) run.config.critic.trunk = trunk;
      Squares objective(critic);
      objective.bad_tokens = 14;
      std::mutex mutex;
      std::vector<std::string> messages;
      test::on_ranks(3, [&](const Ranks& ranks, Context& context) {
        ZeroExchange exchange(*ranks.group(), stage);
        try {
          train(context, run, objective, &exchange);
        } catch (const RankFailed&) {
          throw;
        } catch (const Error& error) {
          const std::scoped_lock lock(mutex);
          messages.push_back(error.what());
        }
      });
      ASSERT_EQ(messages.size(), 3u);
      for (const std::string& message : messages) EXPECT_TRUE(test::says(message, "the loss is nan")) << message;
    }
}

// Ranks make unequal numbers of passes over a model of which each has a part; one of them makes none.
TEST(Zero3, ScoringPassesNeedNoWholeModel) {
  const test::RunCase run = test::run_cases().front();
  const std::vector<Sample> samples = samples_of(0);
  std::vector<std::vector<int32_t>> sequences;
  for (const Sample& sample : samples) sequences.push_back(sample.tokens);
  sequences.push_back({3});  // no token to score
  const LogprobOptions options{.entropy = true, .hit = true, .batch_tokens = 12};
  const std::unique_ptr<Device> device = test::cpu_device();
  Context alone(*device);
  const std::unique_ptr<Model> whole = test::make_tiny(alone, run.model, false, run.lora);
  const std::vector<TokenLogprobs> expected = compute_logprobs(alone, *whole, sequences, options);
  EXPECT_EQ(count_logprob_passes(sequences, options), 8u);
  for (const size_t count : {size_t{1}, size_t{2}, sequences.size()})
    test::on_ranks(3, [&](const Ranks& ranks, Context& context) {
      const std::unique_ptr<Model> model = test::make_tiny(context, run.model, false, run.lora);
      const ValueShards shards(context, *model, *ranks.group(), 64);
      const std::vector<TokenLogprobs> scores =
          shared_logprobs(ranks, context, *model, std::span(sequences).first(count), options);
      ASSERT_EQ(scores.size(), count);
      for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(scores[i].logp, expected[i].logp);
        EXPECT_EQ(scores[i].entropy, expected[i].entropy);
        EXPECT_EQ(scores[i].hit, expected[i].hit);
      }
      EXPECT_FALSE(shards.is_gathered());
    });
}

TEST(Zero3, ACriticScoresWithoutItsWholeTrunk) {
  for (const char* trunk : {"shared", "separate"}) {
    test::RunCase run = test::run_cases().front();
    run.config.critic.trunk = trunk;
    const std::vector<Sample> samples = samples_of(0);
    const std::unique_ptr<Device> device = test::cpu_device();
    Context alone(*device);
    const std::unique_ptr<Model> whole = test::make_tiny(alone, run.model, true, run.lora);
    Trainer trainer(alone, *whole, run.config);
    trainer.step(pointers(samples), Squares(true), 0.01);
    const std::vector<std::vector<float>> expected = trainer.values(pointers(samples));
    for (const size_t count : {size_t{1}, samples.size()})
      test::on_ranks(3, [&](const Ranks& ranks, Context& context) {
        ZeroExchange exchange(*ranks.group(), 3);
        const std::unique_ptr<Model> model = test::make_tiny(context, run.model, true, run.lora);
        Trainer own(context, *model, run.config, &exchange);
        own.step(pointers(samples), Squares(true), 0.01);
        const std::vector<const Sample*> scored = pointers(samples);
        const std::vector<std::vector<float>> values = shared_values(ranks, own, std::span(scored).first(count));
        for (size_t i = 0; i < count; ++i) EXPECT_EQ(values.at(i), expected[i]);
        EXPECT_NE(model->value_hooks(), nullptr);
      });
  }
}

// States that two ranks saved in parts continue on three, and on one, also with another ZeRO stage.
void expect_states_continue(const test::RunCase& run, int64_t saved_with, int64_t continued_with) {
  SCOPED_TRACE(concat(run.name, ", saved with ZeRO-", saved_with, ", continued with ZeRO-", continued_with));
  const Squares objective(false);
  std::mutex mutex;
  std::vector<std::vector<float>> ends;
  const auto go_on = [&](Context& context, StepExchange* exchange, const StateSection& saved,
                         std::span<const float> weights) {
    const std::unique_ptr<Model> model = test::make_tiny(context, run.model, true, run.lora);
    std::ranges::copy(weights, model->flat_values().as<float>().begin());
    Trainer trainer(context, *model, run.config, exchange);
    trainer.load_state(saved);
    trainer.step(pointers(samples_of(0)), objective, 0.01);
    model->gather_values();
    const std::scoped_lock lock(mutex);
    ends.push_back(test::weights_of(*model));
  };
  std::vector<float> weights;
  StateSection merged;
  std::vector<std::vector<std::byte>> bytes;  // of the states
  test::on_ranks(2, [&](const Ranks& ranks, Context& context) {
    ZeroExchange exchange(*ranks.group(), saved_with);
    const std::unique_ptr<Model> model = test::make_tiny(context, run.model, true, run.lora);
    Trainer trainer(context, *model, run.config, &exchange);
    for (int step = 0; step < steps; ++step) trainer.step(pointers(samples_of(step)), objective, 0.01);
    StateSection own;
    trainer.gather_saved_values();
    trainer.save_state(own);
    const std::scoped_lock lock(mutex);
    weights = test::weights_of(*model);
    merged.values = own.values;
    for (const NamedTensor& named : own.tensors) {
      const auto* data = static_cast<const std::byte*>(named.tensor.data);
      bytes.emplace_back(data, data + named.tensor.bytes());
      merged.tensors.push_back(
          {named.name, Tensor(bytes.back().data(), named.tensor.dtype, DeviceKind::cpu, {named.tensor.size()})});
    }
  });
  EXPECT_TRUE(std::ranges::any_of(merged.tensors, [](const NamedTensor& n) { return n.name.ends_with(']'); }));
  const std::unique_ptr<Device> device = test::cpu_device();
  Context context(*device);
  const std::unique_ptr<Model> whole = test::make_tiny(context, run.model, true, run.lora);
  Trainer uninterrupted(context, *whole, run.config);
  for (int step = 0; step < steps; ++step) uninterrupted.step(pointers(samples_of(step)), objective, 0.01);
  EXPECT_EQ(test::weights_of(*whole), weights);
  uninterrupted.step(pointers(samples_of(0)), objective, 0.01);
  go_on(context, nullptr, merged, weights);
  test::on_ranks(3, [&](const Ranks& ranks, Context& own) {
    ZeroExchange exchange(*ranks.group(), continued_with);
    go_on(own, &exchange, merged, weights);
  });
  ASSERT_EQ(ends.size(), 4u);
  for (const std::vector<float>& end : ends) EXPECT_EQ(end, test::weights_of(*whole));
}

TEST(Zero, StatesContinueOnAnotherNumberOfRanksAndWithAnotherStage) {
  const test::RunCase run = test::run_cases()[7];
  ASSERT_TRUE(test::says(run.name, "bf16 moments"));
  expect_states_continue(run, 2, 2);
  expect_states_continue(run, 2, 3);
  expect_states_continue(run, 3, 2);
  expect_states_continue(run, 3, 3);
}

// Small shards, so that every rank has parts of matrices.
test::RunCase run_with(const std::string& family, const std::string& keys) {
  test::RunCase out{.name = concat(family, ", ", keys), .config = {}, .model = test::tiny_config(family), .lora = {}};
  Config::from_text(keys, "test").read([&](Fields& f) { out.config.fields(f); });
  out.config.micro_batch_tokens = 14;
  out.config.norm_piece = 64;
  return out;
}

// Among them Muon and Adafactor, which read whole matrices.
TEST(Zero, EveryOptimizerGivesTheBitsOfOneRank) {
  for (const std::string& kind : optimizers().names())
    for (const char* family : {"llama", "gpt2", "gpt_oss", "qwen3_moe"})
      expect_ranks_equal_one(run_with(family, concat("optimizer = \"", kind, "\"\nweight_decay = 0.1")),
                             *make_objective("sft"), {2, 3, 5});
  for (const char* keys : {"optimizer = \"muon\"\nmoments = \"bf16\"\nadjust_lr_fn = \"original\"",
                           "optimizer = \"adafactor\"\nbeta1 = 0.9\nscale_parameter = true\nrelative_step = true"})
    expect_ranks_equal_one(run_with("qwen3", keys), *make_objective("sft"), {2, 3});
}

TEST(Zero, MuonTrainsAdaptersAndCriticsOnRanksAsAlone) {
  test::RunCase adapted = run_with("llama", "optimizer = \"muon\"");
  adapted.lora = {.r = 2, .target_modules = {"all-linear"}};
  expect_ranks_equal_one(adapted, *make_objective("sft"), {3});
  for (const char* trunk : {"shared", "separate"}) {
    test::RunCase run = run_with("llama", "optimizer = \"muon\"");
    run.config.critic.trunk = trunk;
    expect_ranks_equal_one(run, Squares(true), {3});
  }
}

TEST(Zero, GroupsGiveTheBitsOfOneRank) {
  for (const char* kind : {"adamw", "muon", "adafactor"})
    expect_ranks_equal_one(run_with("llama", concat("optimizer = \"", kind,
                                                    "\"\n[[groups]]\nmatch = \"*k_proj*\"\nlearning_rate_factor = 0.1\n"
                                                    "[[groups]]\nmatch = \"norm\\\\.weight\"\nweight_decay = 0.5\n")),
                           *make_objective("sft"), {3});
}

TEST(Zero1, RepeatsTheBitsOfWholeMatrixOptimizers) {
  for (const char* kind : {"muon", "adafactor"}) {
    const test::RunCase run = run_with("llama", concat("optimizer = \"", kind, "\""));
    const std::vector<Outcome> first = train_on_ranks(run, Squares(false), 3, 1),
                               again = train_on_ranks(run, Squares(false), 3, 1);
    for (const Outcome& outcome : first) expect_same(outcome, first.front());
    for (const Outcome& outcome : again) expect_same(outcome, first.front());
  }
}

TEST(Zero, StatesOfWholeMatrixOptimizersContinueOnAnotherNumberOfRanks) {
  for (const char* keys :
       {"optimizer = \"muon\"\nmoments = \"bf16\"", "optimizer = \"adafactor\"\nbeta1 = 0.5\nscale_parameter = true"}) {
    expect_states_continue(run_with("llama", keys), 2, 3);
    expect_states_continue(run_with("llama", keys), 3, 2);
  }
}

}  // namespace
}  // namespace hone
