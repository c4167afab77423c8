#pragma once
// The decoder of llama, qwen2, qwen3 and mistral, with RMSNorm, RoPE and a gated MLP. A family's file sets the
// differences.
#include "model/config_reader.h"
#include "model/transformer.h"

namespace hone {

struct LlamaLikeConfig {
  ModelShape shape;
  bool tied = false, qkv_bias = false, output_bias = false, mlp_bias = false, qk_norm = false;
  double norm_eps = 1e-6, init_std = 0.02;
  RopeConfig rotary;
  std::vector<int64_t> windows;  // of each layer, 0 = all earlier tokens
  Json resolved;                 // config.json
};

// Reads the members of config.json that these families share. The family sets biases, norms and windows. architecture:
// the class in transformers. If config.json has no head_dim, it is `head_dim`, or hidden_size / num_attention_heads.
LlamaLikeConfig read_llama_like(ConfigReader& config, const char* architecture,
                                std::optional<int64_t> head_dim = std::nullopt);

// The parts, for a family that replaces some of them: experts in place of MLPs, norms at other places.
TransformerParts llama_like_parts(const LlamaLikeConfig& config);
std::unique_ptr<Model> make_llama_like(const LlamaLikeConfig& config);

}  // namespace hone
