#pragma once
// The decoder of Llama and of the families with the same parts: RMSNorm, RoPE, grouped-query attention, a gated MLP. A
// family's file sets the differences.
#include "model/config_reader.h"
#include "model/transformer.h"

namespace hone {

// Where the norms of a layer stand, or that its branches are parallel, each with a norm or with one for both
// (model/layer.h).
enum class NormPlacement : uint8_t { pre, post, both, parallel, parallel_shared };

struct LayerKind {
  NormPlacement norms = NormPlacement::pre;
  Activation activation = Activation::silu;  // of the MLP
  bool gated = true;                         // down(activation(gate(x)) * up(x)); else down(activation(up(x)))
};

struct LlamaLikeConfig {
  ModelShape shape;
  bool tied = false, qkv_bias = false, output_bias = false, mlp_bias = false;
  bool fused_names = false;   // the file has qkv_proj and gate_up_proj instead of their parts
  bool qk_norm = false;       // on each head of q and k before RoPE
  bool full_qk_norm = false;  // the same over all heads side by side
  bool layer_norm = false;    // LayerNorm with biases in place of RMSNorm, but on heads
  double norm_eps = 1e-6, init_std = 0.02;
  double norm_offset = 0;         // added to the weights of all norms
  bool rope_interleaved = false;  // RoPE rotates pairs (2i, 2i + 1) instead of (i, i + rotary_dim / 2)
  double attention_scale = 0;     // of q . k; 0 = 1 / sqrt(head_dim)
  double attention_softcap = 0, embedding_scale = 1;
  double qkv_clip = 0;          // q, k and v are clamped to [-qkv_clip, qkv_clip] before RoPE; 0 = none
  int64_t num_mtp_modules = 0;  // modules of multi-token prediction (model/mtp.h); their layers are like the last one
  double mtp_loss_coef = 0;
  std::vector<RopeConfig> ropes;
  std::vector<LayerKind> kinds;  // of each layer; empty: all are LayerKind{}
  // Of each layer: its index in `ropes`, or -1 without RoPE; its window, 0 = all earlier tokens.
  std::vector<int64_t> layer_rope, windows;
  Json resolved;  // config.json
};

// What config.json leaves out, as the family's class in transformers has it.
struct LlamaLikeDefaults {
  std::optional<int64_t> head_dim{}, num_kv_heads{};  // none: hidden_size / num_attention_heads; num_attention_heads
  double norm_eps = 1e-6;
  bool tied = false;
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  RopeDefaults rope{};
  bool reads_activation = true;  // else the family sets it in `kinds`
  bool reads_rope = true;        // else the family fills `ropes`
};

// Reads the members of config.json that these families share, and num_nextn_predict_layers and hone's own mtp_loss_coef
// for multi-token prediction. The family sets biases, norms and windows. architecture:
// the class in transformers.
LlamaLikeConfig read_llama_like(ConfigReader& config, const char* architecture, const LlamaLikeDefaults& defaults = {});

// The parts, for a family that replaces some of them: experts in place of MLPs, in all parts.num_all_layers() layers.
TransformerParts llama_like_parts(const LlamaLikeConfig& config);
std::unique_ptr<Model> make_llama_like(const LlamaLikeConfig& config);

}  // namespace hone
