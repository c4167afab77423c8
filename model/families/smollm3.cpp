// SmolLM3 (Hugging Face 2025): the layout of Llama; every fourth layer has no rotary positions (NoPE).
#include "model/llama_like.h"

namespace hone {
namespace {

// no_rope_layers is 1 for each layer with RoPE, in spite of its name. Without it, every no_rope_layer_interval-th layer
// has none.
std::vector<bool> read_rope_layers(ConfigReader& config, int64_t num_layers) {
  std::vector<bool> out;
  const Json* given = config.find("no_rope_layers");
  if (!given) {
    const int64_t interval = config.count("no_rope_layer_interval", 4);
    for (int64_t layer = 0; layer < num_layers; ++layer) out.push_back((layer + 1) % interval != 0);
  } else {
    config.require(given->is_array() && std::ssize(given->as_array()) >= num_layers,
                   "no_rope_layers wants a list of at least ", num_layers, " numbers");
    for (int64_t layer = 0; layer < num_layers; ++layer) {
      const int64_t has_rope = given->as_array()[static_cast<size_t>(layer)].as_int("no_rope_layers");
      config.require(has_rope == 0 || has_rope == 1, "no_rope_layers contains ", has_rope, ", wants 0 and 1");
      out.push_back(has_rope == 1);
    }
  }
  JsonArray resolved;
  for (const bool has_rope : out) resolved.push_back(Json(int64_t{has_rope}));
  config.set("no_rope_layers", resolved);
  return out;
}

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  LlamaLikeConfig decoder =
      read_llama_like(config, "SmolLM3ForCausalLM", {.num_kv_heads = 4, .tied = true, .rope = {.theta = 2000000}});
  decoder.qkv_bias = decoder.output_bias = config.flag("attention_bias", false);
  decoder.mlp_bias = config.flag("mlp_bias", false);
  const std::vector<bool> rope_layers = read_rope_layers(config, decoder.shape.num_layers);
  for (size_t i = 0; i < rope_layers.size(); ++i) decoder.layer_rope[i] = rope_layers[i] ? 0 : -1;
  const bool slides = config.flag("use_sliding_window", false) && config.find("sliding_window");
  decoder.windows = read_windows(config, read_sliding_layers(config, decoder.shape.num_layers, [&](int64_t layer) {
                                   return slides && !rope_layers[static_cast<size_t>(layer)];
                                 }));
  decoder.resolved = config.resolved();
  return make_llama_like(decoder);
}

[[maybe_unused]] const bool added = families().add("smollm3", make);

}  // namespace
}  // namespace hone
