#include "model/forward.h"

#include "tests/model/tiny_model.h"

namespace hone::test {
namespace {

struct Measured {
  size_t tape = 0, scratch = 0;
  bool operator==(const Measured&) const = default;
};

// Measures a forward and a backward pass over two sequences on a device.
Measured measure(const std::string& device_name, Recompute recompute) {
  const auto device = devices().at(device_name)(0);
  Context context(*device);
  auto model = make_model(with(tiny_config("llama"), {{"num_hidden_layers", 6}}), "test");
  model->allocate(context, DType::f32, true);
  model->initialize(context, 1);
  Arena arena(*device);
  const std::vector<int32_t> ids = random_tokens(30, 19, 1), rows = all_rows(60);
  const Batch batch = pack_batch(context, arena, std::vector<BatchPart>{{ids}, {ids}});
  TrainingPass pass(context, *model, recompute);
  const Tensor hidden = pass.forward(batch, upload(context, arena, std::span<const int32_t>(rows)));
  const Tensor dhidden = arena.take(DType::f32, hidden.dims());
  context.zero(dhidden);
  pass.backward(dhidden);
  return {pass.peak_bytes(), context.scratch().peak_bytes()};
}

TEST(Pass, TakesTheSameMemoryOnTheMetaDevice) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
    EXPECT_EQ(measure("meta", recompute).tape, measure("cpu", recompute).tape);
}

TEST(Pass, RecomputationKeepsLess) {
  const size_t all = measure("cpu", Recompute::none).tape;
  EXPECT_LT(2 * measure("cpu", Recompute::full).tape, all);
  EXPECT_LT(4 * measure("cpu", Recompute::selective).tape, 3 * all);
}

TEST(Pass, SequencesLongerThanThePositionsAreRefused) {
  const auto device = cpu_device();
  Context context(*device);
  const auto model = make_tiny(context, tiny_config("gpt2"), false);
  const std::vector<int32_t> fits = random_tokens(40, 19, 1), one(1);
  EXPECT_NO_THROW(hidden_of(context, *model, std::vector<BatchPart>{{fits}}));
  EXPECT_THROW(hidden_of(context, *model, std::vector<BatchPart>{{one, 40}}), Error);
}

}  // namespace
}  // namespace hone::test
