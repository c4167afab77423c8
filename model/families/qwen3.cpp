// Qwen3 (dense): an RMSNorm on each head of q and k before RoPE; head_dim is 128 at every width.
#include "model/families/llama_like.h"

namespace hone {
namespace {

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  LlamaLikeConfig decoder = read_llama_like(config, "Qwen3ForCausalLM", {.head_dim = 128});
  decoder.qk_norm = true;
  decoder.qkv_bias = decoder.output_bias = config.flag("attention_bias", false);
  if (read_use_sliding_window(config))
    decoder.windows =
        read_windows(config, decoder.shape.num_layers, config.count("max_window_layers", 28, max_layers, 0));
  decoder.resolved = config.resolved();
  return make_llama_like(decoder);
}

[[maybe_unused]] const bool added = families().add("qwen3", make);

}  // namespace
}  // namespace hone
