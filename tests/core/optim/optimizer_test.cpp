#include "core/optim/optimizer.h"

#include <cmath>

#include "core/config.h"
#include "core/file.h"
#include "core/json.h"
#include "tests/support/support.h"

namespace hone {
namespace {

// A parameter of a few numbers, its gradient set by the test.
struct Problem {
  explicit Problem(std::vector<float> start, std::vector<int64_t> shape = {}) : values(std::move(start)), grads(values.size()) {
    if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
    param.blocks = {{"w", shape[0]}};
    param.shape = shape;
    param.value = Tensor(values.data(), DType::f32, DeviceKind::cpu, shape);
    param.grad = Tensor(grads.data(), DType::f32, DeviceKind::cpu, shape);
  }
  std::vector<float> values, grads;
  Param param;
  float clip = 1;
  std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context{*device};

  void update(Optimizer& optimizer, int64_t step, double learning_rate) {
    optimizer.update(context, host_view(std::span(&clip, 1)), step, learning_rate);
  }
};

std::unique_ptr<Optimizer> make(const char* name, const char* settings = "") {
  std::unique_ptr<Optimizer> out = optimizers().at(name)();
  Config::from_text(settings, "test").read([&](Fields& f) { out->fields(f); });
  return out;
}

TEST(Adamw, FollowsPublishedTraces) {
  HONE_SHARED_OR_SKIP(path, "vectors/a1/adamw.json");
  const Json vectors = parse_json(read_file(path), path.string());
  std::vector<float> start;
  for (const Json& row : vectors.at("W0").as_array())
    for (const Json& w : row.as_array()) start.push_back(static_cast<float>(w.as_double()));
  Problem problem(start, {2, 3});
  const auto optimizer = make("adamw", "weight_decay = 0.01");
  optimizer->attach(problem.context, {&problem.param});
  const auto expect = [&](const Json& rows, double tolerance, int64_t step) {
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(problem.values[i], rows.as_array()[i / 3].as_array()[i % 3].as_double(), tolerance) << "step " << step;
  };
  const JsonArray& trace = vectors.at("trace_torch(step,W,loss_before_step)").as_array();
  const JsonArray& inputs = vectors.at("x").as_array();
  size_t traced = 0;
  for (int64_t step = 1; step <= 1000; ++step) {
    const JsonArray& row = inputs[static_cast<size_t>(step - 1)].as_array();
    const double x[] = {row[0].as_double(), row[1].as_double(), row[2].as_double()}, target[] = {x[0] + x[1], -x[2]};
    for (size_t r = 0; r < 2; ++r) {
      double miss = -target[r];
      for (size_t c = 0; c < 3; ++c) miss += problem.values[3 * r + c] * x[c];
      for (size_t c = 0; c < 3; ++c) problem.grads[3 * r + c] = static_cast<float>(2 * miss * x[c]);
    }
    problem.update(*optimizer, step, 0.001);
    if (traced < trace.size() && trace[traced].as_array()[0].as_int() == step) expect(trace[traced++].as_array()[1], 2e-6, step);
  }
  EXPECT_GT(traced, 3u);
  expect(vectors.at("expected_W_torch"), 1e-5, 1000);
}

// One number, updates written out.
TEST(Sgd, WithMomentumFollowsItsDefinition) {
  for (const bool nesterov : {false, true}) {
    Problem problem({1});
    const auto optimizer = make("sgd", nesterov ? "momentum = 0.9\nnesterov = true\nweight_decay = 0.1" : "momentum = 0.9\nweight_decay = 0.1");
    optimizer->attach(problem.context, {&problem.param});
    double value = 1, buffer = 0;
    for (int64_t step = 1; step <= 5; ++step) {
      const double g = 0.5 * static_cast<double>(step);
      problem.grads[0] = static_cast<float>(g);
      problem.update(*optimizer, step, 0.05);
      const double decayed = g + 0.1 * value;
      buffer = step == 1 ? decayed : 0.9 * buffer + decayed;
      value -= 0.05 * (nesterov ? decayed + 0.9 * buffer : buffer);
      EXPECT_NEAR(problem.values[0], value, 1e-6) << step;
    }
  }
}

TEST(Rmsprop, FollowsItsDefinition) {
  Problem problem({1});
  const auto optimizer = make("rmsprop", "alpha = 0.8");
  optimizer->attach(problem.context, {&problem.param});
  double value = 1, square = 0;
  for (int64_t step = 1; step <= 5; ++step) {
    const double g = 0.5 * static_cast<double>(step);
    problem.grads[0] = static_cast<float>(g);
    problem.update(*optimizer, step, 0.05);
    square = 0.8 * square + 0.2 * g * g;
    value -= 0.05 * g / (std::sqrt(square) + 1e-8);
    EXPECT_NEAR(problem.values[0], value, 1e-6) << step;
  }
}

// What every registered optimizer promises.
class OptimizerContract : public testing::TestWithParam<std::string> {};

TEST_P(OptimizerContract, FindsAMinimum) {
  Problem problem({1.5f, -2, 0.25f});
  const auto optimizer = make(GetParam().c_str());
  optimizer->attach(problem.context, {&problem.param});
  for (int64_t step = 1; step <= 1000; ++step) {
    for (size_t i = 0; i < 3; ++i) problem.grads[i] = 2 * (problem.values[i] - static_cast<float>(i));
    problem.update(*optimizer, step, 0.05 / std::sqrt(static_cast<double>(step)) * 2);
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(problem.values[i], static_cast<double>(i), 0.05);
}

TEST_P(OptimizerContract, MultipliesGradientsByTheClip) {
  Problem clipped({1, 2}), scaled({1, 2});
  const auto a = make(GetParam().c_str()), b = make(GetParam().c_str());
  a->attach(clipped.context, {&clipped.param}), b->attach(scaled.context, {&scaled.param});
  clipped.grads = {4, -8}, clipped.clip = 0.25;
  scaled.grads = {1, -2};
  clipped.update(*a, 1, 0.1), scaled.update(*b, 1, 0.1);
  EXPECT_EQ(clipped.values, scaled.values);
  EXPECT_EQ(clipped.grads, (std::vector<float>{4, -8}));
}

TEST_P(OptimizerContract, GoesOnFromASavedStateBitForBit) {
  Problem whole({1, 2, 3}), resumed({0, 0, 0});
  const auto a = make(GetParam().c_str()), b = a->fresh();
  a->attach(whole.context, {&whole.param}), b->attach(resumed.context, {&resumed.param});
  const auto step = [](Problem& problem, Optimizer& optimizer, int64_t count) {
    for (size_t i = 0; i < 3; ++i) problem.grads[i] = std::sin(static_cast<float>(count) + problem.values[i]);
    problem.update(optimizer, count, 0.1);
  };
  step(whole, *a, 1), step(whole, *a, 2);
  StateSection section;
  a->save_state(section);
  b->load_state(section);
  resumed.values = whole.values;
  resumed.param.value.data = resumed.values.data();
  step(whole, *a, 3), step(resumed, *b, 3);
  EXPECT_EQ(whole.values, resumed.values);
}

TEST_P(OptimizerContract, AStateOfAnotherShapeIsNamed) {
  Problem saved({1, 2, 3}), other({1, 2});
  const auto a = make(GetParam().c_str()), b = a->fresh();
  a->attach(saved.context, {&saved.param}), b->attach(other.context, {&other.param});
  StateSection section;
  a->save_state(section);
  try {
    b->load_state(section);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(".w has 3"), std::string::npos) << error.what();
  }
  EXPECT_THROW(b->load_state({}), Error);
}

TEST_P(OptimizerContract, FrozenParametersStay) {
  Problem problem({1, 2});
  problem.param.trainable = false;
  const auto optimizer = make(GetParam().c_str());
  optimizer->attach(problem.context, {&problem.param});
  problem.grads = {1, 1};
  problem.update(*optimizer, 1, 0.1);
  EXPECT_EQ(problem.values, (std::vector<float>{1, 2}));
  EXPECT_EQ(optimizer->state_bytes(), 0);
}

INSTANTIATE_TEST_SUITE_P(Registry, OptimizerContract, testing::ValuesIn(optimizers().names()), [](const auto& param) { return param.param; });

}  // namespace
}  // namespace hone
