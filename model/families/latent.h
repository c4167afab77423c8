#pragma once
// Multi-head latent attention from the keys of config.json that DeepSeek-V2 and V3 have.
#include "model/attention/latent_attention.h"
#include "model/families/llama_like.h"

namespace hone {

struct LatentConfig {
  LatentShape heads;
  int64_t q_rank = 0;  // of the queries' latent; 0: none
  RopeConfig rope;
  bool interleaved = true, bias = false;  // bias: of q_a_proj, kv_a_proj_with_mqa and o_proj
  double scale = 0;                       // of q . k
};

// What config.json leaves out. No rank: config.json must have kv_lora_rank. q_rank 0: queries have no latent.
struct LatentDefaults {
  std::optional<int64_t> rank = 512;
  int64_t nope_dim = 128, rope_dim = 64, value_dim = 128, q_rank = 1536;
};

// Reads kv_lora_rank, q_lora_rank (null: none), qk_nope_head_dim, qk_rope_head_dim, v_head_dim, attention_bias and
// RoPE.
LatentConfig read_latent(ConfigReader& config, const ModelShape& shape, const LatentDefaults& defaults = {});

// Sets in the shape what latent attention keeps and multiplies: one row for all heads, and row() + rank products per
// head for a pair of tokens.
void set_latent_heads(const LatentShape& heads, ModelShape& shape);

// The attention of layer `layer`. rope: of config.rope.
std::unique_ptr<LatentAttention> make_latent_attention(const LatentConfig& config, const LlamaLikeConfig& decoder,
                                                       int64_t layer, std::shared_ptr<const RopeTable> rope);

}  // namespace hone
