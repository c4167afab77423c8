// The values of a model that ranks hold in parts (ZeRO-3).
#include "train/parallel/value_shards.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "tests/support/ranks.h"
#include "tests/train/rig.h"

namespace hone {
namespace {

// A change of gathered values stays: a critic's trunk is loaded that way.
TEST(ValueShards, ReleasedValuesAreTheGatheredOnes) {
  test::on_ranks(2, [](const Ranks& ranks, Context& context) {
    const std::unique_ptr<Model> model = test::make_tiny(context, test::tiny_config("llama"), false, {});
    ValueShards shards(context, *model, *ranks.group(), 64);
    shards.gather();
    std::vector<float> changed(static_cast<size_t>(model->flat_values().size()));
    for (size_t i = 0; i < changed.size(); ++i) changed[i] = static_cast<float>(i);
    std::ranges::copy(changed, model->flat_values().as<float>().begin());
    shards.release();
    shards.before(context, 1, Direction::forward);
    int64_t at = 0;
    for (const Param* param : model->params()) {
      if (param == model->layer_modules(0).params.back()) {
        EXPECT_EQ(param->value.as<float>()[0], static_cast<float>(at));
      }
      at += param->padded_elements();
    }
    EXPECT_THROW(shards.own(*model->layer_modules(0).params.front(), 0, int64_t{1} << 40), Error);
    shards.after(context, 1, Direction::forward);
    shards.gather();
    EXPECT_EQ(test::weights_of(*model), changed);
  });
}

// The bias of a router's choice is f32 also in a model of bf16, and ranks hold parts of it. Together they have each
// number once.
TEST(ValueShards, PartsOfABf16ModelHaveItsF32Numbers) {
  std::mutex mutex;
  std::map<std::string, std::vector<int>> seen;
  test::on_ranks(3, [&](const Ranks& ranks, Context& context) {
    const auto number = [](int64_t i) { return static_cast<float>(i) + 1e-4f; };
    const std::unique_ptr<Model> model =
        make_model(test::with(test::tiny_config("deepseek_v3"), {{"n_routed_experts", 210}}), "test");
    model->allocate(context, DType::bf16, false);  // without gradients all values of a layer are divided
    for (const Param* param : model->params())
      for (int64_t i = 0; param->keep_f32 && i < param->num_elements(); ++i) param->value.ptr<float>()[i] = number(i);
    const ValueShards shards(context, *model, *ranks.group(), 64);
    const std::vector<Param*> params = model->params();
    for (const ValuePart& part : shards.own_parts()) {
      const Param& param = *params[part.param];
      EXPECT_EQ(part.values.dtype, param.keep_f32 ? DType::f32 : DType::bf16);
      if (!param.keep_f32) continue;
      const std::lock_guard lock(mutex);
      std::vector<int>& times = seen[param.slices.front().name];
      times.resize(static_cast<size_t>(param.num_elements()));
      for (int64_t i = 0; i < part.values.size(); ++i) {
        EXPECT_EQ(part.values.ptr<float>()[i], number(part.first + i));
        ++times[static_cast<size_t>(part.first + i)];
      }
    }
  });
  EXPECT_EQ(seen.size(), 1u);  // of the layer with experts
  for (const auto& [name, times] : seen) EXPECT_EQ(times, std::vector<int>(210, 1)) << name;
}

}  // namespace
}  // namespace hone
