#include "model/families/latent.h"

#include <algorithm>
#include <cmath>

namespace hone {

// transformers multiplies the scale of attention by the square of YaRN's temperature if mscale_all_dim is set.
static double attention_scale(const LatentConfig& config) {
  const double scale = 1 / std::sqrt(static_cast<double>(config.heads.query()));
  const RopeConfig& rope = config.rope;
  if (rope.scaling == "default" || rope.mscale_all_dim == 0 || rope.factor <= 1) return scale;
  const double temperature = 0.1 * rope.mscale_all_dim * std::log(rope.factor) + 1;
  return scale * temperature * temperature;
}

LatentConfig read_latent(ConfigReader& config, const ModelShape& shape, const LatentDefaults& defaults) {
  LatentConfig out;
  out.heads = {.num_heads = shape.num_attention_heads,
               .rank = config.count("kv_lora_rank", defaults.rank),
               .nope_dim = config.count("qk_nope_head_dim", defaults.nope_dim),
               .rope_dim = config.count("qk_rope_head_dim", defaults.rope_dim),
               .value_dim = config.count("v_head_dim", defaults.value_dim)};
  config.require(out.heads.rope_dim % 2 == 0, "qk_rope_head_dim is ", out.heads.rope_dim, ", wants an even number");
  const bool no_q_latent = config.has("q_lora_rank") ? !config.find("q_lora_rank") : defaults.q_rank == 0;
  if (no_q_latent)
    config.set("q_lora_rank", Json());
  else
    out.q_rank = config.count("q_lora_rank", defaults.q_rank);
  out.bias = config.flag("attention_bias", false);
  out.rope = read_rope(config, out.heads.rope_dim, shape.max_positions);
  out.scale = attention_scale(out);
  return out;
}

void set_latent_heads(const LatentShape& heads, ModelShape& shape) {
  shape.num_kv_heads = 1;
  shape.head_dim = (heads.row() + heads.rank) / 2;
}

std::unique_ptr<LatentAttention> make_latent_attention(const LatentConfig& config, const LlamaLikeConfig& decoder,
                                                       int64_t layer, std::shared_ptr<const RopeTable> rope) {
  constexpr double latent_eps = 1e-6;  // transformers does not take rms_norm_eps here
  const std::string prefix = concat("model.layers.", layer, ".self_attn.");
  const LatentShape& heads = config.heads;
  const int64_t width = decoder.shape.hidden_size, queries = heads.num_heads * heads.query();
  const double std = decoder.init_std;
  auto out = std::make_unique<LatentAttention>();
  if (config.q_rank > 0) {
    out->q_down = Linear({{prefix + "q_a_proj", config.q_rank}}, width, config.bias, std);
    out->q_norm = Norm::rms(prefix + "q_a_layernorm", config.q_rank, latent_eps);
    out->q_up = Linear({{prefix + "q_b_proj", queries}}, config.q_rank, false, std);
  } else {
    out->q_up = Linear({{prefix + "q_proj", queries}}, width, false, std);
  }
  out->kv_down = Linear({{prefix + "kv_a_proj_with_mqa", heads.row()}}, width, config.bias, std);
  out->kv_norm = Norm::rms(prefix + "kv_a_layernorm", heads.rank, latent_eps);
  out->kv_up = Linear({{prefix + "kv_b_proj", heads.num_heads * heads.mapped()}}, heads.rank, false, std);
  out->kv_up.keeps_dtype = true;
  out->output = Linear({{prefix + "o_proj", width}}, heads.num_heads * heads.value_dim, config.bias, std);
  out->heads = heads;
  out->scale = static_cast<float>(config.scale);
  out->window = decoder.windows[static_cast<size_t>(std::min(layer, decoder.shape.num_layers - 1))];
  out->interleaved = config.interleaved;
  out->rope = std::move(rope);
  out->kv_layer = static_cast<size_t>(layer);
  return out;
}

}  // namespace hone
