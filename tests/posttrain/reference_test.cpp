#include "posttrain/reference.h"

#include "model/lora.h"
#include "tests/model/tiny_model.h"

namespace hone::test {
namespace {

class ReferenceTest : public ::testing::Test {
 protected:
  ReferenceTest() : device_(cpu_device()), context_(*device_), log_(folder_.path()) {
    recipe_ = Config::from_text(
                  "[[stage]]\nkind = \"rl\"\nreward = { kind = \"number\" }\ngenerator = { kind = \"arithmetic\" }\n",
                  "test", {})
                  .as<Recipe>();
    save_model(context_, *make_tiny(context_, tiny_config("llama"), false), base_, DType::f32);
    groups_.resize(2);
    for (uint32_t i = 0; i < 4; ++i) groups_[i / 2].samples.emplace_back().tokens = random_tokens(5 + i, 19, i + 1);
  }
  hone::Run run_from(const std::filesystem::path& start, const LoraConfig& lora) {
    hone::Run out{.recipe = recipe_,
                  .folder = folder_.path(),
                  .device = *device_,
                  .context = context_,
                  .log = log_,
                  .tokenizer = {},
                  .model = load_model(context_, start, {.lora = lora}),
                  .stage_name = "rl",
                  .report = {},
                  .start_folder = start};
    return out;
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
  // Of a model loaded from a folder.
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
  MetricsLog log_;
  Recipe recipe_;
  std::filesystem::path base_ = folder_.path() / "base";
  std::vector<Group> groups_;
};

TEST_F(ReferenceTest, IsACopyOfTheStartWhereTheWeightsAreTrained) {
  hone::Run run = run_from(base_, {});
  Reference reference(run, 0.7);
  change(*run.model);
  EXPECT_EQ(scored(reference), scores_of(base_));
}

TEST_F(ReferenceTest, IsTheFrozenBaseAtNoMemory) {
  hone::Run run = run_from(base_, {.r = 2, .target_modules = {"all-linear"}});
  const std::vector<float> expected = scores_of(base_);
  const size_t bytes = device_->used_bytes();
  Reference reference(run, 0.7);
  EXPECT_EQ(device_->used_bytes(), bytes);
  change(*run.model);
  EXPECT_EQ(scored(reference), expected);
  EXPECT_TRUE(run.model->lora()->enabled);
}

TEST_F(ReferenceTest, IsTheAdapterThatTheStageBeganWith) {
  const std::filesystem::path start = folder_.path() / "adapter";
  const auto model = load_model(context_, base_, {.lora = {.r = 2}});
  change(*model);
  save_adapter(context_, *model, start, DType::f32);
  hone::Run run = run_from(start, {});
  Reference reference(run, 0.7);
  EXPECT_EQ(scored(reference), scores_of(start));
  EXPECT_NE(scored(reference), scores_of(base_));
  change(*run.model);
  const std::vector<float> values = download(context_, run.model->flat_values());
  EXPECT_EQ(scored(reference), scores_of(start));
  EXPECT_EQ(download(context_, run.model->flat_values()), values);
}

}  // namespace
}  // namespace hone::test
