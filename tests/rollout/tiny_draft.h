#pragma once
// Folders of models that guess for the tiny one (tests/rollout/tiny_engine.h).
#include <filesystem>

#include "core/base/rng.h"
#include "model/model.h"

namespace hone::test {

// The model itself, its weights changed by normal noise of so much: at 0 it foresees every draw, then fewer and fewer.
inline void save_draft(Context& context, Model& model, double noise, const std::filesystem::path& folder) {
  const std::unique_ptr<Model> draft = model.same_shape();
  draft->allocate(context, DType::f32, false);
  context.copy(draft->flat_values(), model.flat_values());
  Rng rng(7, 0);
  for (float& weight : draft->flat_values().as<float>()) weight += static_cast<float>(noise * rng.normal());
  save_model(context, *draft, folder, DType::f32);
}

// Another model of random weights, smaller and of another family, which writes no further than so many positions.
inline void save_stranger(Context& context, int64_t vocab_size, int64_t positions,
                          const std::filesystem::path& folder) {
  const std::unique_ptr<Model> draft = make_model(JsonObject{{"model_type", "gpt2"},
                                                             {"n_embd", 16},
                                                             {"n_layer", 1},
                                                             {"n_head", 2},
                                                             {"n_positions", positions},
                                                             {"vocab_size", vocab_size},
                                                             {"layer_norm_epsilon", 1e-5},
                                                             {"initializer_range", 0.3},
                                                             {"activation_function", "gelu_new"}},
                                                  "test");
  draft->allocate(context, DType::f32, false);
  draft->initialize(context, 9);
  save_model(context, *draft, folder, DType::f32);
}

}  // namespace hone::test
