#include "model/llama_like.h"

#include <cmath>

#include "model/mlp.h"

namespace hone {

static void read_sizes(ConfigReader& config, const LlamaLikeDefaults& defaults, ModelShape& shape) {
  shape.vocab_size = config.count("vocab_size");
  shape.hidden_size = config.count("hidden_size");
  shape.intermediate_size = config.count("intermediate_size");
  shape.num_layers = config.count("num_hidden_layers", std::nullopt, max_layers);
  shape.num_attention_heads = config.count("num_attention_heads");
  shape.num_kv_heads = config.count("num_key_value_heads", defaults.num_kv_heads.value_or(shape.num_attention_heads));
  shape.max_positions = config.count("max_position_embeddings");
  config.require(config.find("head_dim") || defaults.head_dim || shape.hidden_size % shape.num_attention_heads == 0,
                 "hidden_size ", shape.hidden_size, " is not a multiple of num_attention_heads ",
                 shape.num_attention_heads, " and there is no head_dim");
  shape.head_dim = config.count("head_dim", defaults.head_dim.value_or(shape.hidden_size / shape.num_attention_heads));
  config.require(shape.num_attention_heads % shape.num_kv_heads == 0, "num_attention_heads ", shape.num_attention_heads,
                 " is not a multiple of num_key_value_heads ", shape.num_kv_heads);
}

LlamaLikeConfig read_llama_like(ConfigReader& config, const char* architecture, const LlamaLikeDefaults& defaults) {
  LlamaLikeConfig out;
  ModelShape& shape = out.shape;
  read_sizes(config, defaults, shape);
  out.activation = config.activation(defaults.activation_key, defaults.activation);
  out.tied = config.flag("tie_word_embeddings", defaults.tied);
  out.norm_eps = config.positive("rms_norm_eps", defaults.norm_eps);
  out.init_std = config.positive("initializer_range", 0.02);
  if (defaults.reads_rope) {
    out.ropes = {read_rope(config, shape.head_dim, shape.max_positions, defaults.rope)};
    shape.max_positions = rope_positions(out.ropes.front(), shape.max_positions);
  }
  out.layer_rope.assign(static_cast<size_t>(shape.num_layers), 0);
  out.windows.assign(static_cast<size_t>(shape.num_layers), 0);
  config.set("architectures", JsonArray{Json(architecture)});
  return out;
}

// The modules of a fused matrix: one of the name `whole` if the file has it fused, else `parts`.
static FusedModules modules_of(bool fused, const std::string& whole, FusedModules parts) {
  if (!fused) return parts;
  int64_t rows = 0;
  for (const auto& [name, count] : parts) rows += count;
  return {{whole, rows}};
}

// The attention of layer `index`. rope: null without RoPE.
static std::unique_ptr<SelfAttention> make_attention(const LlamaLikeConfig& config, int64_t index,
                                                     std::shared_ptr<const RopeTable> rope) {
  const ModelShape& shape = config.shape;
  const std::string prefix = concat("model.layers.", index, ".self_attn.");
  const int64_t dim = shape.head_dim, queries = shape.num_attention_heads * dim, keys = shape.num_kv_heads * dim;
  const auto norm = [&](const char* module, int64_t width) {
    return Norm::rms(prefix + module, width, config.norm_eps, config.norm_offset);
  };
  auto out = std::make_unique<SelfAttention>();
  out->qkv = Linear(modules_of(config.fused_names, prefix + "qkv_proj",
                               {{prefix + "q_proj", queries}, {prefix + "k_proj", keys}, {prefix + "v_proj", keys}}),
                    shape.hidden_size, config.qkv_bias, config.init_std);
  out->output = Linear({{prefix + "o_proj", shape.hidden_size}}, queries, config.output_bias, config.init_std);
  if (config.qk_norm) {
    out->q_norm = norm("q_norm", dim).weight;
    out->k_norm = norm("k_norm", dim).weight;
  }
  if (config.full_qk_norm) {
    out->full_q_norm = norm("q_norm", queries);
    out->full_k_norm = norm("k_norm", keys);
  }
  out->heads = {.num_heads = shape.num_attention_heads,
                .num_kv_heads = shape.num_kv_heads,
                .head_dim = dim,
                .rotary_dim = rope ? rope->config.dim : 0,
                .norm_eps = static_cast<float>(config.norm_eps),
                .norm_offset = config.qk_norm ? static_cast<float>(config.norm_offset) : 0};
  const double scale = config.attention_scale > 0 ? config.attention_scale : 1 / std::sqrt(static_cast<double>(dim));
  out->scale = static_cast<float>(scale);
  out->softcap = static_cast<float>(config.attention_softcap);
  out->window = config.windows[static_cast<size_t>(index)];
  out->rope = std::move(rope);
  out->kv_layer = static_cast<size_t>(index);
  return out;
}

static std::unique_ptr<GatedMlp> make_mlp(const LlamaLikeConfig& config, int64_t index) {
  const std::string prefix = concat("model.layers.", index, ".mlp.");
  const int64_t width = config.shape.hidden_size, inner = config.shape.intermediate_size;
  auto out = std::make_unique<GatedMlp>();
  out->gate_up = Linear(modules_of(config.fused_names, prefix + "gate_up_proj",
                                   {{prefix + "gate_proj", inner}, {prefix + "up_proj", inner}}),
                        width, config.mlp_bias, config.init_std);
  out->down = Linear({{prefix + "down_proj", width}}, inner, config.mlp_bias, config.init_std);
  out->activation = config.activation;
  return out;
}

// The layer's norms, with the names that transformers gives them.
static void add_norms(const LlamaLikeConfig& config, const std::string& prefix, DecoderLayer& layer) {
  const auto norm = [&](const char* module) {
    return Norm::rms(prefix + module, config.shape.hidden_size, config.norm_eps, config.norm_offset);
  };
  if (config.norms != NormPlacement::post) layer.mixer.before = norm("input_layernorm");
  if (config.norms == NormPlacement::pre) {
    layer.mlp.before = norm("post_attention_layernorm");
    return;
  }
  layer.mixer.after = norm("post_attention_layernorm");
  if (config.norms == NormPlacement::both) layer.mlp.before = norm("pre_feedforward_layernorm");
  layer.mlp.after = norm("post_feedforward_layernorm");
}

TransformerParts llama_like_parts(const LlamaLikeConfig& config) {
  TransformerParts parts{.shape = config.shape, .config = config.resolved};
  parts.make_embedding_and_lm_head("model.embed_tokens", config.tied, config.init_std);
  parts.embedding_scale = config.embedding_scale;
  for (const RopeConfig& rope : config.ropes)
    parts.ropes.push_back(std::make_shared<RopeTable>(RopeTable{rope, config.shape.max_positions}));
  for (int64_t i = 0; i < config.shape.num_layers; ++i) {
    const int64_t rope = config.layer_rope[static_cast<size_t>(i)];
    DecoderLayer layer;
    layer.mixer.sublayer = make_attention(config, i, rope < 0 ? nullptr : parts.ropes[static_cast<size_t>(rope)]);
    layer.mlp.sublayer = make_mlp(config, i);
    add_norms(config, concat("model.layers.", i, "."), layer);
    parts.layers.push_back(std::move(layer));
  }
  parts.final_norm = Norm::rms("model.norm", config.shape.hidden_size, config.norm_eps, config.norm_offset);
  return parts;
}

std::unique_ptr<Model> make_llama_like(const LlamaLikeConfig& config) {
  return make_transformer(llama_like_parts(config));
}

}  // namespace hone
