// OLMo 2 (Ai2 2024): the layout of Llama with RMSNorm after each sublayer instead of before it, and an RMSNorm over all
// heads of q, and of k, before RoPE.
#include "model/families/llama_like.h"

namespace hone {
namespace {

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  LlamaLikeConfig decoder = read_llama_like(config, "Olmo2ForCausalLM", {.norm_eps = 1e-5});
  for (LayerKind& kind : decoder.kinds) kind.norms = NormPlacement::post;
  decoder.full_qk_norm = true;
  decoder.qkv_bias = decoder.output_bias = config.flag("attention_bias", false);
  decoder.resolved = config.resolved();
  return make_llama_like(decoder);
}

[[maybe_unused]] const bool added = families().add("olmo2", make);

}  // namespace
}  // namespace hone
