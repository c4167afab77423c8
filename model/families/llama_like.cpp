#include "model/families/llama_like.h"

#include <algorithm>
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

static void read_mtp(ConfigReader& config, LlamaLikeConfig& out) {
  constexpr int64_t max_modules = 16;
  constexpr double paper_coef = 0.3;  // of DeepSeek-V3 for the first 10T tokens
  if (!config.find("num_nextn_predict_layers")) return;
  out.num_mtp_modules = config.count("num_nextn_predict_layers", 0, max_modules, 0);
  if (out.num_mtp_modules == 0) return;
  const Json* coef = config.find("mtp_loss_coef");
  out.mtp_loss_coef = coef ? coef->as_double(config.place("mtp_loss_coef")) : paper_coef;
  config.require(out.mtp_loss_coef >= 0 && out.mtp_loss_coef <= 1e6, "mtp_loss_coef is ", out.mtp_loss_coef,
                 ", wants a number in [0, 1e6]");
  config.set("mtp_loss_coef", out.mtp_loss_coef);
}

LlamaLikeConfig read_llama_like(ConfigReader& config, const char* architecture, const LlamaLikeDefaults& defaults) {
  LlamaLikeConfig out;
  ModelShape& shape = out.shape;
  read_sizes(config, defaults, shape);
  out.kinds.assign(static_cast<size_t>(shape.num_layers), {});
  if (defaults.reads_activation) {
    const Activation activation = config.activation(defaults.activation_key, defaults.activation);
    for (LayerKind& kind : out.kinds) kind.activation = activation;
  }
  out.tied = config.flag("tie_word_embeddings", defaults.tied);
  out.norm_eps = config.positive("rms_norm_eps", defaults.norm_eps);
  out.init_std = config.positive("initializer_range", 0.02);
  if (defaults.reads_rope) {
    out.ropes = {read_rope(config, shape.head_dim, shape.max_positions, defaults.rope)};
    shape.max_positions = rope_positions(out.ropes.front(), shape.max_positions);
  }
  out.layer_rope.assign(static_cast<size_t>(shape.num_layers), 0);
  out.windows.assign(static_cast<size_t>(shape.num_layers), 0);
  read_mtp(config, out);
  config.set("architectures", JsonArray{Json(architecture)});
  return out;
}

static Norm make_norm(const LlamaLikeConfig& config, const std::string& module) {
  const int64_t width = config.shape.hidden_size;
  if (config.layer_norm) return Norm::layer(module, width, config.norm_eps);
  return Norm::rms(module, width, config.norm_eps, config.norm_offset);
}

// The modules of a fused matrix: one of the name `whole` if the file has it fused, else `parts`.
static FusedModules modules_of(bool fused, const std::string& whole, FusedModules parts) {
  if (!fused) return parts;
  int64_t rows = 0;
  for (const auto& [name, count] : parts) rows += count;
  return {{whole, rows}};
}

// The attention of layer `index`. rope: null without RoPE.
static std::unique_ptr<SelfAttention> make_attention(const LlamaLikeConfig& config, int64_t index, int64_t window,
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
                .norm_offset = config.qk_norm ? static_cast<float>(config.norm_offset) : 0,
                .interleaved = config.rope_interleaved};
  const double scale = config.attention_scale > 0 ? config.attention_scale : 1 / std::sqrt(static_cast<double>(dim));
  out->scale = static_cast<float>(scale);
  out->softcap = static_cast<float>(config.attention_softcap);
  out->clip = static_cast<float>(config.qkv_clip);
  out->window = window;
  out->rope = std::move(rope);
  out->kv_layer = static_cast<size_t>(index);
  return out;
}

static std::unique_ptr<Sublayer> make_mlp(const LlamaLikeConfig& config, const LayerKind& kind, int64_t index) {
  const std::string prefix = concat("model.layers.", index, ".mlp.");
  const int64_t width = config.shape.hidden_size, inner = config.shape.intermediate_size;
  const auto down = [&] { return Linear({{prefix + "down_proj", width}}, inner, config.mlp_bias, config.init_std); };
  if (!kind.gated) {
    auto out = std::make_unique<PlainMlp>();
    out->up = Linear({{prefix + "up_proj", inner}}, width, config.mlp_bias, config.init_std);
    out->down = down();
    out->activation = kind.activation;
    return out;
  }
  auto out = std::make_unique<GatedMlp>();
  out->gate_up = Linear(modules_of(config.fused_names, prefix + "gate_up_proj",
                                   {{prefix + "gate_proj", inner}, {prefix + "up_proj", inner}}),
                        width, config.mlp_bias, config.init_std);
  out->down = down();
  out->activation = kind.activation;
  return out;
}

// The layer's norms, with the names that transformers gives them.
static void add_norms(const LlamaLikeConfig& config, NormPlacement norms, const std::string& prefix,
                      DecoderLayer& layer) {
  const auto norm = [&](const char* module) { return make_norm(config, prefix + module); };
  layer.parallel = norms == NormPlacement::parallel || norms == NormPlacement::parallel_shared;
  if (norms == NormPlacement::parallel_shared) {
    layer.shared_norm = norm("input_layernorm");
    return;
  }
  if (norms != NormPlacement::post) layer.mixer.before = norm("input_layernorm");
  if (norms == NormPlacement::pre || norms == NormPlacement::parallel) {
    layer.mlp.before = norm("post_attention_layernorm");
    return;
  }
  layer.mixer.after = norm("post_attention_layernorm");
  if (norms == NormPlacement::both) layer.mlp.before = norm("pre_feedforward_layernorm");
  layer.mlp.after = norm("post_feedforward_layernorm");
}

// Layer `index`. A layer of multi-token prediction, which comes after the last one, is like that one.
static DecoderLayer make_layer(const LlamaLikeConfig& config, int64_t index, const TransformerParts& parts) {
  const auto like = static_cast<size_t>(std::min(index, config.shape.num_layers - 1));
  const int64_t rope = config.layer_rope[like];
  DecoderLayer out;
  out.mixer.sublayer =
      make_attention(config, index, config.windows[like], rope < 0 ? nullptr : parts.ropes[static_cast<size_t>(rope)]);
  const LayerKind kind = config.kinds.empty() ? LayerKind{} : config.kinds[like];
  out.mlp.sublayer = make_mlp(config, kind, index);
  add_norms(config, kind.norms, concat("model.layers.", index, "."), out);
  return out;
}

TransformerParts llama_like_parts(const LlamaLikeConfig& config) {
  TransformerParts parts{.shape = config.shape, .config = config.resolved};
  parts.make_embedding_and_lm_head("model.embed_tokens", config.tied, config.init_std);
  parts.embedding_scale = config.embedding_scale;
  for (const RopeConfig& rope : config.ropes)
    parts.ropes.push_back(std::make_shared<RopeTable>(RopeTable{rope, config.shape.max_positions}));
  const int64_t num_layers = config.shape.num_layers;
  for (int64_t i = 0; i < num_layers; ++i) parts.layers.push_back(make_layer(config, i, parts));
  for (int64_t i = num_layers; i < num_layers + config.num_mtp_modules; ++i) {
    parts.mtp.push_back(MtpModule::make(concat("model.layers.", i, "."), config.shape.hidden_size, config.init_std,
                                        config.norm_eps, config.norm_offset));
    parts.mtp.back().layer = make_layer(config, i, parts);
  }
  parts.mtp_loss_coef = config.mtp_loss_coef;
  parts.final_norm = make_norm(config, "model.norm");
  return parts;
}

std::unique_ptr<Model> make_llama_like(const LlamaLikeConfig& config) {
  return make_transformer(llama_like_parts(config));
}

}  // namespace hone
