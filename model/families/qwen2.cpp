// Qwen2 and Qwen2.5: the layout of Llama with biases on q, k and v.
#include "model/families/llama_like.h"

namespace hone {
namespace {

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  LlamaLikeConfig decoder = read_llama_like(config, "Qwen2ForCausalLM");
  decoder.qkv_bias = true;
  if (read_use_sliding_window(config))
    decoder.windows =
        read_windows(config, decoder.shape.num_layers, config.count("max_window_layers", 28, max_layers, 0));
  decoder.resolved = config.resolved();
  return make_llama_like(decoder);
}

[[maybe_unused]] const bool added = families().add("qwen2", make);

}  // namespace
}  // namespace hone
