// GPT-2 (Radford et al. 2019): LayerNorm, learned positions, tanh GELU. The file stores matrices transposed (Conv1D),
// and q, k and v as one.
#include <cmath>

#include "model/config_reader.h"
#include "model/transformer.h"

namespace hone {
namespace {

// The file stores [in, out].
Linear conv1d(const std::string& module, int64_t outputs, int64_t inputs, double init_std) {
  Linear out({{module, outputs}}, inputs, true, init_std);
  out.weight.transposed = true;
  return out;
}

class Gpt2 : public Transformer<LayerNorm, GeluMlp> {
 public:
  explicit Gpt2(ConfigReader& config) {
    const int64_t width = config.count("n_embd", 768);
    shape_ = {.vocab_size = config.count("vocab_size", 50257),
              .hidden_size = width,
              .num_layers = config.count("n_layer", 12, max_layers),
              .num_attention_heads = config.count("n_head", 12)};
    config.require(width % shape_.num_attention_heads == 0, "n_embd ", width, " is not a multiple of n_head ",
                   shape_.num_attention_heads);
    shape_.num_kv_heads = shape_.num_attention_heads;
    shape_.head_dim = width / shape_.num_attention_heads;
    shape_.intermediate_size = config.count("n_inner", 4 * width);
    shape_.max_positions = config.count("n_positions", 1024);
    config.accept("activation_function", "gelu_new", {"gelu_new", "gelu_pytorch_tanh"});
    config.accept("scale_attn_weights", true);
    config.accept("scale_attn_by_inverse_layer_idx", false);
    config.accept("add_cross_attention", false);
    const double eps = config.positive("layer_norm_epsilon", 1e-5), std = config.positive("initializer_range", 0.02);
    // The last matrix of each residual branch starts smaller, so that the sum over all layers does not grow
    // (section 2.3 of the paper).
    const double output_std = std / std::sqrt(2.0 * static_cast<double>(shape_.num_layers));
    make_embedding_and_lm_head("transformer.wte", config.flag("tie_word_embeddings", true), std);
    positions_ = table("transformer.wpe", shape_.max_positions, std);
    positions_.lookup = true;
    for (int64_t i = 0; i < shape_.num_layers; ++i) {
      const std::string prefix = concat("transformer.h.", i, ".");
      auto& layer = layers_.emplace_back();
      layer.attention_norm = LayerNorm(prefix + "ln_1", width, eps);
      layer.attention.qkv = conv1d(prefix + "attn.c_attn", 3 * width, width, std);
      layer.attention.output = conv1d(prefix + "attn.c_proj", width, width, output_std);
      layer.attention.heads = {.num_heads = shape_.num_attention_heads,
                               .num_kv_heads = shape_.num_attention_heads,
                               .head_dim = shape_.head_dim};
      layer.attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape_.head_dim)));
      layer.mlp_norm = LayerNorm(prefix + "ln_2", width, eps);
      layer.mlp.up = conv1d(prefix + "mlp.c_fc", shape_.intermediate_size, width, std);
      layer.mlp.down = conv1d(prefix + "mlp.c_proj", width, shape_.intermediate_size, output_std);
    }
    final_norm_ = LayerNorm("transformer.ln_f", width, eps);
    config.set("architectures", JsonArray{Json("GPT2LMHeadModel")});
    config_ = config.resolved();
  }
};

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  return std::make_unique<Gpt2>(config);
}

[[maybe_unused]] const bool added = families().add("gpt2", make);

}  // namespace
}  // namespace hone
