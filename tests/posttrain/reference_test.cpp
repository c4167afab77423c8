#include "posttrain/reference.h"

#include "model/lora.h"
#include "model/token_logprobs.h"
#include "tests/model/tiny_model.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"
#include "tests/train/stage_context.h"

namespace hone::test {
namespace {

class ReferenceTest : public ::testing::Test {
 protected:
  ReferenceTest() : device_(cpu_device()), context_(*device_), fixture_(context_, folder_.path()) {
    save_model(context_, *make_tiny(context_, tiny_config("llama"), false), base_, DType::f32);
    groups_.resize(2);
    for (uint32_t i = 0; i < 4; ++i) groups_[i / 2].samples.emplace_back().tokens = random_tokens(5 + i, 19, i + 1);
  }
  StageContext& start_from(const std::filesystem::path& start, const LoraConfig& lora) {
    StageContext& stage = *fixture_.stage;
    stage.model = load_model(context_, start, {.lora = lora});
    stage.start_folder = start;
    stage.load_start_model = [this, start, lora](bool gradients) {
      return load_model(context_, start, {.gradients = gradients, .lora = lora});
    };
    return stage;
  }
  void change(Model& model) {
    for (const Param* param : model.params())
      if (param->trainable)
        for (float& value : param->value.as<float>()) value += 0.05f;
  }
  std::vector<float> scored(Reference& reference) {
    reference.score_into(groups_);
    std::vector<float> out;
    for (const Group& group : groups_)
      for (const Sample& sample : group.samples)
        std::ranges::copy(sample.columns[columns::reference_logp], std::back_inserter(out));
    return out;
  }
  // The reference log-probs of a model loaded from a folder.
  std::vector<float> scores_of(const std::filesystem::path& folder) {
    std::vector<std::vector<int32_t>> sequences;
    for (const Group& group : groups_)
      for (const Sample& sample : group.samples) sequences.push_back(sample.tokens);
    std::vector<float> out;
    for (const TokenLogprobs& scores :
         compute_logprobs(context_, *load_model(context_, folder), sequences, {.temperature = 0.7}))
      out.insert(out.end(), scores.logp.begin(), scores.logp.end());
    return out;
  }

  std::unique_ptr<Device> device_;
  Context context_;
  TemporaryFolder folder_;
  StageFixture fixture_;
  std::filesystem::path base_ = folder_.path() / "base";
  std::vector<Group> groups_;
};

TEST_F(ReferenceTest, IsACopyOfTheStartWhereTheWeightsAreTrained) {
  StageContext& stage = start_from(base_, {});
  Reference reference(stage, 0.7);
  change(*stage.model);
  EXPECT_EQ(scored(reference), scores_of(base_));
}

TEST_F(ReferenceTest, IsTheFrozenBaseAtNoMemory) {
  StageContext& stage = start_from(base_, {.r = 2, .target_modules = {"all-linear"}});
  const std::vector<float> expected = scores_of(base_);
  const size_t bytes = device_->used_bytes();
  Reference reference(stage, 0.7);
  EXPECT_EQ(device_->used_bytes(), bytes);
  change(*stage.model);
  EXPECT_EQ(scored(reference), expected);
  EXPECT_TRUE(stage.model->lora()->enabled);
}

TEST_F(ReferenceTest, IsTheAdapterThatTheStageBeganWith) {
  const std::filesystem::path start = folder_.path() / "adapter";
  const auto model = load_model(context_, base_, {.lora = {.r = 2}});
  change(*model);
  save_adapter(context_, *model, start, DType::f32);
  StageContext& stage = start_from(start, {});
  Reference reference(stage, 0.7);
  EXPECT_EQ(scored(reference), scores_of(start));
  EXPECT_NE(scored(reference), scores_of(base_));
  change(*stage.model);
  const std::vector<float> values = download(context_, stage.model->flat_values());
  EXPECT_EQ(scored(reference), scores_of(start));
  EXPECT_EQ(download(context_, stage.model->flat_values()), values);
}

// TRL's SyncRefModelCallback: ref.mul_(1 - alpha).add_(policy, alpha=alpha).
TEST_F(ReferenceTest, MovesTowardThePolicyByTrlsFormula) {
  StageContext& stage = start_from(base_, {});
  Reference reference(stage, 0.7);
  std::vector<float> expected = download(context_, stage.model->flat_values());
  for (const double alpha : {0.6, 0.25}) {
    change(*stage.model);
    const std::vector<float> policy = download(context_, stage.model->flat_values());
    reference.move_toward(*stage.model, alpha);
    for (size_t i = 0; i < expected.size(); ++i)
      expected[i] = static_cast<float>((1 - alpha) * expected[i] + alpha * policy[i]);
    EXPECT_EQ(download(context_, stage.model->flat_values()), policy);
  }
  StateSection section;
  reference.save_state(section);
  const auto model = load_model(context_, base_, {.gradients = false});
  ASSERT_EQ(section.tensors.size(), model->params().size());
  size_t at = 0, compared = 0;
  for (const Param* param : model->params()) {
    const auto saved = std::ranges::find(section.tensors, param->slices.front().name, &NamedTensor::name);
    ASSERT_NE(saved, section.tensors.end());
    const std::span<const float> values = saved->tensor.as<float>();
    for (size_t i = 0; i < values.size(); ++i, ++compared)
      ASSERT_NEAR(values[i], expected[at + i], 1e-6) << saved->name;
    at += static_cast<size_t>(param->padded_elements());
  }
  EXPECT_GT(compared, 1000u);
}

TEST_F(ReferenceTest, WithAlphaOneItIsThePolicy) {
  StageContext& stage = start_from(base_, {});
  Reference reference(stage, 0.7);
  change(*stage.model);
  reference.move_toward(*stage.model, 1);
  const std::filesystem::path policy = folder_.path() / "policy";
  save_model(context_, *stage.model, policy, DType::f32);
  EXPECT_EQ(scored(reference), scores_of(policy));
}

TEST_F(ReferenceTest, ResumesBitForBitAndNamesWhatIsMissing) {
  StageContext& stage = start_from(base_, {});
  Reference moved(stage, 0.7), resumed(stage, 0.7);
  change(*stage.model);
  moved.move_toward(*stage.model, 0.6);
  StateSection section;
  moved.save_state(section);
  EXPECT_NE(scored(resumed), scored(moved));
  resumed.load_state(section);
  EXPECT_EQ(scored(resumed), scored(moved));
  const std::string name = section.tensors.back().name;
  section.tensors.pop_back();
  EXPECT_EQ(error_of([&] { resumed.load_state(section); }), "reference state: " + name + " is missing");
}

TEST_F(ReferenceTest, WithAdaptersItDoesNotMove) {
  StageContext& stage = start_from(base_, {.r = 2});
  Reference reference(stage, 0.7);
  EXPECT_THROW(reference.move_toward(*stage.model, 0.6), Error);
}

}  // namespace
}  // namespace hone::test
