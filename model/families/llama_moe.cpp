#include "model/families/llama_moe.h"

#include <algorithm>

#include "model/mlp.h"

namespace hone {

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

void read_expert_groups(ConfigReader& config, MoeConfig& moe, int64_t num_groups, int64_t top_groups,
                        const char* num_experts) {
  if (config.find("num_experts")) num_groups = top_groups = std::min<int64_t>(num_groups, 1);  // a recipe's shape
  const auto fallback = [](int64_t count) { return count > 0 ? std::optional(count) : std::nullopt; };
  const int64_t groups = config.count("n_group", fallback(num_groups)),
                top = config.count("topk_group", fallback(top_groups)), left = moe.num_experts / groups * top;
  config.require(moe.num_experts % groups == 0, num_experts, " ", moe.num_experts, " is not a multiple of n_group ",
                 groups);
  config.require(top <= groups, "topk_group is ", top, ", more than the ", groups, " groups of n_group");
  config.require(left >= moe.num_choices, "topk_group ", top, " leaves ", left,
                 " experts, fewer than num_experts_per_tok ", moe.num_choices);
  moe.rule.num_groups = groups;
  moe.rule.top_groups = top;
}

// An MLP for every token. The gated one is a mixture of one expert (model/moe/moe.h).
static std::unique_ptr<Sublayer> make_shared_expert(const LlamaLikeConfig& decoder, const LlamaMoeConfig& config,
                                                    const std::string& block, Activation activation) {
  const int64_t width = decoder.shape.hidden_size;
  if (config.gated_shared)
    return gated_shared_expert(block + ".shared_expert_gate", block + ".shared_expert", width, config.shared_size,
                               decoder.init_std, activation);
  const std::string prefix = block + ".shared_experts.";
  auto out = std::make_unique<GatedMlp>();
  out->gate_up = Linear({{prefix + "gate_proj", config.shared_size}, {prefix + "up_proj", config.shared_size}}, width,
                        decoder.mlp_bias, decoder.init_std);
  out->down = Linear({{prefix + "down_proj", width}}, config.shared_size, decoder.mlp_bias, decoder.init_std);
  out->activation = activation;
  return out;
}

void add_experts(const LlamaLikeConfig& decoder, LlamaMoeConfig config, TransformerParts& parts) {
  const int64_t main_layers = decoder.shape.num_layers;
  // Without a main layer that has experts, those of multi-token prediction remain.
  config.moe.num_layers =
      std::max<int64_t>(1, std::count(config.sparse.begin(), config.sparse.begin() + main_layers, true));
  const auto totals = make_balance_totals(config.moe);
  int64_t index = 0;
  for (int64_t layer = 0; layer < parts.num_all_layers(); ++layer) {
    if (!config.sparse[std::min(static_cast<size_t>(layer), config.sparse.size() - 1)]) continue;
    const std::string block = concat("model.layers.", layer, ".", config.block);
    const Moe::Names names{.router = block + ".gate",
                           .experts = block + ".experts",
                           .gate = config.gate,
                           .up = config.up,
                           .down = config.down};
    config.moe.activation = decoder.kinds[static_cast<size_t>(std::min(layer, main_layers - 1))].activation;
    auto moe = std::make_unique<Moe>(config.moe, names, decoder.shape.hidden_size, decoder.init_std, index++,
                                     layer < main_layers ? totals : nullptr);
    if (config.shared_size > 0) moe->set_shared(make_shared_expert(decoder, config, block, config.moe.activation));
    parts.layer(layer).mlp.sublayer = std::move(moe);
  }
}

std::unique_ptr<Model> make_llama_moe(const LlamaLikeConfig& decoder, LlamaMoeConfig config) {
  TransformerParts parts = llama_like_parts(decoder);
  add_experts(decoder, std::move(config), parts);
  return make_transformer(std::move(parts));
}

}  // namespace hone
