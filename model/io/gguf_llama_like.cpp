// GGUF's architectures of Llama's layout: llama (also Mistral), qwen2 and qwen3.
#include "core/io/gguf/gguf_writer.h"
#include "model/io/gguf_rope.h"

namespace hone {
namespace {

const std::vector<GgufTensorName> names = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.*.attn_norm", "model.layers.*.input_layernorm"},
    {"blk.*.attn_q", "model.layers.*.self_attn.q_proj"},
    {"blk.*.attn_k", "model.layers.*.self_attn.k_proj"},
    {"blk.*.attn_v", "model.layers.*.self_attn.v_proj"},
    {"blk.*.attn_output", "model.layers.*.self_attn.o_proj"},
    {"blk.*.attn_q_norm", "model.layers.*.self_attn.q_norm"},
    {"blk.*.attn_k_norm", "model.layers.*.self_attn.k_norm"},
    {"blk.*.ffn_norm", "model.layers.*.post_attention_layernorm"},
    {"blk.*.ffn_gate", "model.layers.*.mlp.gate_proj"},
    {"blk.*.ffn_up", "model.layers.*.mlp.up_proj"},
    {"blk.*.ffn_down", "model.layers.*.mlp.down_proj"},
};

Json read_config(const GgufKeys& keys, bool tied, const char* model_type) {
  const int64_t heads = keys.count("attention.head_count"), width = keys.count("embedding_length");
  keys.require(keys.has("attention.key_length") || width % heads == 0, "key '", keys.full("embedding_length"), "' is ",
               width, ", not a multiple of the ", heads, " heads");
  const int64_t head_dim = keys.count("attention.key_length", width / heads);
  keys.require(keys.count("attention.value_length", head_dim) == head_dim,
               "values of another size than keys (attention.value_length) are not supported");
  keys.require(keys.count("rope.dimension_count", head_dim) == head_dim, "key '", keys.full("rope.dimension_count"),
               "' is not the head size ", head_dim, "; partial rotary positions are not supported");
  constexpr std::string_view epsilon = "attention.layer_norm_rms_epsilon";
  keys.require(keys.has(epsilon), "key '", keys.full(epsilon), "' is missing");
  keys.require(keys.number("expert_count", 0) == 0, "a mixture of experts (", keys.full("expert_count"),
               ") is not supported");
  Json out = JsonObject{{"model_type", model_type},
                        {"hidden_size", width},
                        {"intermediate_size", keys.count("feed_forward_length")},
                        {"num_hidden_layers", keys.count("block_count")},
                        {"num_attention_heads", heads},
                        {"num_key_value_heads", keys.count("attention.head_count_kv", heads)},
                        {"head_dim", head_dim},
                        {"hidden_act", "silu"},
                        {"max_position_embeddings", keys.count("context_length")},
                        {"rms_norm_eps", keys.number(epsilon, 0)},
                        {"tie_word_embeddings", tied}};
  read_gguf_rope(keys, head_dim, out);
  return out;
}

Json read_llama(const GgufKeys& keys, bool tied) {
  const bool slides = keys.has("attention.sliding_window");
  Json out = read_config(keys, tied, slides ? "mistral" : "llama");
  if (slides) {
    out.set("sliding_window", keys.count("attention.sliding_window"));
    return out;
  }
  out.set("attention_bias", keys.file().find_tensor("blk.0.attn_q.bias") != nullptr);
  out.set("mlp_bias", keys.file().find_tensor("blk.0.ffn_up.bias") != nullptr);
  return out;
}

Json read_qwen2(const GgufKeys& keys, bool tied) { return read_config(keys, tied, "qwen2"); }

Json read_qwen3(const GgufKeys& keys, bool tied) {
  Json out = read_config(keys, tied, "qwen3");
  out.set("attention_bias", keys.file().find_tensor("blk.0.attn_q.bias") != nullptr);
  return out;
}

void write_keys(const Json& config, GgufWriter& out) {
  const std::string& activation = config.at("hidden_act", "config.json").as_string("hidden_act");
  HONE_CHECK(activation == "silu" || activation == "swish", "config.json: hidden_act '", activation,
             "' has no key in GGUF; these architectures use silu");
  const auto count = [&](const char* name) { return config.at(name, "config.json").as_int(name); };
  const int64_t head_dim = count("head_dim");
  out.count("context_length", count("max_position_embeddings"));
  out.count("embedding_length", count("hidden_size"));
  out.count("block_count", count("num_hidden_layers"));
  out.count("feed_forward_length", count("intermediate_size"));
  out.count("attention.head_count", count("num_attention_heads"));
  out.count("attention.head_count_kv", count("num_key_value_heads"));
  out.count("attention.key_length", head_dim);
  out.count("attention.value_length", head_dim);
  out.number("attention.layer_norm_rms_epsilon", config.at("rms_norm_eps", "config.json").as_double("rms_norm_eps"));
  out.count("vocab_size", count("vocab_size"));
  out.count("rope.dimension_count", head_dim);
  if (const Json* window = config.find("sliding_window");
      window && window->is_int() && config.at("model_type") == Json("mistral"))
    out.count("attention.sliding_window", window->as_int());
  write_gguf_rope(config, head_dim, out);
}

[[maybe_unused]] const bool added = [] {
  auto& all = gguf_architectures();
  all.add("llama", {{"llama", "mistral"}, names, true, false, read_llama, write_keys});
  all.add("qwen2", {{"qwen2"}, names, false, false, read_qwen2, write_keys});
  return all.add("qwen3", {{"qwen3"}, names, false, false, read_qwen3, write_keys});
}();

}  // namespace
}  // namespace hone
