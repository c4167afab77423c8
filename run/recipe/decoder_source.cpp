#include "run/recipe/decoder_source.h"

#include <algorithm>

namespace hone {

void DecoderSource::fields(Fields& f) {
  f("norm_placement", norm_placement,
    "norms of each layer: pre (before attention and MLP) | post (after them, OLMo 2) | both (Gemma 2) | parallel "
    "(attention and MLP read the same input, each with a norm, GPT-NeoX) | parallel_shared (with one norm for both, "
    "GPT-J); one name for all layers, or one for each; empty = pre");
  f("norm_type", norm_type, "rms_norm | layer_norm (with biases)");
  f("qk_norm", qk_norm, "RMSNorm on each head of queries and keys before RoPE (Qwen 3)");
  f("attention", attention,
    "grouped (grouped-query attention) | latent (multi-head latent attention, DeepSeek-V2); one name, or one for each "
    "layer; empty = grouped");
  f("kv_lora_rank", kv_lora_rank, "latent attention: numbers of a token's latent; 0 = no layer has it");
  f("q_lora_rank", q_lora_rank, "latent attention: numbers of the queries' latent; 0 = queries have none");
  f("qk_nope_head_dim", qk_nope_head_dim,
    "latent attention: dimensions of a head of queries and keys without RoPE; 0 = head_dim");
  f("qk_rope_head_dim", qk_rope_head_dim,
    "latent attention: dimensions with RoPE, which all heads share; an even number; 0 = half of head_dim");
  f("v_head_dim", v_head_dim, "latent attention: dimensions of a head of values; 0 = head_dim");
  f("mlp", mlp,
    "gated (down(act(gate) * up): SwiGLU, GeGLU, ReGLU) | plain (down(act(up))) | experts (a mixture of gated MLPs, "
    "model.router says how many); one name, or one for each layer; empty = gated");
  f("scoring_func", scoring_func, "scores of experts from the router's logits: softmax | sigmoid (DeepSeek-V3)");
  f("norm_topk_prob", norm_topk_prob, "the weights of a token's experts are divided by their sum");
  f("routed_scaling_factor", routed_scaling_factor, "factor on the weights of a token's experts");
  f("n_shared_experts", n_shared_experts,
    "experts without a gate that all tokens use, each of model.router.moe_intermediate_size; 0 = none");
  f("n_group", n_group, "groups of experts; a token chooses from the best topk_group of them; 1 = no groups");
  f("topk_group", topk_group, "groups that a token chooses from");
  f("hidden_act", hidden_act,
    "activation of the MLP: silu | gelu (erf) | gelu_new or gelu_pytorch_tanh (tanh) | relu | relu2 (relu squared); "
    "one name, or one for each layer; empty = silu");
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
  for (const auto& [key, size] : {std::pair{"q_lora_rank", q_lora_rank},
                                  {"qk_nope_head_dim", qk_nope_head_dim},
                                  {"qk_rope_head_dim", qk_rope_head_dim},
                                  {"v_head_dim", v_head_dim}})
    f.require(key, size == 0 || kv_lora_rank > 0, concat(key, " has no effect without kv_lora_rank"));
  // An unknown name is reported as such when the model is made.
  const auto all_are = [](const std::vector<std::string>& names, std::initializer_list<std::string_view> known) {
    return std::ranges::all_of(names,
                               [&](const std::string& one) { return std::ranges::find(known, one) != known.end(); });
  };
  f.require("kv_lora_rank", kv_lora_rank == 0 || !all_are(attention, {"grouped"}),
            "kv_lora_rank has no effect unless attention has latent");
  const bool has_experts = !all_are(mlp, {"gated", "plain"});
  const DecoderSource defaults;
  for (const auto& [key, given] : {std::pair{"scoring_func", scoring_func != defaults.scoring_func},
                                   {"norm_topk_prob", norm_topk_prob},
                                   {"routed_scaling_factor", routed_scaling_factor != 1},
                                   {"n_shared_experts", n_shared_experts != 0},
                                   {"n_group", n_group != 1},
                                   {"topk_group", topk_group != 1}})
    f.require(key, !given || has_experts, concat(key, " has no effect unless mlp has experts"));
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
  add_names("attention", attention);
  add("kv_lora_rank", kv_lora_rank, defaults.kv_lora_rank);
  add("q_lora_rank", q_lora_rank, defaults.q_lora_rank);
  add("qk_nope_head_dim", qk_nope_head_dim, defaults.qk_nope_head_dim);
  add("qk_rope_head_dim", qk_rope_head_dim, defaults.qk_rope_head_dim);
  add("v_head_dim", v_head_dim, defaults.v_head_dim);
  add_names("mlp", mlp);
  add("scoring_func", scoring_func, defaults.scoring_func);
  add("norm_topk_prob", norm_topk_prob, defaults.norm_topk_prob);
  add("routed_scaling_factor", routed_scaling_factor, defaults.routed_scaling_factor);
  add("n_shared_experts", n_shared_experts, defaults.n_shared_experts);
  add("n_group", n_group, defaults.n_group);
  add("topk_group", topk_group, defaults.topk_group);
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
