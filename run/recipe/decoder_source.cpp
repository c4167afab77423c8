#include "run/recipe/decoder_source.h"

namespace hone {

void DecoderSource::fields(Fields& f) {
  f("norm_placement", norm_placement,
    "norms of each layer: pre (before attention and MLP) | post (after them, OLMo 2) | both (Gemma 2) | parallel "
    "(attention and MLP read the same input, each with a norm, GPT-NeoX) | parallel_shared (with one norm for both, "
    "GPT-J); one name for all layers, or one for each; empty = pre");
  f("norm_type", norm_type, "rms_norm | layer_norm (with biases)");
  f("qk_norm", qk_norm, "RMSNorm on each head of queries and keys before RoPE (Qwen 3)");
  f("mlp", mlp,
    "gated (down(act(gate) * up): SwiGLU, GeGLU, ReGLU) | plain (down(act(up))); one name, or one for each layer; "
    "empty "
    "= gated");
  f("hidden_act", hidden_act,
    "activation of the MLP: silu | gelu (erf) | gelu_new or gelu_pytorch_tanh (tanh) | relu | relu2 (relu squared); "
    "one "
    "name, or one for each layer; empty = silu");
  f("attention_bias", attention_bias, "biases of q_proj, k_proj, v_proj and o_proj");
  f("mlp_bias", mlp_bias, "biases of the MLP");
  f("layer_types", layer_types,
    "full_attention or sliding_attention for each layer; empty = sliding_attention if there is a sliding_window");
  f("sliding_window", sliding_window, "tokens that a query of a sliding layer sees, itself included; 0 = no windows");
  f("rope_interleaved", rope_interleaved,
    "RoPE pairs dimensions 2i and 2i + 1 (GPT-J) instead of i and i + half (Llama)");
  f("partial_rotary_factor", partial_rotary_factor, "share of the dimensions of a head that rotate, above 0 up to 1");
  f("no_rope_layers", no_rope_layers, "for each layer 1 with RoPE, 0 without (as SmolLM3); empty = RoPE in all layers");
  f("no_rope_layer_interval", no_rope_layer_interval, "k: every k-th layer has no RoPE; 0 = RoPE in all layers");
  f("kv_share", kv_share,
    "neighboring layers that share the keys and values of the first of them (cross-layer attention); 1 = none");
  f("attn_logit_softcapping", attn_logit_softcapping, "soft-cap of attention scores; 0 = none");
  f("final_logit_softcapping", final_logit_softcapping, "soft-cap of logits; 0 = none");
  f("embedding_scale", embedding_scale, "factor on the embeddings");
}

JsonObject DecoderSource::config() const {
  const DecoderSource defaults;
  JsonObject out;
  const auto add = [&](const char* key, const auto& value, const auto& by_default) {
    if (value != by_default) out.emplace_back(key, value);
  };
  const auto add_list = [&](const char* key, const auto& values) {
    if (!values.empty()) out.emplace_back(key, JsonArray(values.begin(), values.end()));
  };
  const auto add_names = [&](const char* key, const std::vector<std::string>& names) {
    if (names.size() == 1)
      out.emplace_back(key, names.front());
    else
      add_list(key, names);
  };
  add_names("norm_placement", norm_placement);
  add("norm_type", norm_type, defaults.norm_type);
  add("qk_norm", qk_norm, defaults.qk_norm);
  add_names("mlp", mlp);
  add_names("hidden_act", hidden_act);
  add("attention_bias", attention_bias, defaults.attention_bias);
  add("mlp_bias", mlp_bias, defaults.mlp_bias);
  add_list("layer_types", layer_types);
  add("sliding_window", sliding_window, defaults.sliding_window);
  add("rope_interleaved", rope_interleaved, defaults.rope_interleaved);
  add("partial_rotary_factor", partial_rotary_factor, defaults.partial_rotary_factor);
  add_list("no_rope_layers", no_rope_layers);
  add("no_rope_layer_interval", no_rope_layer_interval, defaults.no_rope_layer_interval);
  add("kv_share", kv_share, defaults.kv_share);
  add("attn_logit_softcapping", attn_logit_softcapping, defaults.attn_logit_softcapping);
  add("final_logit_softcapping", final_logit_softcapping, defaults.final_logit_softcapping);
  add("embedding_scale", embedding_scale, defaults.embedding_scale);
  return out;
}

}  // namespace hone
