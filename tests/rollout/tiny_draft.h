#pragma once
// Folders of draft models for the tiny model (tests/rollout/tiny_engine.h).
#include <filesystem>

#include "core/base/rng.h"
#include "model/model.h"

namespace hone::test {

// The model itself with normal noise of standard deviation `noise` on its weights: at 0 every draft token is accepted,
// with more noise fewer.
inline void save_draft(Context& context, Model& model, double noise, const std::filesystem::path& folder) {
  const std::unique_ptr<Model> draft = model.same_shape();
  draft->allocate(context, DType::f32, false);
  context.copy(draft->flat_values(), model.flat_values());
  Rng rng(7, 0);
  for (float& weight : draft->flat_values().as<float>()) weight += static_cast<float>(noise * rng.normal());
  save_model(context, *draft, folder, DType::f32);
}

// Another random model, smaller and of another family, with the given number of positions.
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
