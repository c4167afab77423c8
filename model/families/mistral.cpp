// Mistral (Jiang et al. 2023): the layout of Llama with sliding-window attention.
#include "model/families/llama_like.h"

namespace hone {
namespace {

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  LlamaLikeConfig decoder = read_llama_like(config, "MistralForCausalLM");
  if (!config.has("sliding_window")) config.set("sliding_window", 4096);  // transformers' default; null is no window
  decoder.windows = read_windows(config, decoder.shape.num_layers, 0);
  decoder.resolved = config.resolved();
  return make_llama_like(decoder);
}

[[maybe_unused]] const bool added = families().add("mistral", make);

}  // namespace
}  // namespace hone
