// hone_decoder: hone's own family. The keys of config.json compose the layers, each from the parts of Llama and its
// relatives (model/families/llama_like.h): placement of norms, activation, gated or plain MLP, window, RoPE.
// transformers does not know it.
#include <algorithm>

#include "model/families/llama_like.h"

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
                                               "kv_share"};

// True if the words differ in a run of one or two letters.
bool nearly_equal(std::string_view a, std::string_view b) {
  constexpr size_t most_letters = 2;
  const auto shorter = static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()));
  const auto prefix = std::mismatch(a.begin(), a.begin() + shorter, b.begin()).first - a.begin();
  const auto suffix = std::mismatch(a.rbegin(), a.rbegin() + (shorter - prefix), b.rbegin()).first - a.rbegin();
  return a != b && std::max(a.size(), b.size()) - static_cast<size_t>(prefix + suffix) <= most_letters;
}

// A key with a typing error would leave the default without a word. Keys of other families are ignored.
void refuse_typing_errors(const ConfigReader& config) {
  for (const auto& [key, value] : config.resolved().as_object()) {
    if (std::ranges::find(composing_keys, key) != std::end(composing_keys)) continue;
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

void read_kinds(ConfigReader& config, LlamaLikeConfig& decoder) {
  const int64_t num_layers = decoder.shape.num_layers;
  const auto norms = read_choices<NormPlacement>(config, "norm_placement", num_layers,
                                                 {{"pre", NormPlacement::pre},
                                                  {"post", NormPlacement::post},
                                                  {"both", NormPlacement::both},
                                                  {"parallel", NormPlacement::parallel},
                                                  {"parallel_shared", NormPlacement::parallel_shared}});
  const auto gated = read_choices<bool>(config, "mlp", num_layers, {{"gated", true}, {"plain", false}});
  const std::vector<std::string> activations = config.text_per_layer("hidden_act", "silu", num_layers);
  for (size_t i = 0; i < decoder.kinds.size(); ++i)
    decoder.kinds[i] = {norms[i], config.activation_of("hidden_act", activations[i]), gated[i]};
}

// A model whose layers all lack RoPE reads none of its keys.
void read_positions(ConfigReader& config, LlamaLikeConfig& decoder) {
  const std::vector<bool> rope_layers = read_rope_layers(config, decoder.shape.num_layers, 0);
  for (size_t i = 0; i < rope_layers.size(); ++i) decoder.layer_rope[i] = rope_layers[i] ? 0 : -1;
  if (std::ranges::find(rope_layers, true) == rope_layers.end()) return;
  decoder.ropes = {read_rope(config, decoder.shape.head_dim, decoder.shape.max_positions, {.partial = true})};
  decoder.shape.max_positions = rope_positions(decoder.ropes.front(), decoder.shape.max_positions);
  decoder.rope_interleaved = config.flag("rope_interleaved", false);
}

// How many neighboring layers share keys and values. They read the same rotated keys, and their blocks of a KV cache
// live equally long.
int64_t read_sharing(ConfigReader& config, const LlamaLikeConfig& decoder) {
  const int64_t num_layers = decoder.shape.num_layers, share = config.count("kv_share", 1, num_layers);
  config.require(share == 1 || decoder.num_mtp_modules == 0,
                 "kv_share above 1 needs num_nextn_predict_layers = 0; it is ", decoder.num_mtp_modules);
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const auto one = static_cast<size_t>(layer), owner = static_cast<size_t>(layer / share * share);
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

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  refuse_typing_errors(config);
  LlamaLikeConfig decoder =
      read_llama_like(config, "HoneDecoderForCausalLM", {.reads_activation = false, .reads_rope = false});
  read_kinds(config, decoder);
  read_positions(config, decoder);
  config.accept("norm_type", "rms_norm", {"rms_norm", "layer_norm"});
  decoder.layer_norm = config.text("norm_type", "rms_norm") == "layer_norm";
  decoder.qk_norm = config.flag("qk_norm", false);
  decoder.qkv_bias = decoder.output_bias = config.flag("attention_bias", false);
  decoder.mlp_bias = config.flag("mlp_bias", false);
  decoder.attention_softcap = config.positive_or_none("attn_logit_softcapping", 0);
  decoder.shape.logit_softcap = static_cast<float>(config.positive_or_none("final_logit_softcapping", 0));
  decoder.embedding_scale = config.positive("embedding_scale", 1);
  decoder.windows = read_windows(config, decoder.shape.num_layers, 0);
  const int64_t share = read_sharing(config, decoder);
  decoder.resolved = config.resolved();
  TransformerParts parts = llama_like_parts(decoder);
  share_kv(decoder, share, parts);
  return make_transformer(std::move(parts));
}

[[maybe_unused]] const bool added = families().add("hone_decoder", make);

}  // namespace
}  // namespace hone
