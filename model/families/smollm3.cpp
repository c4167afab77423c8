// SmolLM3 (Hugging Face 2025): the layout of Llama; every fourth layer has no rotary positions (NoPE).
#include "model/families/llama_like.h"

namespace hone {
namespace {

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  LlamaLikeConfig decoder =
      read_llama_like(config, "SmolLM3ForCausalLM", {.num_kv_heads = 4, .tied = true, .rope = {.theta = 2000000}});
  decoder.qkv_bias = decoder.output_bias = config.flag("attention_bias", false);
  decoder.mlp_bias = config.flag("mlp_bias", false);
  const std::vector<bool> rope_layers = read_rope_layers(config, decoder.shape.num_layers, 4);
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
