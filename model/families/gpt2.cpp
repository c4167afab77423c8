// GPT-2 (Radford et al. 2019): LayerNorm, learned positions, tanh GELU. The file stores matrices transposed (Conv1D),
// and q, k and v as one.
#include <cmath>

#include "model/config_reader.h"
#include "model/mlp.h"
#include "model/transformer.h"

namespace hone {
namespace {

// The file stores [in, out].
Linear conv1d(const std::string& module, int64_t outputs, int64_t inputs, double init_std) {
  Linear out({{module, outputs}}, inputs, true, init_std);
  out.weight.transposed = true;
  return out;
}

// As in transformers, the names of the other families stand for absent ones of GPT-2.
int64_t read_size(ConfigReader& config, const char* key, const char* other, int64_t fallback,
                  int64_t most = int64_t{1} << 24) {
  return config.count(key, config.find(key) || !config.find(other) ? fallback : config.count(other), most);
}

ModelShape read_shape(ConfigReader& config) {
  ModelShape shape{.vocab_size = config.count("vocab_size", 50257),
                   .hidden_size = read_size(config, "n_embd", "hidden_size", 768),
                   .num_layers = read_size(config, "n_layer", "num_hidden_layers", 12, max_layers),
                   .num_attention_heads = read_size(config, "n_head", "num_attention_heads", 12)};
  config.require(shape.hidden_size % shape.num_attention_heads == 0, "n_embd ", shape.hidden_size,
                 " is not a multiple of n_head ", shape.num_attention_heads);
  shape.num_kv_heads = shape.num_attention_heads;
  shape.head_dim = shape.hidden_size / shape.num_attention_heads;
  shape.intermediate_size = config.count("n_inner", 4 * shape.hidden_size);
  shape.max_positions = read_size(config, "n_positions", "max_position_embeddings", 1024);
  return shape;
}

// The last matrix of each residual branch starts with the smaller output_std, so that the sum over all layers does not
// grow (section 2.3 of the paper).
DecoderLayer make_layer(const ModelShape& shape, int64_t index, Activation activation, double eps, double std,
                        double output_std) {
  const std::string prefix = concat("transformer.h.", index, ".");
  const int64_t width = shape.hidden_size;
  auto attention = std::make_unique<SelfAttention>();
  attention->qkv = conv1d(prefix + "attn.c_attn", 3 * width, width, std);
  attention->output = conv1d(prefix + "attn.c_proj", width, width, output_std);
  attention->heads = {
      .num_heads = shape.num_attention_heads, .num_kv_heads = shape.num_attention_heads, .head_dim = shape.head_dim};
  attention->scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_dim)));
  attention->kv_layer = static_cast<size_t>(index);
  auto mlp = std::make_unique<PlainMlp>();
  mlp->up = conv1d(prefix + "mlp.c_fc", shape.intermediate_size, width, std);
  mlp->down = conv1d(prefix + "mlp.c_proj", width, shape.intermediate_size, output_std);
  mlp->activation = activation;
  DecoderLayer layer;
  layer.mixer.before = Norm::layer(prefix + "ln_1", width, eps);
  layer.mixer.sublayer = std::move(attention);
  layer.mlp.before = Norm::layer(prefix + "ln_2", width, eps);
  layer.mlp.sublayer = std::move(mlp);
  return layer;
}

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  TransformerParts parts{.shape = read_shape(config)};
  const ModelShape& shape = parts.shape;
  const Activation activation = config.activation("activation_function", "gelu_new");
  config.accept("scale_attn_weights", true);
  config.accept("scale_attn_by_inverse_layer_idx", false);
  config.accept("add_cross_attention", false);
  const double eps = config.positive("layer_norm_epsilon", 1e-5), std = config.positive("initializer_range", 0.02);
  const double output_std = std / std::sqrt(2.0 * static_cast<double>(shape.num_layers));
  parts.make_embedding_and_lm_head("transformer.wte", config.flag("tie_word_embeddings", true), std);
  parts.positions = parts.table("transformer.wpe", shape.max_positions, std);
  parts.positions.lookup = true;
  for (int64_t i = 0; i < shape.num_layers; ++i)
    parts.layers.push_back(make_layer(shape, i, activation, eps, std, output_std));
  parts.final_norm = Norm::layer("transformer.ln_f", shape.hidden_size, eps);
  config.set("architectures", JsonArray{Json("GPT2LMHeadModel")});
  parts.config = config.resolved();
  return make_transformer(std::move(parts));
}

[[maybe_unused]] const bool added = families().add("gpt2", make);

}  // namespace
}  // namespace hone
