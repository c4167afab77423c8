#include "model/llama_like.h"

#include <cmath>

#include "model/transformer.h"

namespace hone {

namespace {

class LlamaLike : public Transformer<RmsNorm, GatedMlp> {
 public:
  explicit LlamaLike(const LlamaLikeConfig& config);

 private:
  void allocate_tables(Context& context) override;

  RopeConfig rotary_;
  Buffer rotary_bytes_;
};

}  // namespace

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

LlamaLike::LlamaLike(const LlamaLikeConfig& config) : rotary_(config.rotary) {
  shape_ = config.shape;
  config_ = config.resolved;
  const int64_t width = shape_.hidden_size, dim = shape_.head_dim, queries = shape_.num_attention_heads * dim,
                keys = shape_.num_kv_heads * dim;
  make_embedding_and_lm_head("model.embed_tokens", config.tied, config.init_std);
  for (int64_t i = 0; i < shape_.num_layers; ++i) {
    const std::string prefix = concat("model.layers.", i, "."), attention = prefix + "self_attn.",
                      mlp = prefix + "mlp.";
    auto& layer = layers_.emplace_back();
    layer.attention_norm = RmsNorm(prefix + "input_layernorm", width, config.norm_eps);
    layer.attention.qkv =
        Linear({{attention + "q_proj", queries}, {attention + "k_proj", keys}, {attention + "v_proj", keys}}, width,
               config.qkv_bias, config.init_std);
    layer.attention.output = Linear({{attention + "o_proj", width}}, queries, config.output_bias, config.init_std);
    if (config.qk_norm) {
      layer.attention.q_norm = RmsNorm(attention + "q_norm", dim, config.norm_eps).weight;
      layer.attention.k_norm = RmsNorm(attention + "k_norm", dim, config.norm_eps).weight;
    }
    layer.attention.heads = {shape_.num_attention_heads, shape_.num_kv_heads, dim, dim,
                             static_cast<float>(config.norm_eps)};
    layer.attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)));
    layer.attention.window = config.windows[static_cast<size_t>(i)];
    layer.mlp_norm = RmsNorm(prefix + "post_attention_layernorm", width, config.norm_eps);
    layer.mlp.gate_up =
        Linear({{mlp + "gate_proj", shape_.intermediate_size}, {mlp + "up_proj", shape_.intermediate_size}}, width,
               config.mlp_bias, config.init_std);
    layer.mlp.down = Linear({{mlp + "down_proj", width}}, shape_.intermediate_size, config.mlp_bias, config.init_std);
  }
  final_norm_ = RmsNorm("model.norm", width, config.norm_eps);
}

void LlamaLike::allocate_tables(Context& context) {
  const int64_t positions = shape_.max_positions, dim = rotary_.dim;
  rotary_bytes_ = Buffer(context.device(), static_cast<size_t>(positions * dim) * size_of(DType::f32));
  const Tensor table(rotary_bytes_.data(), DType::f32, context.kind(), {positions, dim});
  if (context.kind() != DeviceKind::meta) {
    std::vector<float> host(static_cast<size_t>(positions * dim));
    const Tensor view = host_view(std::span(host)).view({positions, dim});
    rope_table(view, rotary_);
    context.copy(table, view);
  }
  for (auto& layer : layers_) layer.attention.cos_sin = table;
}

std::unique_ptr<Model> make_llama_like(const LlamaLikeConfig& config) { return std::make_unique<LlamaLike>(config); }

}  // namespace hone
