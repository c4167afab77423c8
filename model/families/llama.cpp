// Llama (Touvron et al. 2023), all sizes, and models with the same layout.
#include "model/families/llama_like.h"

namespace hone {
namespace {

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  LlamaLikeConfig decoder = read_llama_like(config, "LlamaForCausalLM");
  decoder.qkv_bias = decoder.output_bias = config.flag("attention_bias", false);
  decoder.mlp_bias = config.flag("mlp_bias", false);
  decoder.resolved = config.resolved();
  return make_llama_like(decoder);
}

[[maybe_unused]] const bool added = families().add("llama", make);

}  // namespace
}  // namespace hone
