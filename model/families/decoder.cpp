// hone_decoder: hone's own family. The keys of config.json compose the layers, each from the parts of Llama and its
// relatives (model/families/llama_like.h): placement of norms, activation, gated or plain MLP or experts, grouped-query
// or latent attention, window, RoPE. transformers does not know it.
#include <algorithm>

#include "model/families/latent.h"
#include "model/families/llama_moe.h"

namespace hone {
namespace {

// The keys that compose layers. They are written by hand.
constexpr std::string_view composing_keys[] = {"norm_placement",
                                               "norm_type",
                                               "qk_norm",
                                               "hidden_act",
                                               "mlp_bias",
                                               "attention_bias",
                                               "attn_logit_softcapping",
                                               "final_logit_softcapping",
                                               "layer_types",
                                               "sliding_window",
                                               "partial_rotary_factor",
                                               "rope_interleaved",
                                               "no_rope_layers",
                                               "no_rope_layer_interval",
                                               "num_key_value_heads",
                                               "embedding_scale",
                                               "tie_word_embeddings",
                                               "kv_share",
                                               "attention",
                                               "head_dim",
                                               "kv_lora_rank",
                                               "q_lora_rank",
                                               "qk_nope_head_dim",
                                               "qk_rope_head_dim",
                                               "v_head_dim",
                                               "num_experts",
                                               "num_experts_per_tok",
                                               "moe_intermediate_size",
                                               "n_shared_experts",
                                               "shared_expert_intermediate_size",
                                               "norm_topk_prob",
                                               "scoring_func",
                                               "routed_scaling_factor",
                                               "n_group",
                                               "topk_group",
                                               "router_aux_loss_coef",
                                               "router_aux_loss_scope",
                                               "router_z_loss_coef",
                                               "router_bias_update_rate",
                                               "expert_capacity_factor"};

enum class MlpKind : uint8_t { gated, plain, experts };

struct DecoderConfig {
  LlamaLikeConfig base;
  std::vector<bool> has_latent;  // of each layer: its attention is latent
  LatentConfig latent;           // of these layers
  LlamaMoeConfig experts;        // `sparse`: the layers that have them
  int64_t kv_share = 1;          // neighboring layers that share keys and values

  // The first layer with latent attention, with experts; -1: none.
  int64_t first_latent() const { return first_of(has_latent); }
  int64_t first_sparse() const { return first_of(experts.sparse); }

 private:
  static int64_t first_of(const std::vector<bool>& marked) {
    const auto found = std::ranges::find(marked, true);
    return found == marked.end() ? -1 : found - marked.begin();
  }
};

// True if the words differ in a run of one or two letters.
bool nearly_equal(std::string_view a, std::string_view b) {
  constexpr size_t most_letters = 2;
  const auto shorter = static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()));
  const auto prefix = std::mismatch(a.begin(), a.begin() + shorter, b.begin()).first - a.begin();
  const auto suffix = std::mismatch(a.rbegin(), a.rbegin() + (shorter - prefix), b.rbegin()).first - a.rbegin();
  return a != b && std::max(a.size(), b.size()) - static_cast<size_t>(prefix + suffix) <= most_letters;
}

// A key with a typing error would leave the default without a word. Keys of other families are ignored, and so is
// qk_head_dim, the sum that transformers writes for DeepSeek.
void refuse_typing_errors(const ConfigReader& config) {
  for (const auto& [key, value] : config.resolved().as_object()) {
    if (std::ranges::find(composing_keys, key) != std::end(composing_keys) || key == "qk_head_dim") continue;
    for (const std::string_view known : composing_keys)
      config.require(!nearly_equal(key, known), "unknown key '", key, "'; did you mean '", known, "'?");
  }
}

// The value of `key` for each layer, by its name.
template <class Value>
std::vector<Value> read_choices(ConfigReader& config, const char* key, int64_t num_layers,
                                const std::vector<std::pair<std::string, Value>>& choices) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) names.push_back(name);
  std::vector<Value> out;
  for (const std::string& given : config.text_per_layer(key, names.front().c_str(), num_layers)) {
    const auto found = std::ranges::find(names, given);
    config.require(found != names.end(), key, " '", given, "' is not supported; supported: ", join(names));
    out.push_back(choices[static_cast<size_t>(found - names.begin())].second);
  }
  return out;
}

void read_kinds(ConfigReader& config, DecoderConfig& out) {
  const int64_t num_layers = out.base.shape.num_layers;
  const auto norms = read_choices<NormPlacement>(config, "norm_placement", num_layers,
                                                 {{"pre", NormPlacement::pre},
                                                  {"post", NormPlacement::post},
                                                  {"both", NormPlacement::both},
                                                  {"parallel", NormPlacement::parallel},
                                                  {"parallel_shared", NormPlacement::parallel_shared}});
  const auto mlps = read_choices<MlpKind>(
      config, "mlp", num_layers, {{"gated", MlpKind::gated}, {"plain", MlpKind::plain}, {"experts", MlpKind::experts}});
  const std::vector<std::string> activations = config.text_per_layer("hidden_act", "silu", num_layers);
  for (size_t i = 0; i < mlps.size(); ++i) {
    out.base.kinds[i] = {norms[i], config.activation_of("hidden_act", activations[i]), mlps[i] != MlpKind::plain};
    out.experts.sparse.push_back(mlps[i] == MlpKind::experts);
  }
  out.has_latent = read_choices<bool>(config, "attention", num_layers, {{"grouped", false}, {"latent", true}});
}

// What latent attention lacks, and its heads. Without such a layer its keys are ignored.
void read_latent_layers(ConfigReader& config, DecoderConfig& out) {
  const int64_t layer = out.first_latent();
  if (layer < 0) return;
  const LlamaLikeConfig& base = out.base;
  const auto lacks = [&](bool wanted, const char* what, const char* remedy) {
    config.require(!wanted, what, ", but layer ", layer, " has latent attention, which does not support it; ", remedy);
  };
  lacks(base.qk_norm, "qk_norm is true", "set it to false");
  lacks(base.attention_softcap > 0, "attn_logit_softcapping is set", "remove it");
  lacks(config.find("partial_rotary_factor") && config.positive("partial_rotary_factor") != 1,
        "partial_rotary_factor is not 1", "choose qk_rope_head_dim in its place");
  for (size_t i = 0; i < out.has_latent.size(); ++i)
    config.require(!out.has_latent[i] || base.layer_rope[i] == 0, "layer ", i,
                   " has latent attention, which needs RoPE; set its entry of no_rope_layers to 1");
  config.require(
      config.find("kv_lora_rank"), "layer ", layer,
      " has latent attention, but there is no kv_lora_rank: the size of its latents, for example 4 * head_dim");
  const int64_t dim = base.shape.head_dim;  // the proportions are DeepSeek's
  out.latent = read_latent(config, base.shape,
                           {.rank = std::nullopt,
                            .nope_dim = dim,
                            .rope_dim = std::max<int64_t>(2, dim / 4 * 2),
                            .value_dim = dim,
                            .q_rank = 0});
  out.latent.interleaved = base.rope_interleaved;
}

// The experts of the layers that have them. Without such a layer their keys are ignored.
void read_sparse_mlps(ConfigReader& config, DecoderConfig& out) {
  constexpr int64_t most = int64_t{1} << 24;
  const int64_t layer = out.first_sparse();
  if (layer < 0) return;
  config.require(config.find("num_experts"), "layer ", layer,
                 " has experts, but there is no num_experts; set it (DeepSeek's name, n_routed_experts, is not read)");
  config.require(!out.base.mlp_bias, "mlp_bias is true, but layer ", layer,
                 " has experts, which have no biases; set it to false");
  const std::vector<bool> sparse = std::move(out.experts.sparse);
  out.experts = read_llama_moe(config, out.base, {});
  out.experts.sparse = sparse;
  MoeConfig& moe = out.experts.moe;
  moe.inner_size = config.count("moe_intermediate_size", out.base.shape.intermediate_size);
  const int64_t ungated = config.count("n_shared_experts", 0, max_experts, 0),
                gated = config.count("shared_expert_intermediate_size", 0, most, 0);
  config.require(ungated == 0 || gated == 0, "n_shared_experts is ", ungated, " and shared_expert_intermediate_size ",
                 gated, ": a layer has shared experts without a gate (the first) or with one (the second); remove one");
  out.experts.gated_shared = gated > 0;
  out.experts.shared_size = gated > 0 ? gated : ungated * moe.inner_size;
  config.accept("scoring_func", "softmax", {"softmax", "sigmoid"});
  if (config.text("scoring_func", "softmax") == "sigmoid") moe.rule.scores = RouterScores::sigmoid;
  moe.rule.normalize = config.flag("norm_topk_prob", false);
  moe.rule.scale = static_cast<float>(config.positive("routed_scaling_factor", 1));
  read_expert_groups(config, moe, 1, 1, "num_experts");
}

// A model whose layers all lack RoPE reads none of its keys. Latent attention has a table of its own.
void read_positions(ConfigReader& config, DecoderConfig& out) {
  LlamaLikeConfig& base = out.base;
  const std::vector<bool> rope_layers = read_rope_layers(config, base.shape.num_layers, 0);
  bool grouped = false;
  for (size_t i = 0; i < rope_layers.size(); ++i) {
    base.layer_rope[i] = rope_layers[i] ? 0 : -1;
    grouped = grouped || (rope_layers[i] && !out.has_latent[i]);
  }
  if (std::ranges::find(rope_layers, true) != rope_layers.end())
    base.rope_interleaved = config.flag("rope_interleaved", false);
  read_latent_layers(config, out);
  if (grouped) base.ropes = {read_rope(config, base.shape.head_dim, base.shape.max_positions, {.partial = true})};
  const RopeConfig* const rope = grouped ? &base.ropes.front() : &out.latent.rope;
  if (grouped || out.first_latent() >= 0) base.shape.max_positions = rope_positions(*rope, base.shape.max_positions);
  // The places of latent layers in llama_like_parts() are filled later.
  for (size_t i = 0; i < rope_layers.size(); ++i)
    if (out.has_latent[i]) base.layer_rope[i] = -1;
}

// How many neighboring layers share keys and values. They read the same rotated keys, and their blocks of a KV cache
// live equally long.
int64_t read_sharing(ConfigReader& config, const DecoderConfig& of) {
  const LlamaLikeConfig& decoder = of.base;
  const int64_t num_layers = decoder.shape.num_layers, share = config.count("kv_share", 1, num_layers);
  config.require(share == 1 || decoder.num_mtp_modules == 0,
                 "kv_share above 1 needs num_nextn_predict_layers = 0; it is ", decoder.num_mtp_modules);
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const auto one = static_cast<size_t>(layer), owner = static_cast<size_t>(layer / share * share);
    const bool alone = std::min<int64_t>(layer / share * share + share, num_layers) - layer / share * share == 1;
    config.require(alone || !of.has_latent[one], "kv_share is ", share, ", but layer ", layer,
                   " has latent attention, whose row no other layer can read; set kv_share to 1, or attention of its "
                   "group to \"grouped\"");
    config.require(decoder.windows[one] == decoder.windows[owner], "kv_share is ", share, ", so layers ", owner,
                   " and ", layer, " share keys and values, but their windows are ", decoder.windows[owner], " and ",
                   decoder.windows[one], " (0 = all tokens); give layers of a group the same layer_types");
    config.require(decoder.layer_rope[one] == decoder.layer_rope[owner], "kv_share is ", share, ", so layers ", owner,
                   " and ", layer,
                   " share keys, but one of them has no RoPE; give layers of a group the same "
                   "no_rope_layers");
  }
  return share;
}

// The first layer of a group owns the keys and values; the others project queries alone.
void share_kv(const LlamaLikeConfig& decoder, int64_t share, TransformerParts& parts) {
  const ModelShape& shape = decoder.shape;
  for (int64_t layer = 0; layer < shape.num_layers; ++layer) {
    const int64_t owner = layer / share * share, last = std::min(owner + share, shape.num_layers) - 1;
    if (owner == last) continue;
    auto& attention = static_cast<SelfAttention&>(*parts.layer(layer).mixer.sublayer);
    if (layer == owner) {
      parts.shared_kv.push_back(std::make_shared<SharedKv>(
          SharedKv{.owner = owner, .last = last, .num_kv_heads = shape.num_kv_heads, .head_dim = shape.head_dim}));
    } else {
      const FusedModules queries{
          {concat("model.layers.", layer, ".self_attn.q_proj"), shape.num_attention_heads * shape.head_dim}};
      attention.sharing = layer == last ? SelfAttention::Sharing::last_reader : SelfAttention::Sharing::reader;
      attention.qkv = Linear(queries, shape.hidden_size, decoder.qkv_bias, decoder.init_std);
      attention.k_norm = {};
    }
    attention.shared = parts.shared_kv.back();
    attention.kv_layer = static_cast<size_t>(owner);
  }
}

// Puts latent attention in the place of the layers that have it.
void add_latent(const DecoderConfig& config, TransformerParts& parts) {
  if (config.first_latent() < 0) return;
  const auto rope = std::make_shared<RopeTable>(RopeTable{config.latent.rope, config.base.shape.max_positions});
  parts.ropes.push_back(rope);
  for (int64_t layer = 0; layer < parts.num_all_layers(); ++layer)
    if (config.has_latent[static_cast<size_t>(std::min(layer, config.base.shape.num_layers - 1))])
      parts.layer(layer).mixer.sublayer = make_latent_attention(config.latent, config.base, layer, rope);
  // Code outside of the model reads the largest head.
  ModelShape latent = parts.shape;
  set_latent_heads(config.latent.heads, latent);
  parts.shape.head_dim = std::max(parts.shape.head_dim, latent.head_dim);
  if (std::ranges::find(config.has_latent, false) == config.has_latent.end()) parts.shape = latent;
}

DecoderConfig read_decoder(ConfigReader& config) {
  DecoderConfig out;
  LlamaLikeConfig& base = out.base;
  base = read_llama_like(config, "HoneDecoderForCausalLM", {.reads_activation = false, .reads_rope = false});
  read_kinds(config, out);
  config.accept("norm_type", "rms_norm", {"rms_norm", "layer_norm"});
  base.layer_norm = config.text("norm_type", "rms_norm") == "layer_norm";
  base.qk_norm = config.flag("qk_norm", false);
  base.qkv_bias = base.output_bias = config.flag("attention_bias", false);
  base.mlp_bias = config.flag("mlp_bias", false);
  base.attention_softcap = config.positive_or_none("attn_logit_softcapping", 0);
  base.shape.logit_softcap = static_cast<float>(config.positive_or_none("final_logit_softcapping", 0));
  base.embedding_scale = config.positive("embedding_scale", 1);
  read_positions(config, out);
  base.windows = read_windows(config, base.shape.num_layers, 0);
  out.kv_share = read_sharing(config, out);
  read_sparse_mlps(config, out);
  base.resolved = config.resolved();
  return out;
}

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  refuse_typing_errors(config);
  const DecoderConfig decoder = read_decoder(config);
  TransformerParts parts = llama_like_parts(decoder.base);
  share_kv(decoder.base, decoder.kv_share, parts);
  add_latent(decoder, parts);
  if (decoder.first_sparse() >= 0) add_experts(decoder.base, decoder.experts, parts);
  return make_transformer(std::move(parts));
}

[[maybe_unused]] const bool added = families().add("hone_decoder", make);

}  // namespace
}  // namespace hone
