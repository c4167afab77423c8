#include "cli/bench/roofline.h"

#include <algorithm>

#include "model/flops.h"

namespace hone {

Roofline::Roofline(Model& model, const MachineLimits& limits, const EngineConfig& engine)
    : limits_(limits), width_(static_cast<double>(size_of(model.dtype()))) {
  const ModelShape& shape = model.shape();
  block_width_ = engine.quantization == "none" ? width_ : 1;
  key_width_ = engine.kv_cache_dtype == "auto"
                   ? width_
                   : 1 + 4 / static_cast<double>(shape.head_dim);  // one scale per head and token
  head_ = static_cast<double>(shape.vocab_size * shape.hidden_size);
  blocks_ = count_flops(model, 1).active_params - head_;
  numbers_of_key_ = static_cast<double>(2 * shape.num_layers * shape.num_kv_heads * shape.head_dim);
  products_of_pair_ = static_cast<double>(2 * shape.num_layers * shape.num_attention_heads * shape.head_dim);
}

double Roofline::products(double weights, double width, int64_t rows) const {
  return std::max(weights * width / limits_.read_bandwidth, 2 * weights * static_cast<double>(rows) / limits_.flops);
}

double Roofline::attention(double keys, double pairs) const {
  return std::max(keys * numbers_of_key_ * key_width_ / limits_.read_bandwidth,
                  2 * pairs * products_of_pair_ / limits_.flops);
}

double Roofline::decode(int64_t sequences, int64_t context) const {
  const auto keys = static_cast<double>(sequences * context);
  return products(blocks_, block_width_, sequences) + products(head_, width_, sequences) + attention(keys, keys);
}

double Roofline::decode_bytes(int64_t sequences, int64_t context) const {
  return block_width_ * blocks_ + width_ * head_ +
         key_width_ * numbers_of_key_ * static_cast<double>(sequences * context);
}

double Roofline::prefill(int64_t sequences, int64_t tokens) const {
  const auto keys = static_cast<double>(sequences * tokens);
  return products(blocks_, block_width_, sequences * tokens) + products(head_, width_, sequences) +
         attention(keys, keys * static_cast<double>(tokens + 1) / 2);
}

Roofline::Rollout Roofline::rollout(int64_t prompts, int64_t num_generations, int64_t prompt_tokens,
                                    int64_t new_tokens) const {
  Rollout out{.prefill = prefill(prompts, prompt_tokens), .decode = 0};
  for (int64_t written = 1; written < new_tokens; ++written)
    out.decode += decode(prompts * num_generations, prompt_tokens + written);
  return out;
}

}  // namespace hone
