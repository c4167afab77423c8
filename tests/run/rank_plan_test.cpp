// Plans of several ranks: what each of them computes, keeps, sends and receives.
#include <gtest/gtest.h>

#include "run/plan/device_rates.h"
#include "run/plan/memory_fit.h"
#include "run/plan/plan.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

constexpr const char* text = R"(
device = "cpu"
[model]
hidden_size = 64
num_hidden_layers = 3
num_attention_heads = 4
max_position_embeddings = 64
[[stage]]
kind = "tokenizer"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
vocab_size = 270
[[stage]]
kind = "pretrain"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
max_length = 64
batch_size = 7
micro_batch_tokens = 64
steps = 10
[[stage]]
kind = "rl"
objective = "ppo"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
prompts_per_step = 5
num_generations = 2
num_iterations = 2
micro_batch_tokens = 128
critic = { trunk = "separate" }
reward = { kind = "number" }
)";

Recipe read(const std::vector<std::string>& overrides = {}) {
  return read_recipe(Config::from_text(text, "recipe.toml", overrides));
}

Json plan_of(size_t ranks, std::vector<std::string> overrides = {}) {
  overrides.emplace_back("parallel.micro_batch_multiple=1");
  return plan_recipe(read(overrides), ranks);
}

const JsonArray& ranks_of(const Json& plan, size_t stage) {
  return plan.at("stages").as_array()[stage].at("ranks").as_array();
}

int64_t exchanged(const Json& rank, const char* what, const char* name) {
  const Json* found = rank.at("exchanges").find(what);
  return found ? found->at(name).as_int() : 0;
}

int64_t sum_of(const JsonArray& ranks, const std::function<int64_t(const Json&)>& number) {
  int64_t out = 0;
  for (const Json& rank : ranks) out += number(rank);
  return out;
}

// ZeRO-2: the gradient of each micro-batch goes to the owners of its parts; then each rank sends its part of the f32
// values to all others. 7 micro-batches: the last round is short.
TEST(RankPlan, BytesAreThoseOfTheShards) {
  for (const size_t ranks : {2u, 3u, 4u}) {
    const Json plan = plan_of(ranks);
    const Json& stage = plan.at("stages").as_array()[0];
    EXPECT_EQ(stage.at("micro_batches").as_int(), 7);
    EXPECT_EQ(stage.at("rounds").as_int(), static_cast<int64_t>((7 + ranks - 1) / ranks));
    const JsonArray& all = ranks_of(plan, 0);
    ASSERT_EQ(all.size(), ranks);
    const auto shard = [](const Json& rank) { return rank.at("memory").at("gradients").as_int(); };
    const int64_t whole = sum_of(all, shard), others = static_cast<int64_t>(ranks) - 1;
    EXPECT_EQ(whole, plan_of(1).at("stages").as_array()[0].at("memory").at("gradients").as_int());
    for (const Json& rank : all) {
      const int64_t own = rank.at("micro_batches").as_int();
      EXPECT_EQ(exchanged(rank, "gradients", "sent_bytes"), own * (whole - shard(rank)));
      EXPECT_EQ(exchanged(rank, "gradients", "received_bytes"), (7 - own) * shard(rank));
      EXPECT_EQ(exchanged(rank, "values", "sent_bytes"), others * shard(rank));
      EXPECT_EQ(exchanged(rank, "values", "received_bytes"), whole - shard(rank));
      EXPECT_GT(exchanged(rank, "gradient norm", "received_bytes"), 0);
    }
    EXPECT_EQ(sum_of(all, [](const Json& rank) { return rank.at("sent_bytes").as_int(); }),
              sum_of(all, [](const Json& rank) { return rank.at("received_bytes").as_int(); }));
    EXPECT_EQ(sum_of(all, [](const Json& rank) { return rank.at("tokens").as_int(); }), 7 * 64);
  }
}

// What leaves some rank reaches another, whatever is exchanged: a critic's gradients, gathered layers, whole values.
TEST(RankPlan, EverythingSentIsReceived) {
  for (const char* zero : {"parallel.zero=1", "parallel.zero=2", "parallel.zero=3"}) {
    SCOPED_TRACE(zero);
    const Json plan = plan_of(3, {zero});
    for (size_t stage = 0; stage < 2; ++stage)
      for (const auto& [what, bytes] : ranks_of(plan, stage)[0].at("exchanges").as_object()) {
        SCOPED_TRACE(what);
        EXPECT_EQ(sum_of(ranks_of(plan, stage),
                         [&](const Json& rank) { return exchanged(rank, what.c_str(), "sent_bytes"); }),
                  sum_of(ranks_of(plan, stage),
                         [&](const Json& rank) { return exchanged(rank, what.c_str(), "received_bytes"); }));
      }
  }
}

// ZeRO-1 sends a rank's gradients once an update, ZeRO-3 gathers the layers in each pass.
TEST(RankPlan, StagesOfZeroExchangeMoreOrLess) {
  const auto received = [](const char* zero, const char* what) {
    return exchanged(ranks_of(plan_of(2, {zero}), 0)[0], what, "received_bytes");
  };
  EXPECT_EQ(received("parallel.zero=2", "gradients"), 3 * received("parallel.zero=1", "gradients"));
  EXPECT_EQ(received("parallel.zero=2", "gradients"), received("parallel.zero=3", "gradients"));
  EXPECT_EQ(received("parallel.zero=2", "layer values"), 0);
  EXPECT_GT(received("parallel.zero=3", "layer values"), 0);
  // Of the other rank's micro-batches; whole values are gathered before sampling.
  EXPECT_EQ(received("parallel.zero=3", "whole values"), 0);
  EXPECT_GT(exchanged(ranks_of(plan_of(2, {"parallel.zero=3"}), 1)[0], "whole values", "received_bytes"), 0);
}

TEST(RankPlan, RanksShareTheWorkAndTheStates) {
  const Json one = plan_of(1), two = plan_of(2);
  for (size_t stage = 0; stage < 2; ++stage) {
    const Json &alone = ranks_of(one, stage)[0].at("memory"), &shared = ranks_of(two, stage)[1].at("memory");
    const auto half = [&](const char* owner) {
      EXPECT_NEAR(shared.at(owner).as_double() / alone.at(owner).as_double(), 0.5, 0.05) << owner;
    };
    half("gradients");
    half("optimizer");
    EXPECT_EQ(shared.at("weights"), alone.at("weights"));
    EXPECT_GT(shared.at("gradient_buffers").as_int(), 0);
    EXPECT_EQ(alone.at("total"), one.at("stages").as_array()[stage].at("memory").at("total"));
    EXPECT_TRUE(ranks_of(one, stage)[0].at("exchanges").as_object().empty());
  }
  // 10 samples in micro-batches of 2, twice.
  EXPECT_EQ(ranks_of(two, 1)[0].at("micro_batches").as_int(), 6);
  EXPECT_EQ(ranks_of(two, 1)[1].at("micro_batches").as_int(), 4);
  EXPECT_EQ(two.at("layout").at("ranks").as_int(), 2);
  EXPECT_EQ(two.at("layout").at("zero").as_int(), 2);
}

TEST(RankPlan, AFixedNumberOfPiecesGivesSomeRanksNothing) {
  const Json plan = plan_recipe(read({"stage.pretrain.batch_size=2"}), 5);
  EXPECT_EQ(plan.at("layout").at("micro_batch_multiple").as_int(), 5);
  EXPECT_EQ(ranks_of(plan, 0)[4].at("micro_batches").as_int(), 0);
  EXPECT_EQ(exchanged(ranks_of(plan, 0)[4], "gradients", "sent_bytes"), 0);
  EXPECT_GT(exchanged(ranks_of(plan, 0)[4], "gradients", "received_bytes"), 0);
}

TEST(RankPlan, TimesAreThoseOfTheSlowestMicroBatches) {
  Json plan = plan_of(2);
  add_times(plan, {.source = "a test", .flops = 1e9, .memory_bandwidth = 1e9, .link_bandwidth = 1e6});
  const Json& stage = plan.at("stages").as_array()[0];
  const Json& seconds = stage.at("step_seconds");
  // Four rounds of a micro-batch of 64 tokens.
  EXPECT_DOUBLE_EQ(seconds.at("passes").as_double(), 4 * 64 * stage.at("train_flops_per_token").as_double() / 1e9);
  EXPECT_DOUBLE_EQ(stage.at("seconds").as_double(), 10 * seconds.at("total").as_double());
  const Json& last = ranks_of(plan, 0)[1];
  EXPECT_DOUBLE_EQ(last.at("step_seconds").at("passes").as_double(), 0.75 * seconds.at("passes").as_double());
  EXPECT_DOUBLE_EQ(last.at("step_seconds").at("exchange").as_double(),
                   std::max(last.at("sent_bytes").as_double(), last.at("received_bytes").as_double()) / 1e6);
  EXPECT_FALSE(plan.at("layout").at("exchanges_beside_backward").as_bool());
  const std::string table = plan_text(plan);
  EXPECT_NE(table.find("2 ranks, zero 2: a step has 7 micro-batches of at most 64 tokens in 4 rounds"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("(a test)"), std::string::npos) << table;
}

// On a GPU gradients travel beside the backward pass, and only what takes longer counts.
TEST(RankPlan, GradientsTravelBesideTheBackwardPassOfAGpu) {
  const auto exchange = [](const char* zero, double flops) {
    Json plan = plan_of(2, {"device=meta", zero});
    add_times(plan, {.source = "a test", .flops = flops, .memory_bandwidth = 1e9, .link_bandwidth = 1e6});
    const Json& rank = ranks_of(plan, 0)[0];
    return std::pair(rank.at("step_seconds").at("exchange").as_double(),
                     std::max(rank.at("sent_bytes").as_double(), rank.at("received_bytes").as_double()) / 1e6);
  };
  const auto [slow, all] = exchange("parallel.zero=2", 1e3);  // passes take far longer than exchanges
  EXPECT_LT(slow, 0.5 * all);
  EXPECT_GT(slow, 0);
  EXPECT_NEAR(exchange("parallel.zero=2", 1e30).first, all, 1e-9);
  EXPECT_EQ(exchange("parallel.zero=1", 1e3).first, exchange("parallel.zero=1", 1e3).second);
}

// A rank's share is smaller than the whole, so it fits into less.
TEST(RankPlan, ALimitIsThatOfEachRank) {
  const auto largest = [](size_t ranks) {
    int64_t out = 0;
    const Json plan = plan_recipe(read(), ranks);
    for (const Json& stage : plan.at("stages").as_array()) out = std::max(out, stage.at("memory").at("total").as_int());
    return out;
  };
  const int64_t limit = largest(4);
  ASSERT_LT(limit, largest(1));
  Recipe four = read();
  const MemoryFit fit = fit_memory(four, limit, 4);
  EXPECT_TRUE(fit.choices.empty()) << fit_text(fit);
  EXPECT_EQ(fit.planned_bytes, limit);
  Recipe one = read();
  EXPECT_FALSE(fit_memory(one, limit, 1).choices.empty());
}

// What a refused recipe could do with more ranks.
TEST(RankPlan, ARefusalSaysWhatOtherLayoutsSave) {
  const std::vector<std::string> wide{"model.hidden_size=512", "model.num_hidden_layers=6"};
  const auto refused = [&](size_t ranks) {
    Recipe recipe = read(wide);
    return error_of([&] { fit_memory(recipe, 1'000'000, ranks); });
  };
  EXPECT_NE(refused(1).find("parallel.ranks = 2 (several GPUs) saves"), std::string::npos) << refused(1);
  EXPECT_NE(refused(2).find(": parallel.ranks = 4 saves"), std::string::npos) << refused(2);
  EXPECT_NE(refused(2).find(" of each rank"), std::string::npos) << refused(2);
}

// It decides bits, and the document does not have it.
TEST(RankPlan, ChoicesKeepTheMultipleOfMicroBatches) {
  Recipe recipe = read();
  recipe.parallel.micro_batch_multiple = 3;
  const int64_t needed = fit_memory(recipe, int64_t{1} << 40, 3).planned_bytes;
  EXPECT_FALSE(fit_memory(recipe, needed - 1, 3).choices.empty());
  EXPECT_EQ(recipe.parallel.micro_batch_multiple, 3);
}

TEST(DeviceRates, GpusAreKnownByTheirNames) {
  const DeviceRates h200 = gpu_rates("NVIDIA H200");
  EXPECT_DOUBLE_EQ(h200.flops, 0.5 * 989e12);
  EXPECT_EQ(h200.source, "data sheet of H200");
  EXPECT_EQ(gpu_rates("h200").flops, h200.flops);
  EXPECT_EQ(gpu_rates("rtx-4090").source, "data sheet of RTX 4090");
  EXPECT_LT(gpu_rates("RTX 4090").link_bandwidth, gpu_rates("A100").link_bandwidth);
  const std::string error = error_of([] { gpu_rates("Radeon"); });
  EXPECT_NE(error.find("unknown GPU 'Radeon'; known: A10, A100"), std::string::npos) << error;
  for (const std::string& name : known_gpus()) EXPECT_GT(gpu_rates(name).flops, 0) << name;
}

TEST(DeviceRates, RanksShareADevice) {
  const MeasuredRates rates{.flops = 8e9, .memory = 4e9};
  EXPECT_EQ(measured_rates("a CPU", rates, 1).link_bandwidth, 2e9);
  const DeviceRates two = measured_rates("a CPU", rates, 2);
  EXPECT_EQ(two.flops, 4e9);
  EXPECT_EQ(two.memory_bandwidth, 2e9);
  EXPECT_EQ(two.link_bandwidth, 1e9);
  EXPECT_EQ(measured_rates("a GPU", {.flops = 8e9, .memory = 4e9, .link = 3e9}, 1).link_bandwidth, 3e9);
}

}  // namespace
}  // namespace hone::test
