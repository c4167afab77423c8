// Layers that share keys and values. family_test.cpp compares gradients with finite differences, recomputation and
// decoding bit by bit.
#include <gtest/gtest.h>

#include "model/attention.h"
#include "tests/model/tiny_model.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

std::unique_ptr<Model> sharing(int64_t share, const JsonObject& changes = {}) {
  const Json config =
      with(tiny_config("hone_decoder"), {{"num_hidden_layers", 4}, {"kv_share", share}, {"sliding_window", Json()}});
  return make_model(with(config, changes), "test.json");
}

std::span<const std::shared_ptr<SharedKv>> groups_of(Model& model) {
  return dynamic_cast<const SharesKv&>(model).shared_kv();
}

TEST(SharedKv, PlanesOfACacheAreCountedOnce) {
  const auto planes = [](int64_t share) {
    int64_t out = 0;
    const auto model = sharing(share);
    for (const KvGroupShape& group : model->kv_groups()) out += group.planes;
    return out;
  };
  EXPECT_EQ(planes(1), 4);
  EXPECT_EQ(planes(2), 2);
  EXPECT_EQ(planes(3), 2);
  EXPECT_EQ(planes(4), 1);
}

TEST(SharedKv, ReadersProjectQueriesAlone) {
  const auto own = sharing(1), shared = sharing(2);
  // Two layers lack k and v: 2 KV heads of 6 dimensions each, 12 inputs.
  EXPECT_EQ(own->num_params() - shared->num_params(), 2 * 2 * (2 * 6) * 12);
  EXPECT_EQ(groups_of(*shared).size(), 2u);
  EXPECT_TRUE(groups_of(*own).empty());
  EXPECT_EQ(groups_of(*sharing(3)).size(), 1u);  // the last layer is alone
}

// Another pass between forward and backward lends the groups other memory.
TEST(SharedKv, AnotherPassBeforeBackwardChangesNothing) {
  const auto device = cpu_device();
  Context context(*device);
  const auto model = sharing(2);
  make_weights(context, *model, true);
  const std::vector<int32_t> ids = random_tokens(9, 19, 1), other = random_tokens(14, 19, 2);
  const auto gradients = [&](bool between) {
    Arena arena(*device);
    const ScratchScope scope(context);
    model->zero_grad(context);
    TrainingPass pass(context, *model, Recompute::selective);
    const Batch batch = pack_batch(context, arena, {{BatchPart{ids}}});
    const std::vector<int32_t> rows = all_rows(batch.num_tokens);
    const Tensor hidden = pass.forward(batch, upload(context, arena, std::span<const int32_t>(rows)));
    const Tensor dhidden = arena.take(DType::f32, hidden.dims());
    context.copy(dhidden, hidden);
    if (between) hidden_of(context, *model, {{BatchPart{other}}});
    pass.backward(dhidden);
    return download(context, model->flat_grads());
  };
  EXPECT_EQ(gradients(true), gradients(false));
}

TEST(SharedKv, GroupsOfUnlikeLayersAreRefused) {
  const auto refusal = [](int64_t share, const JsonObject& changes) {
    return error_of([&] { sharing(share, changes); });
  };
  EXPECT_PRED2(says, refusal(5, {}), "kv_share is 5, wants 1 to 4");
  EXPECT_PRED2(says,
               refusal(2, {{"sliding_window", 5},
                           {"layer_types",
                            JsonArray{"sliding_attention", "full_attention", "full_attention", "full_attention"}}}),
               "layers 0 and 1 share keys and values, but their windows are 5 and 0");
  EXPECT_PRED2(says, refusal(2, {{"no_rope_layers", JsonArray{1, 1, 1, 0}}}), "layers 2 and 3 share keys");
  EXPECT_PRED2(says, refusal(2, {{"num_nextn_predict_layers", 1}}), "needs num_nextn_predict_layers = 0");
}

}  // namespace
}  // namespace hone::test
