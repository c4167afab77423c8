#include "core/model/run.h"

#include "core/model/plan.h"
#include "tests/core/model/tiny_model.h"

namespace hone::test {
namespace {

struct Measured {
  size_t tape = 0, scratch = 0;
  bool operator==(const Measured&) const = default;
};

// What a forward and a backward over two sequences take on a device.
Measured measure(const std::string& device_name, Recompute recompute) {
  const auto device = devices().at(device_name)(0);
  Context context(*device);
  auto model = make_model(with(tiny_config("llama"), {{"num_hidden_layers", 6}}), "test");
  model->allocate(context, DType::f32, true);
  model->initialise(context, 1);
  Arena arena(*device);
  const std::vector<int32_t> ids = random_tokens(30, 19, 1), rows = all_rows(60);
  const Batch batch = pack_batch(context, arena, std::vector<BatchPart>{{ids}, {ids}});
  Pass pass(context, *model, recompute);
  const Tensor hidden = pass.forward(batch, upload(context, arena, std::span<const int32_t>(rows)));
  const Tensor dhidden = arena.take(DType::f32, hidden.dims());
  context.zero(dhidden);
  pass.backward(dhidden);
  return {pass.peak_bytes(), context.scratch().peak_bytes()};
}

TEST(Pass, TakesTheSameMemoryOnTheMetaDevice) {
  for (const Recompute recompute : {Recompute::none, Recompute::block}) EXPECT_EQ(measure("meta", recompute).tape, measure("cpu", recompute).tape);
}

TEST(Pass, RecomputationKeepsLess) { EXPECT_LT(2 * measure("cpu", Recompute::block).tape, measure("cpu", Recompute::none).tape); }

TEST(Pass, SequencesLongerThanThePositionsAreRefused) {
  const auto device = cpu();
  Context context(*device);
  const auto model = make_tiny(context, tiny_config("gpt2"), false);
  const std::vector<int32_t> fits = random_tokens(40, 19, 1), one(1);
  EXPECT_NO_THROW(hidden_of(context, *model, std::vector<BatchPart>{{fits}}));
  EXPECT_THROW(hidden_of(context, *model, std::vector<BatchPart>{{one, 40}}), Error);
}

TEST(Batch, PacksPartsWithTheirPositions) {
  const auto device = cpu();
  Context context(*device);
  Arena arena(*device);
  const std::vector<int32_t> a{5, 6, 7}, b{8}, none;
  const Batch batch = pack_batch(context, arena, std::vector<BatchPart>{{a, 0}, {none, 3}, {b, 9}});
  const auto values = [](Tensor x) { return std::vector<int32_t>(x.ptr<int32_t>(), x.ptr<int32_t>() + x.size()); };
  EXPECT_EQ(values(batch.tokens), (std::vector<int32_t>{5, 6, 7, 8}));
  EXPECT_EQ(values(batch.positions), (std::vector<int32_t>{0, 1, 2, 9}));
  EXPECT_EQ(values(batch.offsets), (std::vector<int32_t>{0, 3, 3, 4}));
  EXPECT_EQ(batch.num_tokens, 4);
  EXPECT_EQ(batch.num_sequences, 3);
  EXPECT_EQ(batch.max_length, 3);
  EXPECT_EQ(batch.num_positions, 10);
}

// GPT-2 small by hand: 124,439,808 parameters, of them 50257 x 768 + 1024 x 768 looked up; blocks of 12 D^2 weights in matrices.
TEST(Plan, CountsGpt2) {
  const auto model = make_model(JsonObject{{"model_type", "gpt2"}}, "test");
  const ModelPlan plan = plan_model(*model, 1024);
  EXPECT_EQ(plan.params, 124439808);
  EXPECT_EQ(plan.embedding_params, (50257 + 1024) * 768);
  const double matrices = 12 * 12 * 768.0 * 768 + 50257 * 768.0, attention = 12 * (4 * 1024 * 768.0 + 3 * 1024 * 12);
  EXPECT_DOUBLE_EQ(plan.forward_flops_per_token, 2 * matrices + attention);
  EXPECT_DOUBLE_EQ(plan.train_flops_per_token, 3 * plan.forward_flops_per_token);
}

}  // namespace
}  // namespace hone::test
