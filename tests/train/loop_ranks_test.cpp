// train_loop() on several ranks: equal state, one writer, and what happens if one or all of them fail.
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "core/io/file.h"
#include "tests/model/tiny_model.h"
#include "tests/support/errors.h"
#include "tests/support/merged_state.h"
#include "tests/support/ranks.h"
#include "tests/support/support.h"
#include "tests/train/rig.h"
#include "train/loop.h"
#include "train/parallel/zero.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

// A position in the data.
struct Loader : Stateful {
  int64_t at = 0;
  void save_state(StateSection& section) const override { section.values.set("at", at); }
  void load_state(const StateSection& section) override { at = section.values.at("at").as_int(); }
};

// SFT, whose loss is not finite on a micro-batch of `bad` tokens.
struct BadTokens : Objective {
  explicit BadTokens(size_t bad) : bad_tokens(bad) {}
  Needs needs() const override { return {}; }
  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    const double out = sft->loss(batch, grad, metrics);
    return batch.num_tokens() == bad_tokens ? std::numeric_limits<double>::quiet_NaN() : out;
  }
  std::unique_ptr<Objective> sft = make_objective("sft");
  size_t bad_tokens;
};

class LoopRanksTest : public ::testing::Test {
 protected:
  // Four micro-batches, and shards of more than one rank in a tiny model.
  LoopRanksTest() : samples_(make_samples(std::array<size_t, 5>{6, 9, 3, 7, 8})) {
    trainer_config_.micro_batch_tokens = 14;
    trainer_config_.norm_piece = 64;
    config_.steps = 5;
    config_.save_total_limit = 0;
    config_.eval_steps = 2;
  }

  // What a test may change before a step.
  struct Before {
    const Ranks& ranks;
    int64_t step;
    Model& model;
    Loader& loader;
    std::vector<Sample>& samples;
  };
  using Body = std::function<void(const Before&)>;
  // Trains on `count` ranks in the folder `name`; before(...) runs in each step before its update. Returns the error.
  std::string run(const std::string& name, int count, const Body& before = nullptr, double timeout = 20) {
    folder_ = root_.path() / name;
    make_folder(folder_);
    weights_.assign(static_cast<size_t>(count), {});
    return error_of([&] {
      on_ranks(
          count, [&](const Ranks& ranks, Context& context) { train(ranks, context, before); }, timeout);
    });
  }

  void train(const Ranks& ranks, Context& context, const Body& before) {
    MetricsLog log = ranks.is_first() ? MetricsLog(folder_) : MetricsLog();
    std::optional<Tokenizer> tokenizer;
    std::unique_ptr<Model> model;
    StageContext stage{.context = context,
                       .log = log,
                       .tokenizer = tokenizer,
                       .model = model,
                       .run_folder = folder_,
                       .checkpoints = folder_ / "checkpoints" / "stage",
                       .name = "stage",
                       .ranks = ranks};
    const fs::path newest = newest_checkpoint(ranks, stage.checkpoints);
    const bool gradients = ranks.size() == 1;
    model = newest.empty() ? make_tiny(context, tiny_config("llama"), gradients)
                           : load_model(context, newest, {.gradients = gradients});
    stage.evaluate = [&](int64_t) { ranks.do_on_first("evaluation", [this] { ++evaluations_; }); };
    const std::unique_ptr<StepExchange> exchange = make_exchange(ranks);
    Trainer trainer(context, *model, trainer_config_, exchange.get());
    Loader loader;
    const BadTokens objective(bad_tokens_);
    train_loop(stage, config_, trainer, {{"loader", &loader}}, [&](int64_t step, double rate) {
      const Rollback undo(loader);
      ++loader.at;
      std::vector<Sample> samples = samples_;
      if (before) before({ranks, step, *model, loader, samples});
      return trainer.step(pointers(samples), objective, rate);
    });
    weights_[static_cast<size_t>(ranks.rank())] = weights_of(*model);
  }
  fs::path checkpoint(int64_t step) const { return folder_ / "checkpoints" / "stage" / concat("step-", step); }
  bool saved(int64_t step) const { return fs::exists(checkpoint(step) / "manifest.json"); }

  TemporaryFolder root_;
  std::vector<Sample> samples_;
  LoopConfig config_;
  TrainerConfig trainer_config_;
  size_t bad_tokens_ = 0;
  fs::path folder_;
  std::vector<std::vector<float>> weights_;  // by rank
  int evaluations_ = 0;
};

TEST_F(LoopRanksTest, EveryRankEndsLikeOneAndTheFirstWrites) {
  ASSERT_EQ(run("one", 1), "no error");
  const std::vector<float> alone = weights_[0];
  const fs::path one = checkpoint(5);
  ASSERT_EQ(run("three", 3), "no error");
  for (const std::vector<float>& each : weights_) EXPECT_EQ(each, alone);
  for (const char* file : {"model.safetensors", "trainer/trainer.json", "trainer/loader.json"})
    EXPECT_TRUE(read_file(one / file) == read_file(checkpoint(5) / file)) << file;
  expect_same_state(one, checkpoint(5));
  EXPECT_TRUE(fs::exists(one / "trainer/trainer.safetensors"));
  EXPECT_FALSE(fs::exists(checkpoint(5) / "trainer/trainer.safetensors"));
  for (int part : {1, 2, 3}) {
    const fs::path file = checkpoint(5) / "trainer" / concat("trainer-0000", part, "-of-00003.safetensors");
    EXPECT_FALSE(SafetensorsReader(file).names().empty()) << file;
  }
  int64_t rows = 0;
  read_jsonl(folder_ / "metrics.jsonl", [&](const Json& row, int64_t) {
    EXPECT_EQ(row.at("step").as_int(), ++rows);
    EXPECT_GT(row.at("ranks/slowest").as_double(), 0);
    EXPECT_GE(row.at("ranks/spread").as_double(), 0);
    EXPECT_LE(row.at("ranks/spread").as_double(), 1);
    EXPECT_GT(row.at("time/exchange").as_double(), 0);
  });
  EXPECT_EQ(rows, 5);
  EXPECT_EQ(evaluations_, 4);  // two in each run
}

TEST_F(LoopRanksTest, AnErrorOfAllRanksIsSavedAndResumedAtAnotherCount) {
  ASSERT_EQ(run("whole", 1), "no error");
  const std::vector<float> uninterrupted = weights_[0];
  const auto fails = [](const Before& of) {
    if (of.step == 3) fail("the reward is lost");
  };
  const std::string end = run("stopped", 3, fails);
  EXPECT_TRUE(end.starts_with("the reward is lost; stopped after step 3 of stage stage, everything is saved")) << end;
  EXPECT_TRUE(saved(3));
  ASSERT_EQ(run("stopped", 2), "no error");
  for (const std::vector<float>& each : weights_) EXPECT_EQ(each, uninterrupted);
}

TEST_F(LoopRanksTest, AnErrorOfOneRankEndsTheRunWithItsNameAndNothingIsSaved) {
  config_.save_steps = 2;
  const std::string end = run("stopped", 3, [](const Before& of) {
    if (of.step == 3 && of.ranks.rank() == 2) fail("its device is lost");
  });
  EXPECT_EQ(end, "rank 2 (cpu): its device is lost");
  EXPECT_TRUE(saved(2));
  EXPECT_FALSE(saved(3));
  EXPECT_FALSE(saved(4));
}

TEST_F(LoopRanksTest, RanksWithOtherDataAreFound) {
  const std::string end = run("stopped", 3, [](const Before& of) {
    if (of.step == 2 && of.ranks.rank() == 1) ++of.loader.at;
  });
  EXPECT_EQ(end,
            "rank 1 (cpu) disagrees with rank 0 at step 3: the position in the data is {\"at\": 4}, rank 0 has "
            "{\"at\": 3}");
}

TEST_F(LoopRanksTest, RanksWithOtherSamplesAreFoundBeforeTheyExchangeGradients) {
  const std::string end = run("stopped", 3, [](const Before& of) {
    if (of.step == 2 && of.ranks.rank() == 2) of.samples.pop_back();
  });
  EXPECT_TRUE(end.starts_with("rank 2 (cpu) disagrees with rank 0 about a step: it has 4 samples in 3 micro-batches, "))
      << end;
  EXPECT_NE(end.find("; rank 0 has 5 samples in 4 micro-batches, "), std::string::npos) << end;
  EXPECT_TRUE(saved(2));
  EXPECT_FALSE(saved(3));
}

// As many samples of the same lengths: loss and gradient norm are exchanged, so they would agree.
TEST_F(LoopRanksTest, RanksWithOtherTokensAreFoundBeforeTheyExchangeGradients) {
  const std::string end = run("stopped", 3, [](const Before& of) {
    if (of.step == 2 && of.ranks.rank() == 1) of.samples.back().tokens.back() ^= 1;
  });
  EXPECT_TRUE(end.starts_with("rank 1 (cpu) disagrees with rank 0 about a step: it has 5 samples in 4 micro-batches, "))
      << end;
  EXPECT_NE(end.find("digest of the tokens"), std::string::npos) << end;
  EXPECT_TRUE(saved(2));
  EXPECT_FALSE(saved(3));
}

TEST_F(LoopRanksTest, RanksWithOtherWeightsAreFound) {
  const std::string end = run("stopped", 2, [&](const Before& of) {
    if (of.step == 2 && of.ranks.rank() == 1)
      for (float& weight : of.model.flat_values().as<float>()) weight += 0.5f;
  });
  EXPECT_TRUE(
      end.starts_with("rank 1 (cpu) disagrees with rank 0 at step 3: the digest of some weights before the step "
                      "is "))
      << end;
}

// One rank has the micro-batch; all of them refuse the step and save the ones before.
TEST_F(LoopRanksTest, ALossThatIsNotFiniteOnOneRankStopsAllWithTheSameState) {
  bad_tokens_ = 13;
  const auto longer = [](const Before& of) {
    if (of.step == 3) of.samples = make_samples(std::array<size_t, 5>{6, 8, 12, 13, 9});
  };
  const std::string start = "step 4: the loss is nan; its samples are in ";
  ASSERT_TRUE(run("one", 1, longer).starts_with(start)) << run("again", 1, longer);
  const fs::path one = checkpoint(3);
  const std::string end = run("three", 3, longer);
  EXPECT_TRUE(end.starts_with(start)) << end;
  EXPECT_NE(end.find("the weights are as before the step; stopped after step 3 of stage stage, everything is saved"),
            std::string::npos)
      << end;
  EXPECT_TRUE(fs::exists(folder_ / "bad_batch.jsonl"));
  EXPECT_TRUE(read_file(one / "model.safetensors") == read_file(checkpoint(3) / "model.safetensors"));
  expect_same_state(one, checkpoint(3));
}

TEST_F(LoopRanksTest, ARankThatHangsInAStepIsNamed) {
  const std::string end = run(
      "stopped", 2,
      [](const Before& of) {
        if (of.step == 1 && of.ranks.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
      },
      1);
  EXPECT_EQ(end,
            "rank 1 (cpu) has made no progress for 1 s (parallel.timeout) at 'work of step 2'; rank 0 (cpu) waits for "
            "it at 'plan of a step'");
}

TEST_F(LoopRanksTest, ADiskThatIsFullEndsAllRanksWithOneMessage) {
  const std::string end = run("stopped", 2, [&](const Before& of) {
    if (of.step == 1 && of.ranks.is_first())
      write_file_atomic(folder_ / "checkpoints", "a file where the folder should be");
  });
  EXPECT_EQ(end, concat((folder_ / "checkpoints" / "stage").string(), ": cannot make the folder: Not a directory"));
}

}  // namespace
}  // namespace hone::test
