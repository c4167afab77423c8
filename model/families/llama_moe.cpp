#include "model/families/llama_moe.h"

#include <algorithm>

namespace hone {

constexpr int64_t max_experts = 4096;

LlamaMoeConfig read_llama_moe(ConfigReader& config, const LlamaLikeConfig& decoder, const LlamaMoeDefaults& defaults) {
  LlamaMoeConfig out;
  // transformers 4 and 5 differ in the name. Both are written.
  const char* name = config.find("num_experts") ? "num_experts" : "num_local_experts";
  out.moe.num_experts = config.count(name, defaults.num_experts, max_experts);
  config.set("num_experts", out.moe.num_experts);
  config.set("num_local_experts", out.moe.num_experts);
  out.moe.num_choices = config.count("num_experts_per_tok", defaults.num_choices);
  config.require(out.moe.num_choices <= out.moe.num_experts, "num_experts_per_tok is ", out.moe.num_choices,
                 ", more than the ", out.moe.num_experts, " experts");
  out.moe.inner_size = decoder.shape.intermediate_size;
  out.moe.activation = decoder.kinds.front().activation;
  read_balance(config, out.moe, defaults.balance_coef);
  out.sparse.assign(static_cast<size_t>(decoder.shape.num_layers), true);
  return out;
}

std::vector<bool> read_sparse_layers(ConfigReader& config, int64_t num_layers) {
  const int64_t step = config.count("decoder_sparse_step", 1);
  std::vector<bool> out;
  for (int64_t layer = 0; layer < num_layers; ++layer) out.push_back((layer + 1) % step == 0);
  const Json* dense = config.find("mlp_only_layers");
  if (!dense) {
    config.set("mlp_only_layers", JsonArray());
    return out;
  }
  config.require(dense->is_array(), "mlp_only_layers is ", dense->kind_name(), ", wants a list of layers");
  for (const Json& one : dense->as_array()) {
    const int64_t layer = one.as_int(config.place("mlp_only_layers"));
    config.require(layer >= 0 && layer < num_layers, "mlp_only_layers contains ", layer, ", the model has ", num_layers,
                   " layers");
    out[static_cast<size_t>(layer)] = false;
  }
  return out;
}

std::unique_ptr<Model> make_llama_moe(const LlamaLikeConfig& decoder, LlamaMoeConfig config) {
  config.moe.num_layers = std::ranges::count(config.sparse, true);
  const auto totals = make_balance_totals(config.moe);
  TransformerParts parts = llama_like_parts(decoder);
  int64_t index = 0;
  for (int64_t layer = 0; layer < parts.num_all_layers(); ++layer) {
    const bool is_main = layer < decoder.shape.num_layers;
    if (is_main ? !config.sparse[static_cast<size_t>(layer)] : !config.sparse.back()) continue;
    const std::string block = concat("model.layers.", layer, ".", config.block);
    const Moe::Names names{.router = block + ".gate",
                           .experts = block + ".experts",
                           .gate = config.gate,
                           .up = config.up,
                           .down = config.down};
    const int64_t width = decoder.shape.hidden_size;
    auto moe = std::make_unique<Moe>(config.moe, names, width, decoder.init_std, index++, is_main ? totals : nullptr);
    if (config.shared_size > 0)
      moe->set_shared(gated_shared_expert(block + ".shared_expert_gate", block + ".shared_expert", width,
                                          config.shared_size, config.moe.activation, decoder.init_std));
    parts.layer(layer).mlp.sublayer = std::move(moe);
  }
  return make_transformer(std::move(parts));
}

}  // namespace hone
