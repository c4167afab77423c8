// Model folders with experts: what is read, and the messages for what is refused.
#include "model/io/model_folder.h"
#include "tests/model/io/model_io_case.h"

namespace hone::test {
namespace {

// model.router.bias_update_rate with a model that never had the bias.
TEST_F(ModelIoTest, ABiasOfTheChoiceThatTheSettingsAddStartsFromZero) {
  save("olmoe");
  EXPECT_EQ(refusal(), "loaded");
  const JsonObject changes{{"router_bias_update_rate", 0.01}};
  const auto model = load_changed_model(context_, folder(), {.dtype = DType::bf16}, changes);
  const Json config = model->config();
  EXPECT_EQ(config.at("router_bias_update_rate"), Json(0.01));
  int biases = 0;
  for (const Param* param : model->params())
    if (says(param->slices.front().name, "e_score_correction_bias")) {
      for (const float number : download(context_, param->value)) EXPECT_EQ(number, 0);
      ++biases;
    }
  EXPECT_EQ(biases, 2);
  testing::internal::CaptureStderr();
  save_model(context_, *model, folder(), DType::f32);
  save_model(context_, *model, folder(), DType::f32);
  const std::string warning = testing::internal::GetCapturedStderr(), words = "does not know in the family olmoe";
  EXPECT_PRED2(says, warning, words);
  EXPECT_EQ(warning.find(words), warning.rfind(words));
  EXPECT_EQ(load_changed_model(context_, folder(), {}, changes)->config(), config);
  Store store = read();
  store.erase("model.layers.0.mlp.gate.e_score_correction_bias");  // its own config.json has the rate
  write(store);
  EXPECT_PRED2(says, refusal(), "missing model.layers.0.mlp.gate.e_score_correction_bias");
}

// Files with all experts of a layer in one tensor: messages have the names and shapes of the file.
TEST_F(ModelIoTest, FusedExpertsThatDoNotFitAreNamedAsInTheFile) {
  const std::string gate_up = "mlp.experts.gate_up_proj", down = "mlp.experts.down_proj", layer = "model.layers.0.";
  for (const auto& [family, block] : {std::pair{"olmoe", "mlp."}, {"mixtral", "block_sparse_moe."}}) {
    save(family);
    Store fused;
    for (const auto& [name, stored] : read())
      if (!says(name, ".experts.")) fused[name] = stored;
    for (const int index : {0, 1}) {
      const std::string of = concat("model.layers.", index, ".");
      fused[of + gate_up] = {std::vector<char>(size_t{4} * 40 * 12 * 4), DType::f32, {4, 40, 12}};
      fused[of + down] = {std::vector<char>(size_t{4} * 12 * 20 * 4), DType::f32, {4, 12, 20}};
    }
    const auto problem = [&](const auto& edit) {
      Store edited = fused;
      edit(edited);
      write(edited);
      return refusal();
    };
    EXPECT_EQ(problem([](Store&) {}), "loaded");
    EXPECT_PRED2(says, problem([&](Store& store) {
                   store.at(layer + gate_up).shape = {4, 12, 40};
                 }),
                 layer + gate_up + " is [4, 12, 40], wants [4, 40, 12]");
    EXPECT_PRED2(says, problem([&](Store& store) {
                   store.at(layer + down).shape = {2, 24, 20};
                 }),
                 layer + down + " is [2, 24, 20], wants [4, 12, 20]");
    EXPECT_PRED2(says, problem([&](Store& store) { store.erase(layer + down); }), "missing " + layer + down);
    EXPECT_PRED2(says, problem([&](Store& store) {
                   store.at(layer + down).shape = {48, 20};
                 }),
                 layer + down + " is [48, 20], wants [experts, hidden, inner]");
    const std::string one =
        concat(layer, block, "experts.1.", family == std::string("olmoe") ? "up_proj" : "w3", ".weight");
    const std::string both = problem([&](Store& store) { store[one] = store.at("model.norm.weight"); });
    EXPECT_PRED2(says, both, layer + gate_up);
    EXPECT_PRED2(says, both, one + "; the file must have one of them");
  }
}

}  // namespace
}  // namespace hone::test
