// GGUF's architecture deepseek2: DeepSeek-V2 and V3 and models of their layout. The router's function tells them apart.
// With attn_k_b and attn_v_b (model/io/gguf/latent.h) the file describes attention as one head of keys and values for
// all heads: head_count_kv is 1, and key_length and value_length are the sizes of that head. Older files have attn_kv_b
// and the sizes of a head.
#include "core/base/log.h"
#include "model/io/gguf/llama_like.h"

namespace hone {
namespace {

constexpr int64_t softmax_gating = 1, sigmoid_gating = 2;  // llama.cpp's numbers
constexpr int64_t v3_experts = 256, v3_groups = 8, v3_top_groups = 4;
constexpr int64_t lite_layers = 27;      // by which llama.cpp knows models without a latent of queries
constexpr double latent_epsilon = 1e-6;  // of the latents' norms, whatever rms_norm_eps is
constexpr GgufRopeOptions rope_options{.mscale = true};

const std::vector<GgufTensorName> own_names = {
    {"blk.*.attn_norm", "model.layers.*.input_layernorm"},
    {"blk.*.ffn_norm", "model.layers.*.post_attention_layernorm"},
    {"blk.*.attn_q_a", "model.layers.*.self_attn.q_a_proj"},
    {"blk.*.attn_q_a_norm", "model.layers.*.self_attn.q_a_layernorm"},
    {"blk.*.attn_q_b", "model.layers.*.self_attn.q_b_proj"},
    {"blk.*.attn_kv_a_mqa", "model.layers.*.self_attn.kv_a_proj_with_mqa"},
    {"blk.*.attn_kv_a_norm", "model.layers.*.self_attn.kv_a_layernorm"},
    {"blk.*.attn_kv_b", "model.layers.*.self_attn.kv_b_proj"},
    {.gguf = "blk.*.exp_probs_b.bias",
     .hugging_face = "model.layers.*.mlp.gate.e_score_correction_bias",
     .complete = true,
     .keep_f32 = true},
    {"blk.*.ffn_gate_shexp", "model.layers.*.mlp.shared_experts.gate_proj"},
    {"blk.*.ffn_up_shexp", "model.layers.*.mlp.shared_experts.up_proj"},
    {"blk.*.ffn_down_shexp", "model.layers.*.mlp.shared_experts.down_proj"},
};

// The sizes of a head.
void read_attention(const GgufKeys& keys, Json& out) {
  const int64_t rotary = keys.count("rope.dimension_count"), heads = keys.count("attention.head_count");
  const bool split = keys.has("attention.key_length_mla");
  const int64_t key = keys.count(split ? "attention.key_length_mla" : "attention.key_length"),
                value = keys.count(split ? "attention.value_length_mla" : "attention.value_length");
  keys.require(key > rotary, "heads of ", key, " are not larger than their rotary part, ", rotary);
  out.set("num_attention_heads", heads);
  out.set("num_key_value_heads", heads);
  out.set("q_lora_rank", keys.has("attention.q_lora_rank") ? Json(keys.count("attention.q_lora_rank")) : Json());
  out.set("kv_lora_rank", keys.count("attention.kv_lora_rank"));
  out.set("qk_rope_head_dim", rotary);
  out.set("qk_nope_head_dim", key - rotary);
  out.set("v_head_dim", value);
  read_gguf_rope(keys, rotary, out, rope_options);
}

void read_groups(const GgufKeys& keys, bool v3, Json& out) {
  const int64_t experts = keys.count("expert_count");
  const bool published = v3 && experts == v3_experts;  // older files of DeepSeek-V3 lack the keys
  const int64_t groups = keys.count("expert_group_count", published ? v3_groups : 1),
                top = keys.count("expert_group_used_count", published ? v3_top_groups : 1);
  keys.require(v3 || groups == 1, "key '", keys.full("expert_group_count"), "' is ", groups,
               "; groups of experts are supported with a sigmoid router (expert_gating_func 2) only");
  out.set("n_group", groups);
  out.set("topk_group", top);
}

Json read_config(const GgufKeys& keys, bool tied) {
  const int64_t gating = keys.file().integer(keys.full("expert_gating_func"), softmax_gating);
  keys.require(gating == softmax_gating || gating == sigmoid_gating, "key '", keys.full("expert_gating_func"), "' is ",
               gating, "; supported: 1 (softmax), 2 (sigmoid)");
  const bool v3 = gating == sigmoid_gating;
  keys.require(!keys.has("attention.temperature_scale"), "key '", keys.full("attention.temperature_scale"),
               "' (Mistral Large 3) is not supported");
  constexpr std::string_view epsilon = "attention.layer_norm_rms_epsilon";
  keys.require(keys.has(epsilon), "key '", keys.full(epsilon), "' is missing");
  Json out = JsonObject{{"model_type", v3 ? "deepseek_v3" : "deepseek_v2"},
                        {"hidden_size", keys.count("embedding_length")},
                        {"intermediate_size", keys.count("feed_forward_length")},
                        {"num_hidden_layers", keys.count("block_count")},
                        {"hidden_act", "silu"},
                        {"max_position_embeddings", keys.count("context_length")},
                        {"rms_norm_eps", keys.number(epsilon, 0)},
                        {"tie_word_embeddings", tied},
                        {"attention_bias", false},
                        {"num_nextn_predict_layers", int64_t{0}},
                        {"first_k_dense_replace", keys.file().integer(keys.full("leading_dense_block_count"), 0)},
                        {"n_routed_experts", keys.count("expert_count")},
                        {"num_experts_per_tok", keys.count("expert_used_count")},
                        {"n_shared_experts", keys.file().integer(keys.full("expert_shared_count"), 0)},
                        {"moe_intermediate_size", keys.count("expert_feed_forward_length")},
                        {"routed_scaling_factor", keys.number("expert_weights_scale", 1)}};
  const bool normalizes = keys.flag("expert_weights_norm", false);
  keys.require(v3 || !normalizes, "key '", keys.full("expert_weights_norm"),
               "' is true; it is supported with a sigmoid router (expert_gating_func 2) only");
  out.set("norm_topk_prob", normalizes);
  read_attention(keys, out);
  read_groups(keys, v3, out);
  return out;
}

void write_attention(const Json& config, GgufWriter& out) {
  const int64_t rank = count_of(config, "kv_lora_rank"), rotary = count_of(config, "qk_rope_head_dim");
  out.count("attention.head_count", count_of(config, "num_attention_heads"));
  out.count("attention.head_count_kv", 1);
  const Json* latent = config.find("q_lora_rank");
  const bool has_latent = latent && latent->is_int();
  const int64_t layers = count_of(config, "num_hidden_layers");
  HONE_CHECK(has_latent || layers == lite_layers || layers == lite_layers - 1,
             "export: q_lora_rank is null in config.json; llama.cpp loads such a model with ", lite_layers - 1, " or ",
             lite_layers, " layers only (DeepSeek-V2-Lite), this one has ", layers);
  if (has_latent) out.count("attention.q_lora_rank", latent->as_int());
  out.count("attention.kv_lora_rank", rank);
  out.count("attention.key_length", rank + rotary);
  out.count("attention.value_length", rank);
  out.count("attention.key_length_mla", count_of(config, "qk_nope_head_dim") + rotary);
  out.count("attention.value_length_mla", count_of(config, "v_head_dim"));
  out.count("rope.dimension_count", rotary);
  write_gguf_rope(config, rotary, out, rope_options);
}

void write_router(const Json& config, bool v3, GgufWriter& out) {
  const Json* method = config.find("topk_method");
  const Json* groups = config.find("n_group");
  const bool grouped = groups && groups->is_int() && groups->as_int() > 1;
  HONE_CHECK(v3 || !(method && *method == Json("group_limited_greedy") && grouped),
             "export: topk_method is 'group_limited_greedy' in config.json; llama.cpp chooses groups of experts in "
             "another way");
  out.count("leading_dense_block_count", count_of(config, "first_k_dense_replace"));
  write_gguf_experts(config, "moe_intermediate_size", out);
  const int64_t shared = count_of(config, "n_shared_experts");
  HONE_CHECK(shared > 0,
             "export: n_shared_experts is 0 in config.json; llama.cpp's deepseek2 always has a shared "
             "expert");
  out.count("expert_shared_count", shared);
  out.number("expert_weights_scale", number_of(config, "routed_scaling_factor"));
  out.set_flag(concat(out.architecture(), ".expert_weights_norm"),
               v3 && config.at("norm_topk_prob", "config.json").as_bool("norm_topk_prob"));
  out.count("expert_gating_func", v3 ? sigmoid_gating : softmax_gating);
  if (!v3 || !grouped) return;
  out.count("expert_group_count", groups->as_int());
  out.count("expert_group_used_count", count_of(config, "topk_group"));
}

void write_keys(const Json& config, GgufWriter& out) {
  const bool v3 = config.at("model_type", "config.json") == Json("deepseek_v3");
  require_setting(config, "hidden_act", Json("silu"), out);
  require_setting(config, "attention_bias", Json(false), out);
  require_setting(config, "mlp_bias", Json(false), out);
  require_setting(config, "rope_interleave", Json(true), out);
  const double epsilon = number_of(config, "rms_norm_eps");
  if (epsilon != latent_epsilon)
    log::warning("export: llama.cpp computes the norms of the latents with rms_norm_eps, ", epsilon,
                 ", this model with ", latent_epsilon);
  out.count("context_length", count_of(config, "max_position_embeddings"));
  out.count("embedding_length", count_of(config, "hidden_size"));
  out.count("block_count", count_of(config, "num_hidden_layers"));
  out.count("feed_forward_length", count_of(config, "intermediate_size"));
  out.number("attention.layer_norm_rms_epsilon", epsilon);
  out.count("vocab_size", count_of(config, "vocab_size"));
  write_attention(config, out);
  write_router(config, v3, out);
}

[[maybe_unused]] const bool added = gguf_architectures().add(
    "deepseek2", {.model_types = {"deepseek_v2", "deepseek_v3"},
                  .names = joined({gguf_attention_names(), own_names, gguf_mlp_names(), gguf_expert_names()}),
                  .always_has_head = true,
                  .latent_attention = true,
                  .config = read_config,
                  .write_keys = write_keys});

}  // namespace
}  // namespace hone
