#pragma once
// [model.decoder]: the layers of a model of the family hone_decoder (model/families/decoder.cpp).
#include <string>
#include <vector>

#include "core/config/fields.h"
#include "core/io/json.h"

namespace hone {

struct DecoderSource {
  std::vector<std::string> norm_placement, mlp, hidden_act, layer_types;
  std::string norm_type = "rms_norm";
  bool qk_norm = false, attention_bias = false, mlp_bias = false, rope_interleaved = false;
  std::vector<int64_t> no_rope_layers;
  int64_t no_rope_layer_interval = 0, sliding_window = 0, kv_share = 1;
  double partial_rotary_factor = 1, attn_logit_softcapping = 0, final_logit_softcapping = 0, embedding_scale = 1;
  void fields(Fields& f);
  // The members of config.json that differ from the family's defaults.
  JsonObject config() const;
};

}  // namespace hone
