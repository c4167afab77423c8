#include "model/llama_like.h"

#include <cmath>

#include "model/mlp.h"

namespace hone {

LlamaLikeConfig read_llama_like(ConfigReader& config, const char* architecture, std::optional<int64_t> head_dim) {
  LlamaLikeConfig out;
  ModelShape& shape = out.shape;
  shape.vocab_size = config.count("vocab_size");
  shape.hidden_size = config.count("hidden_size");
  shape.intermediate_size = config.count("intermediate_size");
  shape.num_layers = config.count("num_hidden_layers", std::nullopt, max_layers);
  shape.num_attention_heads = config.count("num_attention_heads");
  shape.num_kv_heads = config.count("num_key_value_heads", shape.num_attention_heads);
  shape.max_positions = config.count("max_position_embeddings");
  config.require(config.find("head_dim") || head_dim || shape.hidden_size % shape.num_attention_heads == 0,
                 "hidden_size ", shape.hidden_size, " is not a multiple of num_attention_heads ",
                 shape.num_attention_heads, " and there is no head_dim");
  shape.head_dim = config.count("head_dim", head_dim.value_or(shape.hidden_size / shape.num_attention_heads));
  config.require(shape.num_attention_heads % shape.num_kv_heads == 0, "num_attention_heads ", shape.num_attention_heads,
                 " is not a multiple of num_key_value_heads ", shape.num_kv_heads);
  config.accept("hidden_act", "silu", {"silu", "swish"});
  out.tied = config.flag("tie_word_embeddings", false);
  out.norm_eps = config.positive("rms_norm_eps", 1e-6);
  out.init_std = config.positive("initializer_range", 0.02);
  out.rotary = read_rope(config, shape.head_dim, shape.max_positions);
  out.windows.assign(static_cast<size_t>(shape.num_layers), 0);
  config.set("architectures", JsonArray{Json(architecture)});
  return out;
}

// The attention of layer `index`.
static std::unique_ptr<SelfAttention> make_attention(const LlamaLikeConfig& config, int64_t index,
                                                     std::shared_ptr<const RopeTable> rope) {
  const ModelShape& shape = config.shape;
  const std::string prefix = concat("model.layers.", index, ".self_attn.");
  const int64_t dim = shape.head_dim, queries = shape.num_attention_heads * dim, keys = shape.num_kv_heads * dim;
  auto out = std::make_unique<SelfAttention>();
  out->qkv = Linear({{prefix + "q_proj", queries}, {prefix + "k_proj", keys}, {prefix + "v_proj", keys}},
                    shape.hidden_size, config.qkv_bias, config.init_std);
  out->output = Linear({{prefix + "o_proj", shape.hidden_size}}, queries, config.output_bias, config.init_std);
  if (config.qk_norm) {
    out->q_norm = Norm::rms(prefix + "q_norm", dim, config.norm_eps).weight;
    out->k_norm = Norm::rms(prefix + "k_norm", dim, config.norm_eps).weight;
  }
  out->heads = {shape.num_attention_heads, shape.num_kv_heads, dim, dim, static_cast<float>(config.norm_eps)};
  out->scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)));
  out->window = config.windows[static_cast<size_t>(index)];
  out->rope = std::move(rope);
  out->kv_layer = static_cast<size_t>(index);
  return out;
}

static std::unique_ptr<GatedMlp> make_mlp(const LlamaLikeConfig& config, int64_t index) {
  const std::string prefix = concat("model.layers.", index, ".mlp.");
  const int64_t width = config.shape.hidden_size, inner = config.shape.intermediate_size;
  auto out = std::make_unique<GatedMlp>();
  out->gate_up =
      Linear({{prefix + "gate_proj", inner}, {prefix + "up_proj", inner}}, width, config.mlp_bias, config.init_std);
  out->down = Linear({{prefix + "down_proj", width}}, inner, config.mlp_bias, config.init_std);
  return out;
}

TransformerParts llama_like_parts(const LlamaLikeConfig& config) {
  TransformerParts parts{.shape = config.shape, .config = config.resolved};
  const int64_t width = config.shape.hidden_size;
  parts.make_embedding_and_lm_head("model.embed_tokens", config.tied, config.init_std);
  const auto rope = std::make_shared<RopeTable>(RopeTable{config.rotary, config.shape.max_positions});
  parts.ropes = {rope};
  for (int64_t i = 0; i < config.shape.num_layers; ++i) {
    const std::string prefix = concat("model.layers.", i, ".");
    DecoderLayer layer;
    layer.mixer.before = Norm::rms(prefix + "input_layernorm", width, config.norm_eps);
    layer.mixer.sublayer = make_attention(config, i, rope);
    layer.mlp.before = Norm::rms(prefix + "post_attention_layernorm", width, config.norm_eps);
    layer.mlp.sublayer = make_mlp(config, i);
    parts.layers.push_back(std::move(layer));
  }
  parts.final_norm = Norm::rms("model.norm", width, config.norm_eps);
  return parts;
}

std::unique_ptr<Model> make_llama_like(const LlamaLikeConfig& config) {
  return make_transformer(llama_like_parts(config));
}

}  // namespace hone
