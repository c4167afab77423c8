#pragma once
// [model.decoder]: the layers of a model of the family hone_decoder (model/families/decoder.cpp).
#include <string>
#include <vector>

#include "core/config/fields.h"
#include "core/io/json.h"

namespace hone {

struct DecoderSource {
  std::vector<std::string> norm_placement, attention, mlp, hidden_act, layer_types;
  std::string norm_type = "rms_norm";
  bool qk_norm = false, attention_bias = false, mlp_bias = false, rope_interleaved = false;
  std::vector<int64_t> no_rope_layers;
  int64_t no_rope_layer_interval = 0, sliding_window = 0, kv_share = 1;
  double partial_rotary_factor = 1, attn_logit_softcapping = 0, final_logit_softcapping = 0, embedding_scale = 1;
  // Latent attention.
  int64_t kv_lora_rank = 0, q_lora_rank = 0, qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;
  // Experts, beside those of [model.router].
  std::string scoring_func = "softmax";
  bool norm_topk_prob = false;
  double routed_scaling_factor = 1;
  int64_t n_shared_experts = 0, n_group = 1, topk_group = 1;
  void fields(Fields& f);
  // The members of config.json that differ from the family's defaults.
  JsonObject config() const;
};

}  // namespace hone
