#include "posttrain/rl/replica_backend.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "model/token_logprobs.h"
#include "tests/model/characters.h"

namespace hone::test {
namespace {

class WeightSync : public ::testing::Test {
 protected:
  static void fill(Model& of, float value) { std::ranges::fill(of.trainable_values().as<float>(), value); }
  static bool holds(Model& of, float value) {
    return std::ranges::all_of(of.trainable_values().as<float>(), [&](float v) { return v == value; });
  }
  void push(WeightQueue& queue, int64_t version) {
    fill(*model, static_cast<float>(version));
    queue.push(version);
    fill(*model, -1);  // the learner's weights change
  }
  std::unique_ptr<Model> copy_of(Model& of) {
    std::unique_ptr<Model> out = of.same_shape();
    out->allocate(context, of.dtype(), false);
    context.copy(out->flat_values(), of.flat_values());
    return out;
  }

  std::unique_ptr<Device> device = cpu_device();
  Context context{*device};
  std::unique_ptr<Model> model = make_tiny(context, tiny_config("llama"));
};

TEST_F(WeightSync, VersionsComeOutInTheirOrder) {
  const std::unique_ptr<Model> copy = copy_of(*model);
  WeightQueue queue(context, *model, WeightQueue::Keep::all);
  for (const int64_t version : {0, 1, 2, 3}) push(queue, version);
  for (const int64_t version : {0, 2, 3}) {
    EXPECT_EQ(queue.pop(version, context, *copy), version);
    EXPECT_TRUE(holds(*copy, static_cast<float>(version)));
  }
  EXPECT_THROW(queue.pop(3, context, *copy), Error);
  push(queue, 4);
  EXPECT_EQ(queue.pop(1, context, *copy), 4);
}

TEST_F(WeightSync, TheNewestReplacesWhatNobodyTook) {
  const std::unique_ptr<Model> copy = copy_of(*model);
  WeightQueue queue(context, *model, WeightQueue::Keep::newest);
  push(queue, 0), push(queue, 1), push(queue, 2);
  EXPECT_EQ(queue.pop(1, context, *copy), 2);
  EXPECT_TRUE(holds(*copy, 2));
  EXPECT_THROW(queue.pop(0, context, *copy), Error);
}

TEST_F(WeightSync, OfAdaptersTheyAloneAreCopied) {
  model = make_tiny(context, tiny_config("llama"), true, {.r = 2});
  const std::unique_ptr<Model> copy = copy_of(*model);
  EXPECT_LT(model->trainable_values().size(), model->flat_values().size() / 2);
  EXPECT_EQ(model->trainable_values().data, model->adapter_params().front()->value.data);
  const std::vector<float> base(copy->base_params().front()->value.as<float>().begin(),
                                copy->base_params().front()->value.as<float>().end());
  WeightQueue queue(context, *model, WeightQueue::Keep::all);
  push(queue, 7);
  queue.pop(7, context, *copy);
  EXPECT_TRUE(holds(*copy, 7));
  EXPECT_TRUE(std::ranges::equal(base, copy->base_params().front()->value.as<float>()));
}

TEST_F(WeightSync, NoCopyIsEverTornWhileTheLearnerGoesOn) {
  const std::unique_ptr<Model> copy = copy_of(*model);
  Context other(*device);
  for (const auto keep : {WeightQueue::Keep::all, WeightQueue::Keep::newest}) {
    WeightQueue queue(context, *model, keep);
    push(queue, 0);
    std::atomic<int64_t> pushed = 0;
    std::jthread learner([&] {
      for (int64_t version = 1; version < 200; ++version) push(queue, version), pushed = version;
    });
    for (int64_t version = 0; version < 150;) {
      while (pushed < version) std::this_thread::yield();
      version = queue.pop(version, other, *copy) + 1;
      ASSERT_TRUE(holds(*copy, static_cast<float>(version - 1)));
    }
  }
}

// A replica samples with its policy version, not with the learner's current weights. A version that is set during a
// completion samples the tokens after that.
TEST(ReplicaBackend, ATokenIsDrawnByTheVersionItNames) {
  const TemporaryFolder folder;
  const Tokenizer tokenizer = character_tokenizer(folder.path());
  const std::unique_ptr<Device> device = cpu_device();
  Context context(*device);
  const std::unique_ptr<Model> learner = character_model(context, tokenizer);
  WeightQueue queue(context, *learner, WeightQueue::Keep::all);
  std::vector<std::unique_ptr<Model>> versions;
  for (int64_t version = 0; version < 2; ++version) {
    learner->initialize(context, static_cast<uint64_t>(40 + version));
    queue.push(version);
    std::unique_ptr<Model>& kept = versions.emplace_back(learner->same_shape());
    kept->allocate(context, learner->dtype(), false);
    context.copy(kept->flat_values(), learner->flat_values());
  }
  ReplicaBackend replica(context, *learner, queue, "", [&](Context& own, Model& model) {
    EXPECT_NE(&own, &context);
    EXPECT_NE(model.flat_values().data, learner->flat_values().data);
    return std::make_unique<LocalBackend>(own, model, tokenizer, EngineConfig{.max_batch_tokens = 4});
  });
  learner->initialize(context, 99);
  replica.set_policy_version(0);
  const std::vector<int32_t> prompt = {3, 4, 5};
  std::vector<CompletionOutput> completions;
  GenerationRequest request{.prompt = prompt,
                            .n = 3,
                            .id = 1,
                            .sampling = {.max_tokens = 30, .ignore_eos = true, .stop = {}, .stop_ids = {}}};
  replica.submit(request, [&](uint64_t, std::vector<CompletionOutput> done) { completions = std::move(done); });
  // While this prompt is prefilled one token at a time, each step is one pass.
  replica.submit({.prompt = std::vector<int32_t>(38, 3),
                  .n = 1,
                  .id = 2,
                  .sampling = {.max_tokens = 1, .stop = {}, .stop_ids = {}}},
                 [](uint64_t, std::vector<CompletionOutput>) {});
  for (int i = 0; i < 8; ++i) replica.step();
  replica.set_policy_version(1);
  EXPECT_EQ(replica.version(), 1);
  while (replica.step()) {}
  ASSERT_EQ(completions.size(), 3u);
  for (const CompletionOutput& completion : completions) {
    std::vector<int32_t> tokens = prompt;
    tokens.insert(tokens.end(), completion.ids.begin(), completion.ids.end());
    int64_t of_version[2] = {0, 0};
    for (size_t v = 0; v < 2; ++v) {
      const TokenLogprobs scores =
          compute_logprobs(context, *versions[v], std::vector<std::vector<int32_t>>{tokens}, {.temperature = 1})
              .front();
      for (size_t t = 0; t < completion.ids.size(); ++t)
        if (completion.versions[t] == static_cast<int64_t>(v)) {
          EXPECT_EQ(completion.logp[t], scores.logp[prompt.size() + t]) << t;
          ++of_version[v];
        }
    }
    EXPECT_GT(of_version[0], 0);
    EXPECT_GT(of_version[1], 0);
  }
}

}  // namespace
}  // namespace hone::test
