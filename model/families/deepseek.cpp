#include "model/families/deepseek.h"

#include <algorithm>

namespace hone {
namespace {

void read_attention(ConfigReader& config, DeepseekConfig& out) {
  ModelShape& shape = out.decoder.shape;
  config.set("num_key_value_heads", shape.num_attention_heads);  // each head has keys of its own
  out.latent = read_latent(config, shape);
  shape.max_positions = rope_positions(out.latent.rope, shape.max_positions);
  config.set("head_dim", out.latent.heads.rope_dim);
  set_latent_heads(out.latent.heads, shape);
}

void read_experts(ConfigReader& config, const DeepseekDefaults& defaults, DeepseekConfig& out) {
  MoeConfig& moe = out.experts.moe;
  // transformers also reads num_local_experts. A recipe says num_experts.
  const Json *own = config.find("n_routed_experts"), *local = config.find("num_local_experts");
  config.require(!own || !local || *own == *local, "n_routed_experts is ", own ? own->dump() : "",
                 " and num_local_experts is ", local ? local->dump() : "", "; they are two names of one number");
  const char* other_name = local ? "num_local_experts" : "num_experts";
  const bool named_otherwise = !own && config.find(other_name);
  moe.num_experts = config.count(named_otherwise ? other_name : "n_routed_experts", defaults.num_experts, max_experts);
  config.set("n_routed_experts", moe.num_experts);
  moe.num_choices = config.count("num_experts_per_tok", defaults.num_choices);
  config.require(moe.num_experts > 1, "n_routed_experts is 1, wants 2 or more");
  config.require(moe.num_choices <= moe.num_experts, "num_experts_per_tok is ", moe.num_choices, ", more than the ",
                 moe.num_experts, " experts");
  moe.inner_size = config.count("moe_intermediate_size", defaults.expert_size);
  out.experts.shared_size = moe.inner_size * config.count("n_shared_experts", defaults.shared_experts, max_experts, 0);
  out.experts.gated_shared = false;
  const int64_t num_layers = out.decoder.shape.num_layers,
                dense =
                    std::min(config.count("first_k_dense_replace", defaults.dense_layers, max_layers, 0), num_layers);
  // The entry after those of the main layers is that of multi-token prediction.
  out.experts.sparse.assign(static_cast<size_t>(num_layers) + 1, true);
  std::fill_n(out.experts.sparse.begin(), dense, false);
  config.require(config.count("moe_layer_freq", 1) == 1, "moe_layer_freq other than 1 is not supported");
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

std::unique_ptr<Model> make_deepseek(const DeepseekConfig& config) {
  TransformerParts parts = llama_like_parts(config.decoder);
  const auto rope = std::make_shared<RopeTable>(RopeTable{config.latent.rope, config.decoder.shape.max_positions});
  parts.ropes = {rope};
  for (int64_t layer = 0; layer < parts.num_all_layers(); ++layer)
    parts.layer(layer).mixer.sublayer = make_latent_attention(config.latent, config.decoder, layer, rope);
  add_experts(config.decoder, config.experts, parts);
  return make_transformer(std::move(parts));
}

}  // namespace hone
