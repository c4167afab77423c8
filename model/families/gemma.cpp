#include "model/families/gemma.h"

#include <cmath>

namespace hone {

LlamaLikeConfig read_gemma(ConfigReader& config, const char* architecture, bool reads_rope) {
  LlamaLikeConfig out = read_llama_like(config, architecture,
                                        {.head_dim = 256,
                                         .num_kv_heads = 4,
                                         .tied = true,
                                         .activation_key = "hidden_activation",
                                         .activation = "gelu_pytorch_tanh",
                                         .reads_rope = reads_rope});
  config.accept("use_bidirectional_attention", false);
  for (LayerKind& kind : out.kinds) kind.norms = NormPlacement::both;
  out.norm_offset = 1;
  out.qkv_bias = out.output_bias = config.flag("attention_bias", false);
  const Json* given = config.find("query_pre_attn_scalar");
  const Json scalar = given ? *given : Json(int64_t{256});
  out.attention_scale = 1 / std::sqrt(config.positive("query_pre_attn_scalar", 256));
  config.set("query_pre_attn_scalar", scalar);  // transformers refuses 256.0 in place of 256
  out.embedding_scale = std::sqrt(static_cast<double>(out.shape.hidden_size));
  if (!config.has("sliding_window")) config.set("sliding_window", 4096);  // transformers' default
  return out;
}

}  // namespace hone
