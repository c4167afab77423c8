// A stage's teacher: which token of the teacher a token of the student is compared with, and what is an error.
#include "posttrain/teacher/stage_teacher.h"

#include <gtest/gtest.h>

#include "kernels/gemm/gemm.h"
#include "model/forward.h"
#include "model/token_logprobs.h"
#include "tests/rollout/byte_model.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"
#include "tests/train/stage_context.h"
#include "train/teacher.h"
#include "train/trainer.h"

namespace hone::test {
namespace {

class FixedObjective : public TeacherObjective {
 public:
  FixedObjective(TeacherConfig config, Term term) : TeacherObjective(std::move(config), term) {}
  Needs needs() const override { return {.optional = {columns::divergence}, .data = TrainingData::completions}; }
  double loss(const TokenBatch& batch, TokenGrad, MetricSums& metrics) const override {
    return given_divergence(batch, metrics);
  }
};

class StageTeacherTest : public ::testing::Test {
 protected:
  StageTeacherTest() : fixture_(tiny_.context, folder_.path()) {
    tiny_.save(folder_.path() / "student");
    tiny_.model->initialize(tiny_.context, 77);
    tiny_.save(folder_.path() / "teacher");
    StageContext& stage = *fixture_.stage;
    stage.tokenizer = byte_tokenizer();
    stage.model = load_model(tiny_.context, folder_.path() / "student", {.gradients = true});
    stage.load_start_model = [this](bool gradients) {
      return load_model(tiny_.context, folder_.path() / "student", {.gradients = gradients});
    };
    for (const auto& [hint, texts] : rows_) {
      Group& group = groups_.emplace_back();
      group.task.id = concat("rows.jsonl:", groups_.size());
      group.task.columns = JsonObject{{"hint", hint}};
      for (const char* text : texts) {
        Sample& sample = group.samples.emplace_back();
        sample.tokens = stage.tokenizer->encode(text);
        set_mask(sample, 2);
      }
    }
  }
  std::vector<Group*> groups() {
    std::vector<Group*> out;
    for (Group& group : groups_) out.push_back(&group);
    return out;
  }
  std::vector<Sample*> samples() {
    std::vector<Sample*> out;
    for (Group& group : groups_)
      for (Sample& sample : group.samples) out.push_back(&sample);
    return out;
  }
  // The logits after a prefix: one pass over the prefix alone.
  std::vector<float> logits_after(Model& model, const std::vector<int32_t>& prefix) {
    Context& context = tiny_.context;
    const ScratchScope scope(context);
    const BatchPart part{.tokens = prefix};
    const auto last = static_cast<int32_t>(prefix.size()) - 1;
    const Tensor hidden = infer(context, model, pack_batch(context, context.scratch(), {&part, 1}),
                                upload(context, context.scratch(), std::span<const int32_t>(&last, 1)), nullptr);
    std::vector<float> out(static_cast<size_t>(model.shape().vocab_size));
    gemm_forward(context, {.y = Tensor(out.data(), DType::f32, DeviceKind::cpu, {1, std::ssize(out)}),
                           .x = hidden,
                           .w = model.lm_head().value});
    return out;
  }
  static std::vector<int32_t> joined(std::vector<int32_t> a, std::span<const int32_t> b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  const std::vector<std::pair<std::string, std::vector<const char*>>> rows_ = {
      {"the answer is 7\n", {"3+4=7", "3+4=8 or so"}}, {"", {"1+1=2"}}, {"a longer hint, with words\n", {"x"}}};
  TinyModel tiny_;
  TemporaryFolder folder_;
  StageFixture fixture_;
  std::vector<Group> groups_;
};

TEST_F(StageTeacherTest, TheTeacherReadsTheContextBeforeTheStudentsTokens) {
  const std::string teacher_folder = (folder_.path() / "teacher").string();
  const Divergence kind{.beta = 0.3, .inv_temperature = 0.8};
  FixedObjective objective({.folder = teacher_folder, .context_field = "hint"}, {.divergence = kind, .weight = 1});
  StageContext& stage = *fixture_.stage;
  StageTeacher teacher(stage, objective);
  teacher.prepare(groups());
  write_divergence({}, stage.context, objective, *stage.model, samples());
  double sum = 0, count = 0;
  for (const Group& group : groups_)
    for (const Sample& sample : group.samples) {
      const std::vector<int32_t> context = stage.tokenizer->encode(group.task.columns.at("hint").as_string());
      for (size_t t = 2; t < sample.tokens.size(); ++t) {
        const std::span<const int32_t> prefix = std::span(sample.tokens).first(t);
        std::vector<float> own = logits_after(*stage.model, {prefix.begin(), prefix.end()});
        const std::vector<float> other = logits_after(objective.teacher(), joined(context, prefix));
        const double expected = distill_row(own.data(), other.data(), std::ssize(own), kind, 1, nullptr);
        EXPECT_NEAR(std::as_const(sample.columns)[columns::divergence][t], expected, 1e-5) << group.task.id << " " << t;
        sum += expected;
        ++count;
      }
    }
  // A step's loss is the same, in micro-batches of any size.
  for (const int64_t tokens : {16, 4096}) {
    TrainerConfig config;
    config.micro_batch_tokens = tokens;
    Trainer trainer(stage.context, *stage.model, config);
    std::vector<const Sample*> batch;
    for (Sample* sample : samples()) {
      sample->columns.erase(columns::divergence);
      batch.push_back(sample);
    }
    EXPECT_NEAR(trainer.step(batch, objective, 0).loss, sum / count, 1e-5) << tokens;
  }
}

TEST_F(StageTeacherTest, LogProbsAreThoseAfterTheContext) {
  FixedObjective objective({.context_field = "hint"}, {});
  StageContext& stage = *fixture_.stage;
  StageTeacher teacher(stage, objective);  // the model as the stage began
  teacher.prepare(groups());
  teacher.write_logp(groups_, 1.5);
  for (const Group& group : groups_) {
    const std::vector<int32_t> context = stage.tokenizer->encode(group.task.columns.at("hint").as_string());
    for (const Sample& sample : group.samples) {
      const std::vector<int32_t> sequence = joined(context, sample.tokens);
      const TokenLogprobs expected =
          compute_logprobs(stage.context, *stage.model, {&sequence, 1}, {.temperature = 1.5}).front();
      const std::span<const float> logp = sample.columns.find(columns::teacher_logp);
      ASSERT_EQ(logp.size(), sample.tokens.size());
      EXPECT_EQ(logp[0], 0);
      for (size_t t = 1; t < logp.size(); ++t) EXPECT_EQ(logp[t], expected.logp[context.size() + t]);
    }
  }
}

TEST_F(StageTeacherTest, TheContextStandsAfterABos) {
  FixedObjective objective({}, {});
  objective.set_contexts({{5, 6}, {}}, 1);
  const auto with = [&](std::vector<int32_t> tokens, float index) { return objective.with_context(tokens, index); };
  EXPECT_EQ(with({1, 9}, 0), (std::vector<int32_t>{1, 5, 6, 9}));
  EXPECT_EQ(with({9, 1}, 0), (std::vector<int32_t>{5, 6, 9, 1}));
  EXPECT_EQ(with({1, 9}, 1), (std::vector<int32_t>{1, 9}));
}

TEST_F(StageTeacherTest, ProblemsNameTheTaskAndTheField) {
  StageContext& stage = *fixture_.stage;
  FixedObjective objective({.context_field = "hint"}, {.weight = 1});
  StageTeacher teacher(stage, objective);
  groups_[1].task.columns = JsonObject{{"other", "x"}};
  EXPECT_NE(error_of([&] { teacher.prepare(groups()); }).find("row of task rows.jsonl:2 has no text in the field hint"),
            std::string::npos);
  groups_[1].task.columns = JsonObject{{"hint", std::string(600, 'h')}};
  const std::string longer = error_of([&] { teacher.prepare(groups()); });
  EXPECT_NE(longer.find("task rows.jsonl:2 has 5 tokens after the 600 of the field hint; the teacher takes 512 in all"),
            std::string::npos)
      << longer;
  FixedObjective folder({.folder = (folder_.path() / "teacher").string()}, {.weight = 1});
  StageTeacher plain(stage, folder);
  groups_[1].samples[0].tokens.resize(513);
  const std::string sample = error_of([&] { plain.prepare(groups()); });
  EXPECT_NE(sample.find("task rows.jsonl:2 has 513 tokens; the teacher takes 512"), std::string::npos) << sample;
  FixedObjective none({}, {.weight = 1});
  EXPECT_NE(error_of([&] { StageTeacher(stage, none); }).find("set teacher to a model folder"), std::string::npos);
}

}  // namespace
}  // namespace hone::test
