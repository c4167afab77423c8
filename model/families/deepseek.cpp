#include "model/families/deepseek.h"

#include <algorithm>
#include <cmath>

#include "model/mlp.h"

namespace hone {
namespace {

// transformers multiplies the scale of attention by the square of YaRN's temperature if mscale_all_dim is set.
double attention_scale(const DeepseekConfig& config) {
  const double scale = 1 / std::sqrt(static_cast<double>(config.heads.query()));
  const RopeConfig& rope = config.rope;
  if (rope.scaling == "default" || rope.mscale_all_dim == 0 || rope.factor <= 1) return scale;
  const double temperature = 0.1 * rope.mscale_all_dim * std::log(rope.factor) + 1;
  return scale * temperature * temperature;
}

void read_attention(ConfigReader& config, DeepseekConfig& out) {
  ModelShape& shape = out.decoder.shape;
  config.set("num_key_value_heads", shape.num_attention_heads);  // each head has keys of its own
  out.heads = {.num_heads = shape.num_attention_heads,
               .rank = config.count("kv_lora_rank", 512),
               .nope_dim = config.count("qk_nope_head_dim", 128),
               .rope_dim = config.count("qk_rope_head_dim", 64),
               .value_dim = config.count("v_head_dim", 128)};
  config.require(out.heads.rope_dim % 2 == 0, "qk_rope_head_dim is ", out.heads.rope_dim, ", wants an even number");
  // null: queries have no latent. Absent: that of DeepSeek-V3.
  const bool no_q_latent = config.has("q_lora_rank") && !config.find("q_lora_rank");
  out.q_rank = no_q_latent ? 0 : config.count("q_lora_rank", 1536);
  out.attention_bias = config.flag("attention_bias", false);
  out.rope = read_rope(config, out.heads.rope_dim, shape.max_positions);
  shape.max_positions = rope_positions(out.rope, shape.max_positions);
  out.scale = attention_scale(out);
  config.set("head_dim", out.heads.rope_dim);
  // One row for all heads. Scores and sums of a pair of tokens cost row() + rank products per head.
  shape.num_kv_heads = 1;
  shape.head_dim = (out.heads.row() + out.heads.rank) / 2;
}

void read_experts(ConfigReader& config, const DeepseekDefaults& defaults, DeepseekConfig& out) {
  constexpr int64_t max_experts = 4096;
  MoeConfig& moe = out.moe;
  // A recipe says num_experts.
  const bool other_name = config.find("num_experts") && !config.find("n_routed_experts");
  moe.num_experts = config.count(other_name ? "num_experts" : "n_routed_experts", defaults.num_experts, max_experts);
  config.set("n_routed_experts", moe.num_experts);
  moe.num_choices = config.count("num_experts_per_tok", defaults.num_choices);
  config.require(moe.num_experts > 1, "n_routed_experts is 1, wants 2 or more");
  config.require(moe.num_choices <= moe.num_experts, "num_experts_per_tok is ", moe.num_choices, ", more than the ",
                 moe.num_experts, " experts");
  moe.inner_size = config.count("moe_intermediate_size", defaults.expert_size);
  moe.activation = out.decoder.kinds.front().activation;
  out.shared_size = moe.inner_size * config.count("n_shared_experts", defaults.shared_experts, max_experts, 0);
  out.dense_layers = std::min(config.count("first_k_dense_replace", defaults.dense_layers, max_layers, 0),
                              out.decoder.shape.num_layers);
  // Without a main layer that has experts, those of multi-token prediction remain.
  moe.num_layers = std::max<int64_t>(1, out.decoder.shape.num_layers - out.dense_layers);
  config.require(config.count("moe_layer_freq", 1) == 1, "moe_layer_freq other than 1 is not supported");
}

std::unique_ptr<LatentAttention> make_attention(const DeepseekConfig& config, int64_t layer,
                                                std::shared_ptr<const RopeTable> rope) {
  constexpr double latent_eps = 1e-6;  // transformers does not take rms_norm_eps here
  const std::string prefix = concat("model.layers.", layer, ".self_attn.");
  const LatentShape& heads = config.heads;
  const int64_t width = config.decoder.shape.hidden_size, queries = heads.num_heads * heads.query();
  const double std = config.decoder.init_std;
  auto out = std::make_unique<LatentAttention>();
  if (config.q_rank > 0) {
    out->q_down = Linear({{prefix + "q_a_proj", config.q_rank}}, width, config.attention_bias, std);
    out->q_norm = Norm::rms(prefix + "q_a_layernorm", config.q_rank, latent_eps);
    out->q_up = Linear({{prefix + "q_b_proj", queries}}, config.q_rank, false, std);
  } else {
    out->q_up = Linear({{prefix + "q_proj", queries}}, width, false, std);
  }
  out->kv_down = Linear({{prefix + "kv_a_proj_with_mqa", heads.row()}}, width, config.attention_bias, std);
  out->kv_norm = Norm::rms(prefix + "kv_a_layernorm", heads.rank, latent_eps);
  out->kv_up = Linear({{prefix + "kv_b_proj", heads.num_heads * heads.mapped()}}, heads.rank, false, std);
  out->kv_up.keeps_dtype = true;
  out->output = Linear({{prefix + "o_proj", width}}, heads.num_heads * heads.value_dim, config.attention_bias, std);
  out->heads = heads;
  out->scale = static_cast<float>(config.scale);
  out->interleaved = config.interleaved;
  out->rope = std::move(rope);
  out->kv_layer = static_cast<size_t>(layer);
  return out;
}

std::unique_ptr<Moe> make_experts(const DeepseekConfig& config, int64_t layer, std::shared_ptr<BalanceTotals> totals) {
  const std::string block = concat("model.layers.", layer, ".mlp");
  const int64_t width = config.decoder.shape.hidden_size;
  const double std = config.decoder.init_std;
  auto out = std::make_unique<Moe>(config.moe, Moe::Names{.router = block + ".gate", .experts = block + ".experts"},
                                   width, std, layer - config.dense_layers, std::move(totals));
  if (config.shared_size == 0) return out;
  const std::string shared = block + ".shared_experts.";
  auto mlp = std::make_unique<GatedMlp>();
  mlp->gate_up = Linear({{shared + "gate_proj", config.shared_size}, {shared + "up_proj", config.shared_size}}, width,
                        config.decoder.mlp_bias, std);
  mlp->down = Linear({{shared + "down_proj", width}}, config.shared_size, config.decoder.mlp_bias, std);
  mlp->activation = config.moe.activation;
  out->set_shared(std::move(mlp));
  return out;
}

}  // namespace

DeepseekConfig read_deepseek(ConfigReader& config, const char* architecture, const DeepseekDefaults& defaults) {
  DeepseekConfig out;
  out.decoder = read_llama_like(config, architecture, {.head_dim = 64, .reads_rope = false});
  out.decoder.layer_rope.assign(out.decoder.layer_rope.size(), -1);
  read_attention(config, out);
  read_experts(config, defaults, out);
  return out;
}

void read_expert_groups(ConfigReader& config, MoeConfig& moe, int64_t num_groups, int64_t top_groups) {
  if (config.find("num_experts")) num_groups = top_groups = std::min<int64_t>(num_groups, 1);  // a recipe's shape
  const auto fallback = [](int64_t count) { return count > 0 ? std::optional(count) : std::nullopt; };
  const int64_t groups = config.count("n_group", fallback(num_groups)),
                top = config.count("topk_group", fallback(top_groups)), left = moe.num_experts / groups * top;
  config.require(moe.num_experts % groups == 0, "n_routed_experts ", moe.num_experts, " is not a multiple of n_group ",
                 groups);
  config.require(top <= groups, "topk_group is ", top, ", more than the ", groups, " groups of n_group");
  config.require(left >= moe.num_choices, "topk_group ", top, " leaves ", left,
                 " experts, fewer than num_experts_per_tok ", moe.num_choices);
  moe.rule.num_groups = groups;
  moe.rule.top_groups = top;
}

std::unique_ptr<Model> make_deepseek(DeepseekConfig config) {
  TransformerParts parts = llama_like_parts(config.decoder);
  const auto rope = std::make_shared<RopeTable>(RopeTable{config.rope, config.decoder.shape.max_positions});
  parts.ropes = {rope};
  const auto totals = make_balance_totals(config.moe);
  for (int64_t layer = 0; layer < parts.num_all_layers(); ++layer) {
    DecoderLayer& of = parts.layer(layer);
    const bool is_main = layer < config.decoder.shape.num_layers;
    of.mixer.sublayer = make_attention(config, layer, rope);
    if (layer >= config.dense_layers) of.mlp.sublayer = make_experts(config, layer, is_main ? totals : nullptr);
  }
  return make_transformer(std::move(parts));
}

}  // namespace hone
