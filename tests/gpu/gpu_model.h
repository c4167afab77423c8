#pragma once
// Models on a GPU with the weights of a CPU model.
#include "kernels/elementwise/cast.h"
#include "model/forward.h"
#include "model/token_logprobs.h"
#include "tests/gpu/gpu_check.h"
#include "tests/model/tiny_model.h"

namespace hone::test {

// As tiny_config(), in sizes that are not multiples of a tile: 3 query heads and 1 KV head. With `dim` 64 or 128 the
// Hopper bodies run.
inline Json gpu_config(const std::string& family, int64_t dim = 16) {
  const int64_t width = 3 * dim;
  return with(tiny_config(family), {{"vocab_size", 211},
                                    {"initializer_range", 0.5 / std::sqrt(static_cast<double>(width))},
                                    {"hidden_size", width},
                                    {"intermediate_size", 5 * dim / 2 * 2},
                                    {"num_attention_heads", 3},
                                    {"num_key_value_heads", 1},
                                    {"head_dim", dim},
                                    {"max_position_embeddings", 512},
                                    {"sliding_window", 37},
                                    {"kv_lora_rank", 2 * dim},
                                    {"q_lora_rank", 2 * dim},
                                    {"qk_rope_head_dim", dim / 2},
                                    {"qk_nope_head_dim", dim},
                                    {"v_head_dim", dim},
                                    {"query_pre_attn_scalar", dim},
                                    {"attn_logit_softcapping", 2.0},
                                    {"final_logit_softcapping", 4.0},
                                    {"n_embd", width},
                                    {"n_head", 3},
                                    {"n_positions", 512}});
}

// Weights of a CPU model, rounded to `dtype`. Norms and biases differ from their neutral values. Matrices preserve the
// magnitude of their inputs: larger ones would enlarge the rounding errors of bf16.
inline std::unique_ptr<Model> cpu_model(const Json& config, DType dtype, const LoraConfig& lora = {}) {
  std::unique_ptr<Model> model = make_model(config, "test");
  if (lora.r > 0) model->add_lora(lora);
  model->allocate(cpu(), DType::f32, true);
  model->initialize(cpu(), 7);
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.1f);
  for (Param* param : model->params())
    if (param->shape.size() == 1)
      for (float& value : param->value.as<float>()) value += normal(random);
  if (dtype == DType::bf16)
    for (float& x : model->flat_values().as<float>()) x = to_float(to_bf16(x));
  return model;
}

// The same weights on the GPU.
inline std::unique_ptr<Model> gpu_model(const Json& config, const Model& weights, DType dtype,
                                        const LoraConfig& lora = {}) {
  std::unique_ptr<Model> model = make_model(config, "test");
  if (lora.r > 0) model->add_lora(lora);
  model->allocate(*gpu(), dtype, true);
  Arena arena(gpu()->device());
  const Tensor staged = arena.take(DType::f32, model->flat_values().dims());
  gpu()->copy(staged, weights.flat_values());
  int64_t at = 0;
  for (const Param* param : model->params()) {
    cast(*gpu(), param->value, staged.rows(at, param->num_elements()));
    at += param->padded_elements();
  }
  gpu()->synchronize();
  return model;
}

inline std::vector<std::vector<int32_t>> gpu_sequences(std::initializer_list<size_t> lengths,
                                                       int64_t vocab_size = 211) {
  std::vector<std::vector<int32_t>> out;
  for (const size_t length : lengths)
    out.push_back(random_tokens(sized(length, (length + 3) / 4), vocab_size, static_cast<uint32_t>(length)));
  return out;
}

// Values of a model on either device, as f32.
inline std::vector<float> on_host(Context& context, Tensor values) {
  const Tensor flat = values.view({values.size()});
  if (flat.dtype == DType::f32) return download(context, flat);
  Arena arena(context.device());
  const Tensor staged = arena.take(DType::f32, flat.dims());
  cast(context, staged, flat);
  return download(context, staged);
}

// |a - e| / |e| of vectors; NaN if either holds a NaN.
inline double distance(std::span<const float> actual, std::span<const float> expected) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += (double{actual[i]} - expected[i]) * (double{actual[i]} - expected[i]);
    size += double{expected[i]} * expected[i];
  }
  return std::sqrt(difference / size);
}

}  // namespace hone::test
