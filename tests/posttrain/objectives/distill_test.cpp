// The objective distill: hone objective's numbers against TRL's, and training under a teacher.
#include <cmath>
#include <functional>

#include "core/io/file.h"
#include "posttrain/teacher/top_logprobs.h"
#include "tests/posttrain/objectives/rows.h"
#include "tests/train/rig.h"
#include "train/json/objective_json.h"
#include "train/teacher.h"

namespace hone {
namespace {

using test::make_samples, test::pointers, test::Rig, test::says;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void expect_near(const Json& actual, const Json& expected, double tolerance) {
  if (!expected.is_array()) {
    EXPECT_NEAR(actual.as_double(), expected.as_double(), tolerance);
    return;
  }
  ASSERT_EQ(actual.as_array().size(), expected.as_array().size());
  for (size_t i = 0; i < expected.as_array().size(); ++i)
    expect_near(actual.as_array()[i], expected.as_array()[i], tolerance);
}

// Cases of TRL's generalized_jsd_loss (tests/golden/make_gkd.py).
TEST(DistillJson, HasTrlsLossesAndGradients) {
  const std::string path = (test::source_folder() / "tests/golden/gkd.json").string();
  const Json cases = parse_json(read_file(path), path);
  ASSERT_EQ(cases.as_array().size(), 13u);
  for (const Json& one : cases.as_array()) {
    Json input = one.at("input"), config = JsonObject{};
    for (const auto& [name, value] : one.at("arguments").as_object()) {
      Json& to = name == "beta" || name == "temperature" ? config : input;
      to.set(name, value);
    }
    input.set("config", config);
    const Json out = evaluate_objective("distill", input, "gkd.json");
    EXPECT_NEAR(out.at("loss").as_double(), one.at("loss").as_double(), 1e-7) << one.at("arguments").dump();
    expect_near(out.at("grad"), one.at("grad"), 1e-8);
  }
}

TEST(DistillJson, ReadsLogProbsAndMasks) {
  const Json logits = parse_json("[[1, 2, 0.5], [0, 0, 3]]", "x"), teacher = parse_json("[[0, 1, 1], [2, 0, 0]]", "x");
  const auto log_softmax = [](const Json& rows) {
    test::Rows out;
    for (const Json& row : rows.as_array()) {
      double sum = 0;
      for (const Json& z : row.as_array()) sum += std::exp(z.as_double());
      std::vector<double>& logp = out.emplace_back();
      for (const Json& z : row.as_array()) logp.push_back(z.as_double() - std::log(sum));
    }
    return test::nested(out);
  };
  const Json mask = Json::array(std::vector<double>{0, 1});
  const Json a = evaluate_objective(
      "distill", JsonObject{{"student_logits", logits}, {"teacher_logits", teacher}, {"mask", mask}}, "a");
  const Json b = evaluate_objective("distill",
                                    JsonObject{{"student_logprobs", log_softmax(logits)},
                                               {"teacher_logprobs", log_softmax(teacher)},
                                               {"labels", parse_json("[-100, 2]", "x")}},
                                    "b");
  EXPECT_GT(a.at("loss").as_double(), 0.1);
  EXPECT_NEAR(a.at("loss").as_double(), b.at("loss").as_double(), 1e-12);
  expect_near(a.at("grad"), b.at("grad"), 1e-12);
  EXPECT_EQ(a.at("grad").as_array()[0], parse_json("[0.0, 0.0, 0.0]", "x"));
}

// Cases of torch (tests/golden/make_distill_top.py).
TEST(DistillJson, HasTorchsForwardKlFromTheMostLikelyTokens) {
  const std::string path = (test::source_folder() / "tests/golden/distill_top.json").string();
  const Json cases = parse_json(read_file(path), path);
  ASSERT_EQ(cases.as_array().size(), 11u);
  for (const Json& one : cases.as_array()) {
    Json input = one.at("input");
    input.set("config", one.at("config"));
    const Json out = evaluate_objective("distill", input, "distill_top.json");
    EXPECT_NEAR(out.at("loss").as_double(), one.at("loss").as_double(), 1e-7) << one.at("config").dump();
    expect_near(out.at("grad"), one.at("grad"), 1e-9);
  }
}

TEST(DistillJson, RefusesTopTokensThatDoNotFit) {
  const auto message = [](const std::string& fields) {
    const std::string text = concat(R"({"student_logits": [[1, 2]], "config": {"loss": "top_k"}, )", fields, "}");
    return message_of([&] { evaluate_objective("distill", parse_json(text, "x.json"), "x.json"); });
  };
  EXPECT_TRUE(says(message(R"("teacher_logits": [[1, 2]])"), "teacher_top_ids"));
  EXPECT_TRUE(says(message(R"("teacher_top_ids": [[2]], "teacher_top_logp": [[-1]])"), "below the 2 logits"));
  EXPECT_TRUE(says(message(R"("teacher_top_ids": [[0, 0]], "teacher_top_logp": [[-1, -1]])"), "twice"));
  EXPECT_TRUE(says(message(R"("teacher_top_ids": [[0]], "teacher_top_logp": [[-1, -1]])"), "1 ids"));
  EXPECT_TRUE(says(message(R"("teacher_top_ids": [[0], [1]], "teacher_top_logp": [[-1], [-1]])"), "same positions"));
}

// Which settings exclude each other.
TEST(DistillSettings, RefusesTeachersThatDoNotFitTheLoss) {
  const auto message = [](const std::string& config) {
    const std::string text = concat(R"({"logp": [[-1]], "config": )", config, "}");
    return message_of([&] { evaluate_objective("distill", parse_json(text, "x.json"), "x.json"); });
  };
  EXPECT_TRUE(says(message(R"({"loss": "half"})"), "known: full, sampled, top_k"));
  EXPECT_TRUE(says(message(R"({"loss": "top_k", "beta": 0.5})"), "is the forward KL"));
  EXPECT_TRUE(says(message(R"({"loss": "top_k", "temperature": 2})"), "have temperature 1"));
  EXPECT_TRUE(says(message(R"({"loss": "top_k", "lmbda": 0.5})"), "learns from stored rows"));
  EXPECT_TRUE(says(message(R"({"loss": "top_k", "teacher": "x"})"), "remove teacher"));
  EXPECT_TRUE(says(message(R"({"teacher_rest": "spread"})"), "bucket"));
  EXPECT_TRUE(says(message(R"({"loss": "sampled", "lmbda": 1, "teacher_workers": ["http://h:1"]})"),
                   "need the folder of the teacher's model"));
  EXPECT_TRUE(says(message(R"({"teacher": "x", "teacher_workers": ["http://h:1"]})"), "set loss to 'sampled'"));
}

TEST(DistillJson, RefusesLogitsThatDoNotFit) {
  const auto message = [](const char* text, const char* objective = "distill") {
    return message_of([&] { evaluate_objective(objective, parse_json(text, "x.json"), "x.json"); });
  };
  EXPECT_TRUE(says(message(R"({"student_logits": [[1, 2]], "teacher_logits": [[1, 2, 3]]})"),
                   "2 logits of the student and 3 of the teacher"));
  EXPECT_TRUE(says(message(R"({"student_logits": [[1, 2]]})"), "x.json: has no teacher_logits"));
  EXPECT_TRUE(says(message(R"({"student_logits": [[1, 2]], "teacher_logits": [[1, 2], [3, 4]]})"), "same positions"));
  EXPECT_TRUE(says(message(R"({"student_logits": [[1, 2]], "teacher_logits": [[1, 2]], "labels": [1, 2]})"), "labels"));
  EXPECT_TRUE(says(message(R"({"student_logits": [[1, 2]], "teacher_logits": [[1, 2]], "beta": 1})"), "'beta'"));
  EXPECT_TRUE(says(message(R"({"student_logits": [[1]], "teacher_logits": [[1]], "config": {"beta": 1.5}})"), "beta"));
  EXPECT_TRUE(says(message(R"({"student_logits": [[1]], "teacher_logits": [[1]]})", "grpo"), "grpo reads logp"));
}

// The gradient of a sampled token is that of -(log q - log p_old) log p.
TEST(DistillJson, SampledTokensHaveTheReverseKlAsAdvantage) {
  const test::Rows logp = {{-1.5, -0.5, -2}, {-0.75, -1}}, teacher = {{-1, -1, -1}, {-2, -0.25}};
  const Json out = evaluate_objective("distill",
                                      JsonObject{{"logp", test::nested(logp)},
                                                 {"teacher_logp", test::nested(teacher)},
                                                 {"mask", parse_json("[[0, 1, 1], [1, 1]]", "x")},
                                                 {"config", JsonObject{{"loss", "sampled"}, {"lmbda", 1.0}}}},
                                      "x.json");
  for (size_t s = 0; s < logp.size(); ++s)
    for (size_t t = 0; t < logp[s].size(); ++t) {
      const double expected = s == 0 && t == 0 ? 0 : -(teacher[s][t] - logp[s][t]) / 4;
      EXPECT_NEAR(out.at("grad").as_array()[s].as_array()[t].as_double(), expected, 1e-7) << s << " " << t;
    }
  EXPECT_NEAR(out.at("metrics").at("distill/reverse_kl").as_double(), (0.5 - 1 + 1.25 - 0.75) / 4, 1e-7);
}

std::unique_ptr<TeacherObjective> make_taught(Context& context, uint64_t seed, double beta) {
  class Fixed : public TeacherObjective {
   public:
    explicit Fixed(double beta) : TeacherObjective({}, {.divergence = {.beta = beta}, .weight = 1}) {}
    Needs needs() const override { return {.optional = {columns::divergence}, .data = TrainingData::completions}; }
    double loss(const TokenBatch& batch, TokenGrad, MetricSums& metrics) const override {
      return given_divergence(batch, metrics);
    }
  };
  std::unique_ptr<Model> teacher = test::make_tiny(context, test::tiny_config("llama"), false);
  if (seed != 0) teacher->initialize(context, seed);
  auto out = std::make_unique<Fixed>(beta);
  out->set_teacher(std::move(teacher));
  return out;
}

std::unique_ptr<TeacherObjective> make_stored() {
  class Stored : public TeacherObjective {
   public:
    Stored() : TeacherObjective({}, {.weight = 1, .stored = true}) {}
    Needs needs() const override { return {.data = TrainingData::completions}; }
    double loss(const TokenBatch& batch, TokenGrad, MetricSums& metrics) const override {
      return given_divergence(batch, metrics);
    }
  };
  return std::make_unique<Stored>();
}

constexpr size_t lengths[] = {7, 12, 3, 9};

TEST(DistillTraining, AStudentThatEqualsItsTeacherHasNothingToLearn) {
  Rig rig;
  const auto objective = make_taught(rig.context, 0, 0.5);
  const StepReport report = rig.trainer.step(pointers(make_samples(lengths)), *objective, 0.01);
  EXPECT_NEAR(report.loss, 0, 1e-9);
  EXPECT_NEAR(report.grad_norm, 0, 1e-5);
}

TEST(DistillTraining, TheDivergenceFalls) {
  for (const double beta : {0.0, 0.5, 1.0}) {
    Rig rig;
    const auto objective = make_taught(rig.context, 99, beta);
    std::vector<Sample> samples = make_samples(lengths);
    const double before = rig.trainer.step(pointers(samples), *objective, 0.01).loss;
    StepReport last;
    for (int i = 0; i < 60; ++i) last = rig.trainer.step(pointers(samples), *objective, 0.01);
    EXPECT_LT(last.loss, 0.2 * before) << beta;
    EXPECT_NEAR(last.metrics.at("distill/divergence"), last.loss, 1e-6);
  }
}

// What a step's loss is, the column of held-out samples is, too.
TEST(DistillTraining, HeldOutSamplesHaveTheLossOfAStep) {
  Rig rig;
  const auto objective = make_taught(rig.context, 99, 0.5);
  std::vector<Sample> samples = make_samples(lengths);
  std::vector<Sample*> all;
  double sum = 0, count = 0;
  for (Sample& sample : samples) all.push_back(&sample);
  const double loss = rig.trainer.step(pointers(samples), *objective, 0).loss;
  write_divergence({}, rig.context, *objective, *rig.model, all);
  for (const Sample& sample : samples)
    for (size_t t = 0; t < sample.tokens.size(); ++t) {
      const float mask = sample.columns[columns::mask][t];
      sum += mask * sample.columns[columns::divergence][t];
      count += mask;
    }
  EXPECT_NEAR(sum / count, loss, 1e-6);
}

// A sample whose stored log-probs are all tokens of a teacher's model.
void store_all(Context& context, Model& teacher, std::vector<Sample>& samples) {
  for (Sample& sample : samples) {
    const std::vector<TopLogprobs> top =
        compute_top_logprobs(context, teacher, {&sample.tokens, 1}, teacher.shape().vocab_size);
    Json row = JsonObject{{"ids", Json::array(sample.tokens)}};
    write_top_logprobs(row, top.front());
    read_top_logprobs(row, "row", teacher.shape().vocab_size, sample);
  }
}

// With the log-probs of all tokens, stored distributions teach what the teacher's model does.
TEST(DistillTraining, StoredDistributionsTeachWhatTheirModelDoes) {
  for (const int64_t micro_batch_tokens : {12, 4096}) {
    TrainerConfig config;
    config.micro_batch_tokens = micro_batch_tokens;
    Rig with_model(config), with_rows(config);
    const auto model = make_taught(with_model.context, 99, 0), rows = make_stored();
    std::vector<Sample> samples = make_samples(lengths), stored = make_samples(lengths);
    store_all(with_model.context, model->teacher(), stored);
    for (int i = 0; i < 5; ++i) {
      const double expected = with_model.trainer.step(pointers(samples), *model, 0.01).loss;
      EXPECT_NEAR(with_rows.trainer.step(pointers(stored), *rows, 0.01).loss, expected, 1e-5 * (1 + i));
    }
    const std::vector<float> a = test::weights_of(*with_model.model), b = test::weights_of(*with_rows.model);
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-3) << i;
  }
}

TEST(DistillTraining, AStepWithoutATeacherIsAnError) {
  Rig rig;
  EXPECT_TRUE(
      says(message_of([&] { rig.trainer.step(pointers(make_samples(lengths)), *make_objective("distill"), 0.01); }),
           "does not load a teacher"));
}

}  // namespace
}  // namespace hone
