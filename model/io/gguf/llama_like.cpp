// GGUF's architectures of Llama's layout with dense layers: llama (also Mistral, and Mixtral with experts), qwen2,
// qwen3, olmo2 and smollm3.
#include "model/io/gguf/llama_like.h"

namespace hone {

std::vector<GgufTensorName> gguf_attention_names() {
  return {
      {"token_embd", "model.embed_tokens"},
      {"output_norm", "model.norm"},
      {"output", "lm_head"},
      {"blk.*.attn_q", "model.layers.*.self_attn.q_proj"},
      {"blk.*.attn_k", "model.layers.*.self_attn.k_proj"},
      {"blk.*.attn_v", "model.layers.*.self_attn.v_proj"},
      {"blk.*.attn_output", "model.layers.*.self_attn.o_proj"},
      {"blk.*.attn_q_norm", "model.layers.*.self_attn.q_norm"},
      {"blk.*.attn_k_norm", "model.layers.*.self_attn.k_norm"},
  };
}

std::vector<GgufTensorName> gguf_mlp_names() {
  return {
      {"blk.*.ffn_gate", "model.layers.*.mlp.gate_proj"},
      {"blk.*.ffn_up", "model.layers.*.mlp.up_proj"},
      {"blk.*.ffn_down", "model.layers.*.mlp.down_proj"},
  };
}

std::vector<GgufTensorName> gguf_expert_names() {
  return {
      {"blk.*.ffn_gate_inp", "model.layers.*.mlp.gate"},
      {"blk.*.ffn_gate_exps", "model.layers.*.mlp.experts.#.gate_proj"},
      {"blk.*.ffn_up_exps", "model.layers.*.mlp.experts.#.up_proj"},
      {"blk.*.ffn_down_exps", "model.layers.*.mlp.experts.#.down_proj"},
  };
}

static const std::vector<GgufTensorName> norms_before = {
    {"blk.*.attn_norm", "model.layers.*.input_layernorm"},
    {"blk.*.ffn_norm", "model.layers.*.post_attention_layernorm"},
};

std::vector<GgufTensorName> gguf_llama_names() {
  return joined({gguf_attention_names(), norms_before, gguf_mlp_names()});
}

std::vector<GgufTensorName> joined(std::initializer_list<std::vector<GgufTensorName>> parts) {
  std::vector<GgufTensorName> out;
  for (const std::vector<GgufTensorName>& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

int64_t count_of(const Json& config, const char* key) { return config.at(key, "config.json").as_int(key); }
double number_of(const Json& config, const char* key) { return config.at(key, "config.json").as_double(key); }

void require_setting(const Json& config, const char* key, const Json& wanted, const GgufWriter& out) {
  const Json* value = config.find(key);
  const bool numbers = value && value->is_number() && wanted.is_number();
  const bool same = numbers ? value->as_double() == wanted.as_double() : !value || value->is_null() || *value == wanted;
  HONE_CHECK(same, "export: ", key, " is ", value->dump(), " in config.json; llama.cpp computes the architecture ",
             out.architecture(), " with ", wanted.dump(), " only");
}

void require_square_heads(const Json& config, const GgufWriter& out) {
  const int64_t heads = count_of(config, "num_attention_heads"), head_dim = count_of(config, "head_dim"),
                width = count_of(config, "hidden_size");
  HONE_CHECK(heads * head_dim == width, "export: ", heads, " heads of ", head_dim, " (head_dim) are not hidden_size ",
             width, ", as llama.cpp's architecture ", out.architecture(), " wants");
}

void check_window_pattern(const GgufKeys& keys, int64_t period) {
  constexpr std::string_view key = "attention.sliding_window_pattern";
  const Json* value = keys.file().find(keys.full(key));
  if (!value) return;
  bool usual = value->is_int() && value->as_int() == period;
  if (value->is_array()) {
    usual = true;
    int64_t layer = 0;
    for (const Json& one : value->as_array()) {
      const bool slides = layer++ % period != period - 1;
      usual = usual && (one == Json(slides) || one == Json(int64_t{slides}));
    }
  }
  keys.require(usual, "key '", keys.full(key), "' has another pattern of sliding windows than every ", period,
               "th layer without one, which is not supported");
}

void require_window_pattern(const Json& config, int64_t period, const GgufWriter& out) {
  const Json* types = config.find("layer_types");
  for (int64_t layer = 0; layer < count_of(config, "num_hidden_layers"); ++layer) {
    const bool slides =
        types && types->is_array() && types->as_array()[static_cast<size_t>(layer)] == Json("sliding_attention");
    HONE_CHECK(slides == (layer % period != period - 1), "export: layer ", layer, " has ", slides ? "a" : "no",
               " sliding window (layer_types in config.json); in llama.cpp's architecture ", out.architecture(),
               " every ", period, "th layer has none, and all others have one");
  }
}

Json read_gguf_llama(const GgufKeys& keys, bool tied, const char* model_type, const GgufLlamaOptions& options) {
  const int64_t heads = keys.count("attention.head_count"), width = keys.count("embedding_length");
  keys.require(keys.has("attention.key_length") || width % heads == 0, "key '", keys.full("embedding_length"), "' is ",
               width, ", not a multiple of the ", heads, " heads");
  const int64_t head_dim = keys.count("attention.key_length", width / heads);
  keys.require(keys.count("attention.value_length", head_dim) == head_dim,
               "values of another size than keys (attention.value_length) are not supported");
  const int64_t rotary = keys.count("rope.dimension_count", head_dim);
  keys.require(rotary == head_dim || (options.partial_rope && rotary < head_dim), "key '",
               keys.full("rope.dimension_count"), "' is ", rotary, ", not the head size ", head_dim,
               "; partial rotary positions are not supported");
  constexpr std::string_view epsilon = "attention.layer_norm_rms_epsilon";
  keys.require(keys.has(epsilon), "key '", keys.full(epsilon), "' is missing");
  keys.require(options.experts || keys.number("expert_count", 0) == 0, "a mixture of experts (",
               keys.full("expert_count"), ") is not supported");
  const bool has_inner = !options.experts || keys.has("feed_forward_length");
  Json out =
      JsonObject{{"model_type", model_type},
                 {"hidden_size", width},
                 {"intermediate_size", keys.count(has_inner ? "feed_forward_length" : "expert_feed_forward_length")},
                 {"num_hidden_layers", keys.count("block_count")},
                 {"num_attention_heads", heads},
                 {"num_key_value_heads", keys.count("attention.head_count_kv", heads)},
                 {"head_dim", head_dim},
                 {"max_position_embeddings", keys.count("context_length")},
                 {"rms_norm_eps", keys.number(epsilon, 0)},
                 {"tie_word_embeddings", tied}};
  if (options.activation) out.set(options.activation_key, options.activation);
  if (rotary < head_dim) out.set("partial_rotary_factor", static_cast<double>(rotary) / static_cast<double>(head_dim));
  read_gguf_rope(keys, rotary, out, options.rope);
  return out;
}

void write_gguf_llama(const Json& config, GgufWriter& out, const GgufLlamaOptions& options) {
  if (options.activation) {
    const std::string& activation = config.at(options.activation_key, "config.json").as_string(options.activation_key);
    const std::string_view wanted = options.activation;
    const bool same = activation == wanted || (wanted == "silu" && activation == "swish") ||
                      (wanted == "gelu_pytorch_tanh" && activation == "gelu_new");
    HONE_CHECK(same, "config.json: ", options.activation_key, " '", activation,
               "' has no key in GGUF; this architecture uses ", wanted);
  }
  const int64_t head_dim = count_of(config, "head_dim");
  const Json* partial = options.partial_rope ? config.find("partial_rotary_factor") : nullptr;
  const double share = partial && partial->is_number() ? partial->as_double() : 1;
  const auto rotary = static_cast<int64_t>(static_cast<double>(head_dim) * share);
  out.count("context_length", count_of(config, "max_position_embeddings"));
  out.count("embedding_length", count_of(config, "hidden_size"));
  out.count("block_count", count_of(config, "num_hidden_layers"));
  out.count("feed_forward_length", count_of(config, "intermediate_size"));
  out.count("attention.head_count", count_of(config, "num_attention_heads"));
  out.count("attention.head_count_kv", count_of(config, "num_key_value_heads"));
  out.count("attention.key_length", head_dim);
  out.count("attention.value_length", head_dim);
  out.number("attention.layer_norm_rms_epsilon", number_of(config, "rms_norm_eps"));
  out.count("vocab_size", count_of(config, "vocab_size"));
  out.count("rope.dimension_count", rotary);
  write_gguf_rope(config, rotary, out, options.rope);
}

void read_gguf_experts(const GgufKeys& keys, Json& config) {
  config.set("num_experts", keys.count("expert_count"));
  config.set("num_experts_per_tok", keys.count("expert_used_count"));
}

void write_gguf_experts(const Json& config, const char* expert_size, GgufWriter& out) {
  const char* count = config.find("num_experts") ? "num_experts" : "n_routed_experts";
  out.count("expert_count", count_of(config, count));
  out.count("expert_used_count", count_of(config, "num_experts_per_tok"));
  out.count("expert_feed_forward_length", count_of(config, expert_size));
}

namespace {

constexpr GgufLlamaOptions with_experts{.experts = true};

Json read_mixtral(const GgufKeys& keys, bool tied) {
  Json out = read_gguf_llama(keys, tied, "mixtral", with_experts);
  read_gguf_experts(keys, out);
  if (keys.has("attention.sliding_window")) out.set("sliding_window", keys.count("attention.sliding_window"));
  return out;
}

Json read_llama(const GgufKeys& keys, bool tied) {
  if (keys.number("expert_count", 0) != 0) return read_mixtral(keys, tied);
  const bool slides = keys.has("attention.sliding_window");
  Json out = read_gguf_llama(keys, tied, slides ? "mistral" : "llama");
  if (slides) {
    out.set("sliding_window", keys.count("attention.sliding_window"));
    return out;
  }
  out.set("attention_bias", keys.file().find_tensor("blk.0.attn_q.bias") != nullptr);
  out.set("mlp_bias", keys.file().find_tensor("blk.0.ffn_up.bias") != nullptr);
  return out;
}

Json read_qwen2(const GgufKeys& keys, bool tied) { return read_gguf_llama(keys, tied, "qwen2"); }

Json read_qwen3(const GgufKeys& keys, bool tied) {
  Json out = read_gguf_llama(keys, tied, "qwen3");
  out.set("attention_bias", keys.file().find_tensor("blk.0.attn_q.bias") != nullptr);
  return out;
}

Json read_olmo2(const GgufKeys& keys, bool tied) {
  keys.require(!keys.has("attention.sliding_window"), "OLMo 3 (key '", keys.full("attention.sliding_window"),
               "') is not supported");
  return read_gguf_llama(keys, tied, "olmo2");
}

constexpr int64_t no_rope_interval = 4;  // of smollm3 in llama.cpp

Json read_smollm3(const GgufKeys& keys, bool tied) {
  Json out = read_gguf_llama(keys, tied, "smollm3");
  out.set("no_rope_layer_interval", no_rope_interval);
  return out;
}

void write_llama(const Json& config, GgufWriter& out) {
  const Json& family = config.at("model_type", "config.json");
  write_gguf_llama(config, out);
  if (family == Json("mixtral")) write_gguf_experts(config, "intermediate_size", out);
  const Json* window = config.find("sliding_window");
  if (window && window->is_int() && (family == Json("mistral") || family == Json("mixtral")))
    out.count("attention.sliding_window", window->as_int());
}

void write_qwen(const Json& config, GgufWriter& out) { write_gguf_llama(config, out); }

void write_olmo2(const Json& config, GgufWriter& out) {
  require_setting(config, "attention_bias", Json(false), out);
  require_square_heads(config, out);
  write_gguf_llama(config, out);
}

void write_smollm3(const Json& config, GgufWriter& out) {
  require_setting(config, "attention_bias", Json(false), out);
  require_setting(config, "mlp_bias", Json(false), out);
  const JsonArray& rope = config.at("no_rope_layers", "config.json").as_array();
  for (int64_t layer = 0; layer < count_of(config, "num_hidden_layers"); ++layer)
    HONE_CHECK(rope[static_cast<size_t>(layer)] == Json(int64_t{(layer + 1) % no_rope_interval != 0}),
               "export: no_rope_layers of config.json has another pattern than every ", no_rope_interval,
               "th layer without RoPE, which llama.cpp's architecture smollm3 has");
  write_gguf_llama(config, out);
}

const std::vector<GgufTensorName> mixtral_names = {
    {"blk.*.ffn_gate_inp", "model.layers.*.block_sparse_moe.gate"},
    {"blk.*.ffn_gate_exps", "model.layers.*.block_sparse_moe.experts.#.w1"},
    {"blk.*.ffn_up_exps", "model.layers.*.block_sparse_moe.experts.#.w3"},
    {"blk.*.ffn_down_exps", "model.layers.*.block_sparse_moe.experts.#.w2"},
};
const std::vector<GgufTensorName> norms_after = {
    {"blk.*.post_attention_norm", "model.layers.*.post_attention_layernorm"},
    {"blk.*.post_ffw_norm", "model.layers.*.post_feedforward_layernorm"},
};

[[maybe_unused]] const bool added = [] {
  auto& all = gguf_architectures();
  const std::vector<GgufTensorName> names = gguf_llama_names();
  all.add("llama", {.model_types = {"llama", "mistral", "mixtral"},
                    .names = joined({names, mixtral_names}),
                    .interleaved_rope = true,
                    .config = read_llama,
                    .write_keys = write_llama});
  all.add("qwen2", {.model_types = {"qwen2"}, .names = names, .config = read_qwen2, .write_keys = write_qwen});
  all.add("qwen3", {.model_types = {"qwen3"}, .names = names, .config = read_qwen3, .write_keys = write_qwen});
  all.add("smollm3", {.model_types = {"smollm3"},
                      .names = names,
                      .interleaved_rope = true,
                      .config = read_smollm3,
                      .write_keys = write_smollm3});
  return all.add("olmo2", {.model_types = {"olmo2"},
                           .names = joined({gguf_attention_names(), norms_after, gguf_mlp_names()}),
                           .always_has_head = true,
                           .config = read_olmo2,
                           .write_keys = write_olmo2});
}();

}  // namespace
}  // namespace hone
