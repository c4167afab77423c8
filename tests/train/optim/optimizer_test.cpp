#include "train/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "core/config/config.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tests/support/support.h"

namespace hone {
namespace {

// A parameter of a few numbers. The test sets its gradient.
struct Problem {
  explicit Problem(std::vector<float> start, std::vector<int64_t> shape = {})
      : values(std::move(start)), grads(values.size()) {
    if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
    param.slices = {{"w", shape[0]}};
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

std::vector<ParamPart> parts_of(const std::vector<Param*>& params) { return whole_parts(params); }

std::unique_ptr<Optimizer> make(const char* name, const char* settings = "") {
  const std::unique_ptr<OptimizerSettings> out = optimizers().at(name)();
  Config::from_text(settings, "test").read([&](Fields& f) { out->fields(f); });
  return out->make();
}

TEST(Adamw, FollowsPublishedTraces) {
  HONE_SHARED_OR_SKIP(path, "vectors/a1/adamw.json");
  const Json vectors = parse_json(read_file(path), path.string());
  std::vector<float> start;
  for (const Json& row : vectors.at("W0").as_array())
    for (const Json& w : row.as_array()) start.push_back(static_cast<float>(w.as_double()));
  Problem problem(start, {2, 3});
  const auto optimizer = make("adamw", "weight_decay = 0.01");
  optimizer->attach(problem.context, parts_of({&problem.param}));
  const auto expect = [&](const Json& rows, double tolerance, int64_t step) {
    for (size_t i = 0; i < 6; ++i)
      EXPECT_NEAR(problem.values[i], rows.as_array()[i / 3].as_array()[i % 3].as_double(), tolerance)
          << "step " << step;
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
    if (traced < trace.size() && trace[traced].as_array()[0].as_int() == step)
      expect(trace[traced++].as_array()[1], 2e-6, step);
  }
  EXPECT_GT(traced, 3u);
  expect(vectors.at("expected_W_torch"), 1e-5, 1000);
}

// One number, with its updates written out.
TEST(Sgd, WithMomentumFollowsItsDefinition) {
  for (const bool nesterov : {false, true}) {
    Problem problem({1});
    const auto optimizer = make(
        "sgd", nesterov ? "momentum = 0.9\nnesterov = true\nweight_decay = 0.1" : "momentum = 0.9\nweight_decay = 0.1");
    optimizer->attach(problem.context, parts_of({&problem.param}));
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
  optimizer->attach(problem.context, parts_of({&problem.param}));
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

// The contract of every registered optimizer.
class OptimizerContract : public testing::TestWithParam<std::string> {
 protected:
  // Its parts are updated as the whole is. Others gather whole tensors from the ranks (tests/train/zero_test.cpp).
  bool is_elementwise() const { return GetParam() != "adafactor"; }
  bool has_moments() const { return GetParam() == "adamw" || GetParam() == "lion" || GetParam() == "muon"; }
};

TEST_P(OptimizerContract, FindsAMinimum) {
  Problem problem({1.5f, -2, 0.25f});
  const auto optimizer = make(GetParam().c_str());
  optimizer->attach(problem.context, parts_of({&problem.param}));
  for (int64_t step = 1; step <= 1000; ++step) {
    for (size_t i = 0; i < 3; ++i) problem.grads[i] = 2 * (problem.values[i] - static_cast<float>(i));
    const double rate = GetParam() == "adagrad" ? 1 : 0.1;  // it slows down by itself
    problem.update(*optimizer, step, rate / std::sqrt(static_cast<double>(step)));
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(problem.values[i], static_cast<double>(i), 0.05);
}

TEST_P(OptimizerContract, MultipliesGradientsByTheClip) {
  Problem clipped({1, 2}), scaled({1, 2});
  const auto a = make(GetParam().c_str()), b = make(GetParam().c_str());
  a->attach(clipped.context, parts_of({&clipped.param})), b->attach(scaled.context, parts_of({&scaled.param}));
  clipped.grads = {4, -8}, clipped.clip = 0.25;
  scaled.grads = {1, -2};
  clipped.update(*a, 1, 0.1), scaled.update(*b, 1, 0.1);
  EXPECT_EQ(clipped.values, scaled.values);
  EXPECT_EQ(clipped.grads, (std::vector<float>{4, -8}));
}

TEST_P(OptimizerContract, GoesOnFromASavedStateBitForBit) {
  Problem uninterrupted({1, 2, 3}), resumed({0, 0, 0});
  const auto a = make(GetParam().c_str()), b = make(GetParam().c_str());
  a->attach(uninterrupted.context, parts_of({&uninterrupted.param})),
      b->attach(resumed.context, parts_of({&resumed.param}));
  const auto step = [](Problem& problem, Optimizer& optimizer, int64_t count) {
    for (size_t i = 0; i < 3; ++i) problem.grads[i] = std::sin(static_cast<float>(count) + problem.values[i]);
    problem.update(optimizer, count, 0.1);
  };
  step(uninterrupted, *a, 1), step(uninterrupted, *a, 2);
  StateSection section;
  a->save_state(section);
  b->load_state(section);
  resumed.values = uninterrupted.values;
  resumed.param.value.data = resumed.values.data();
  step(uninterrupted, *a, 3), step(resumed, *b, 3);
  EXPECT_EQ(uninterrupted.values, resumed.values);
}

TEST_P(OptimizerContract, AStateOfAnotherShapeIsNamed) {
  Problem saved({1, 2, 3}), other({1, 2});
  const auto a = make(GetParam().c_str()), b = make(GetParam().c_str());
  a->attach(saved.context, parts_of({&saved.param})), b->attach(other.context, parts_of({&other.param}));
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
  optimizer->attach(problem.context, parts_of({&problem.param}));
  problem.grads = {1, 1};
  problem.update(*optimizer, 1, 0.1);
  EXPECT_EQ(problem.values, (std::vector<float>{1, 2}));
  EXPECT_EQ(optimizer->state_bytes(), 0);
}

// Parameters in the layout of Model::allocate: f32 or bf16, adjacent, at multiples of 64 elements.
struct Laid {
  explicit Laid(DType dtype) : values(1024), bf16_values(1024), grads(1024) {
    int64_t at = 0;
    for (const auto& [name, count, decay] :
         {std::tuple{"a", 100, true}, {"b", 7, false}, {"c", 64, true}, {"d", 130, false}, {"e", 3, true}}) {
      const std::vector<int64_t> shape = {count};
      params.push_back(std::make_unique<Param>());
      Param& param = *params.back();
      param.slices = {{name, count}}, param.shape = shape, param.decay = decay;
      param.value = Tensor(values.data() + at, DType::f32, DeviceKind::cpu, shape);
      if (dtype == DType::bf16) param.value = Tensor(bf16_values.data() + at, dtype, DeviceKind::cpu, shape);
      param.grad = Tensor(grads.data() + at, DType::f32, DeviceKind::cpu, shape);
      for (int64_t i = 0; i < count; ++i) {
        const auto place = static_cast<size_t>(at + i);
        bf16_values[place] = to_bf16(std::sin(static_cast<float>(place)));
        values[place] = to_float(bf16_values[place]);
      }
      at += (count + 63) / 64 * 64;
    }
  }
  std::vector<Param*> pointers() const {
    std::vector<Param*> out;
    for (const auto& param : params) out.push_back(param.get());
    return out;
  }
  // Gradients that depend only on the step.
  void set_gradients(int64_t step) {
    for (const auto& param : params)
      for (int64_t i = 0; i < param->grad.size(); ++i)
        param->grad.as<float>()[static_cast<size_t>(i)] = std::cos(static_cast<float>(step * 31 + i));
  }
  void step(Optimizer& optimizer, int64_t count, double learning_rate) {
    set_gradients(count);
    optimizer.update(context, host_view(std::span(&clip, 1)), count, learning_rate);
  }
  std::vector<float> values;
  std::vector<bf16> bf16_values;
  std::vector<float> grads;
  std::vector<std::unique_ptr<Param>> params;
  float clip = 0.5f;
  std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context{*device};
};
const char* with_decay = "weight_decay = 0.1";

TEST_P(OptimizerContract, ParametersInOneRunMoveAsEachAlone) {
  for (const bool frozen : {false, true}) {
    Laid laid(DType::f32), alone(DType::f32);
    if (frozen) laid.params[2]->trainable = alone.params[2]->trainable = false;
    const auto together = make(GetParam().c_str(), with_decay);
    together->attach(laid.context, parts_of(laid.pointers()));
    std::vector<std::unique_ptr<Optimizer>> each;
    for (Param* param : alone.pointers()) {
      each.push_back(make(GetParam().c_str(), with_decay));
      each.back()->attach(alone.context, parts_of({param}));
    }
    for (int64_t step = 1; step <= 3; ++step) {
      laid.step(*together, step, 0.01);
      for (const auto& optimizer : each) alone.step(*optimizer, step, 0.01);
    }
    EXPECT_EQ(laid.values, alone.values);
    // Without weight decay only the parameters that decay end with other values.
    Laid other(DType::f32);
    const auto plain = make(GetParam().c_str());
    plain->attach(other.context, parts_of(other.pointers()));
    for (int64_t step = 1; step <= 3; ++step) other.step(*plain, step, 0.01);
    const auto at = [](const Param& param, size_t i) { return param.value.as<float>()[i]; };
    for (size_t p = 0; p < laid.params.size(); ++p)
      EXPECT_EQ(at(*laid.params[p], 0) == at(*other.params[p], 0), !laid.params[p]->decay) << p;
  }
}

// Shards of the list: runs of `run` elements of each parameter are dealt to `count` optimizers.
struct Shards {
  Shards(Laid& laid, const char* kind, const char* settings, size_t count, int64_t run, const std::string& list = "")
      : laid_(laid), parts(count) {
    int64_t turn = 0;
    for (const ParamPart& whole : parts_of(laid.pointers()))
      for (int64_t first = 0; first < whole.value.size(); first += run, ++turn) {
        const int64_t size = std::min(run, whole.value.size() - first);
        parts[static_cast<size_t>(turn) % count].push_back({.param = whole.param,
                                                            .first = first,
                                                            .value = whole.value.rows(first, size),
                                                            .grad = whole.grad.rows(first, size),
                                                            .place = whole.place + first});
      }
    for (const std::vector<ParamPart>& own : parts) {
      optimizers.push_back(make(kind, settings));
      optimizers.back()->attach(laid.context, own, list);
    }
  }
  void step(int64_t number, double learning_rate) {
    for (const auto& optimizer : optimizers) laid_.step(*optimizer, number, learning_rate);
  }
  StateSection save() const {
    StateSection out;
    for (const auto& optimizer : optimizers) optimizer->save_state(out);
    return out;
  }
  void load(const StateSection& section) {
    for (const auto& optimizer : optimizers) optimizer->load_state(section);
  }
  Laid& laid_;
  std::vector<std::vector<ParamPart>> parts;
  std::vector<std::unique_ptr<Optimizer>> optimizers;
};

// The bytes of all values, and of all states as a whole optimizer loads them.
std::string all_bytes(const Laid& laid, const StateSection& saved, const char* kind, const char* settings) {
  Laid copy(laid.params.front()->value.dtype);
  const auto whole = make(kind, settings);
  whole->attach(copy.context, parts_of(copy.pointers()));
  whole->load_state(saved);
  StateSection states;
  whole->save_state(states);
  std::string out(reinterpret_cast<const char*>(laid.bf16_values.data()), laid.bf16_values.size() * sizeof(bf16));
  out.append(reinterpret_cast<const char*>(laid.values.data()), laid.values.size() * sizeof(float));
  for (const NamedTensor& named : states.tensors)
    out += named.name + std::string(static_cast<const char*>(named.tensor.data), named.tensor.bytes());
  return out;
}

TEST_P(OptimizerContract, ShardsGiveTheBitsOfTheWhole) {
  if (!is_elementwise()) return;
  const char* kind = GetParam().c_str();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const char* settings : {with_decay, "weight_decay = 0.1\nmoments = \"bf16\""}) {
      if (settings != with_decay && !has_moments()) continue;
      Laid whole(dtype);
      Shards one(whole, kind, settings, 1, 1024);
      for (int64_t step = 1; step <= 4; ++step) one.step(step, 1e-2);
      const std::string expected = all_bytes(whole, one.save(), kind, settings);
      for (const size_t count : {2u, 3u, 5u}) {
        SCOPED_TRACE(concat(count, " shards, ", settings));
        Laid split(dtype), resumed(dtype);
        Shards shards(split, kind, settings, count, 64), other(resumed, kind, settings, 6 - count, 128);
        for (int64_t step = 1; step <= 2; ++step) shards.step(step, 1e-2);
        other.load(shards.save());  // another number of ranks goes on
        std::ranges::copy(split.values, resumed.values.begin());
        std::ranges::copy(split.bf16_values, resumed.bf16_values.begin());
        for (int64_t step = 3; step <= 4; ++step) other.step(step, 1e-2);
        EXPECT_TRUE(all_bytes(resumed, other.save(), kind, settings) == expected);
      }
    }
}

TEST_P(OptimizerContract, OneThatReadsWholeTensorsSaysSoToARankThatIsAlone) {
  if (is_elementwise()) return;
  Laid laid(DType::f32);
  try {
    Shards(laid, GetParam().c_str(), "", 2, 64);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("elements 0 to 63 of a, and nobody to gather the others from"),
              std::string::npos)
        << error.what();
  }
}

TEST_P(OptimizerContract, StatesInPartsThatDoNotFitAreNamed) {
  if (!is_elementwise()) return;
  const char* kind = GetParam().c_str();
  Laid laid(DType::f32);
  Shards shards(laid, kind, "", 2, 64), whole(laid, kind, "", 1, 1024);
  const StateSection good = shards.save();
  const auto message = [&](const std::function<void(StateSection&)>& change) -> std::string {
    StateSection bad = good;
    change(bad);
    try {
      whole.load(bad);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const auto part =
      std::ranges::find_if(good.tensors, [](const NamedTensor& n) { return n.name.ends_with("[64:100]"); });
  ASSERT_NE(part, good.tensors.end());
  const auto at = static_cast<size_t>(part - good.tensors.begin());
  const std::string tensor = part->name.substr(0, part->name.find('['));
  const auto renamed = [&](const std::string& range) {
    return message([&](StateSection& section) { section.tensors[at].name = tensor + range; });
  };
  EXPECT_EQ(message([](StateSection&) {}), "accepted");
  EXPECT_NE(message([&](StateSection& s) {
              s.tensors.erase(s.tensors.begin() + static_cast<std::ptrdiff_t>(at));
            }).find("elements 64 to 99 of " + tensor + " are missing"),
            std::string::npos);
  EXPECT_NE(renamed("[60:96]").find("element 60 twice"), std::string::npos);
  EXPECT_NE(renamed("[65:101]").find("101 numbers, the parameter has 100"), std::string::npos);
  EXPECT_NE(renamed("[64:99]").find("has 36 numbers"), std::string::npos);
  for (const char* range : {"[64]", "[:100]", "[100:64]", "[-4:32]", "[64:1e2]", "[64:99999999999999999999]"})
    EXPECT_NE(renamed(range).find("wants a range [first:last]"), std::string::npos) << range;
}

// A list's random streams have its name: equal numbers of a policy and its critic are rounded with different noise.
TEST(Adamw, ListsDrawFromStreamsOfTheirOwn) {
  const char* settings = "moments = \"bf16\"";
  Laid policy(DType::f32), critic(DType::f32), again(DType::f32);
  Shards a(policy, "adamw", settings, 1, 1024), b(critic, "adamw", settings, 1, 1024, "critic"),
      c(again, "adamw", settings, 1, 1024, "critic");
  a.step(1, 1e-2), b.step(1, 1e-2), c.step(1, 1e-2);
  EXPECT_FALSE(all_bytes(policy, a.save(), "adamw", settings) == all_bytes(critic, b.save(), "adamw", settings));
  EXPECT_TRUE(all_bytes(critic, b.save(), "adamw", settings) == all_bytes(again, c.save(), "adamw", settings));
}

TEST_P(OptimizerContract, Bf16ParametersAreTheNearestOfAnF32MasterThatMovesLikeAnF32Model) {
  Laid fine(DType::f32), coarse(DType::bf16);
  const auto a = make(GetParam().c_str(), with_decay), b = make(GetParam().c_str(), with_decay);
  a->attach(fine.context, parts_of(fine.pointers())), b->attach(coarse.context, parts_of(coarse.pointers()));
  EXPECT_EQ(b->state_bytes() - a->state_bytes(), 4 * 512);  // 512 granules of 64 elements each
  for (int64_t step = 1; step <= 5; ++step) fine.step(*a, step, 1e-4), coarse.step(*b, step, 1e-4);
  StateSection section;
  b->save_state(section);
  size_t masters = 0;
  for (const NamedTensor& named : section.tensors)
    for (size_t p = 0; p < fine.params.size(); ++p)
      if (named.name == "master." + fine.params[p]->slices.front().name) {
        ++masters;
        const std::span<const float> master = named.tensor.as<float>(), value = fine.params[p]->value.as<float>();
        EXPECT_TRUE(std::ranges::equal(master, value)) << named.name;
        for (size_t i = 0; i < value.size(); ++i)
          ASSERT_EQ(coarse.params[p]->value.as<bf16>()[i].bits, to_bf16(value[i]).bits) << named.name;
      }
  EXPECT_EQ(masters, fine.params.size());
}

TEST_P(OptimizerContract, Bf16ParametersGoOnFromASavedStateBitForBit) {
  for (const char* settings : {"", "moments = \"bf16\""}) {
    if (*settings && !has_moments()) continue;
    Laid uninterrupted(DType::bf16), resumed(DType::bf16);
    const auto a = make(GetParam().c_str(), settings), b = make(GetParam().c_str(), settings);
    a->attach(uninterrupted.context, parts_of(uninterrupted.pointers())),
        b->attach(resumed.context, parts_of(resumed.pointers()));
    for (int64_t step = 1; step <= 3; ++step) uninterrupted.step(*a, step, 1e-3);
    StateSection section, ends[2];
    a->save_state(section);
    b->load_state(section);
    std::ranges::copy(uninterrupted.bf16_values, resumed.bf16_values.begin());
    uninterrupted.step(*a, 4, 1e-3), resumed.step(*b, 4, 1e-3);
    a->save_state(ends[0]), b->save_state(ends[1]);
    ASSERT_EQ(ends[0].tensors.size(), ends[1].tensors.size());
    for (size_t i = 0; i < ends[0].tensors.size(); ++i) {
      const Tensor &x = ends[0].tensors[i].tensor, &y = ends[1].tensors[i].tensor;
      EXPECT_EQ(ends[0].tensors[i].name, ends[1].tensors[i].name);
      EXPECT_EQ(std::memcmp(x.data, y.data, x.bytes()), 0) << ends[0].tensors[i].name;
    }
  }
}

TEST_P(OptimizerContract, ValuesOfOtherTypesAreRefused) {
  Laid laid(DType::f32);
  laid.params[3]->value.dtype = DType::f16;
  EXPECT_THROW(make(GetParam().c_str())->attach(laid.context, parts_of(laid.pointers())), Error);
}

// Steps far below the resolution of bf16 add up in both: in the master, and in moments that are rounded
// stochastically.
TEST(Adamw, Bf16MomentsFollowF32OnesOnAverage) {
  Laid fine(DType::bf16), coarse(DType::bf16);
  const auto a = make("adamw"), b = make("adamw", "moments = \"bf16\"");
  a->attach(fine.context, parts_of(fine.pointers())), b->attach(coarse.context, parts_of(coarse.pointers()));
  EXPECT_EQ(a->state_bytes() - b->state_bytes(), 2 * 2 * 512);
  for (int64_t step = 1; step <= 200; ++step) fine.step(*a, step, 1e-3), coarse.step(*b, step, 1e-3);
  StateSection states[2];
  a->save_state(states[0]), b->save_state(states[1]);
  ASSERT_EQ(states[0].tensors.size(), states[1].tensors.size());
  for (size_t t = 0; t < states[0].tensors.size(); ++t) {
    const Tensor &x = states[0].tensors[t].tensor, &y = states[1].tensors[t].tensor;
    if (!states[0].tensors[t].name.starts_with("exp_avg_sq")) continue;
    double sum = 0, error = 0;
    for (size_t i = 0; i < x.as<float>().size(); ++i)
      sum += x.as<float>()[i], error += to_float(y.as<bf16>()[i]) - x.as<float>()[i];
    EXPECT_LT(std::fabs(error), 0.03 * sum) << states[0].tensors[t].name;
  }
}

TEST(Adamw, MomentsAreF32OrBf16) {
  EXPECT_THROW(make("adamw", "moments = \"f16\""), Error);
  EXPECT_NO_THROW(make("adamw", "moments = \"bf16\""));
}

INSTANTIATE_TEST_SUITE_P(Registry, OptimizerContract, testing::ValuesIn(optimizers().names()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace hone
