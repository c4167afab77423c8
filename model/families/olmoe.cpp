// OLMoE (Muennighoff et al. 2024): 64 small experts in each layer, and an RMSNorm over all heads of q, and of k. With
// clip_qkv, q and k after these norms, and v, are clamped.
#include "model/families/llama_moe.h"

namespace hone {
namespace {

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  LlamaLikeConfig decoder = read_llama_like(config, "OlmoeForCausalLM", {.norm_eps = 1e-5});
  decoder.full_qk_norm = true;
  decoder.qkv_bias = decoder.output_bias = config.flag("attention_bias", false);
  decoder.qkv_clip = config.positive_or_none("clip_qkv", 0);
  LlamaMoeConfig moe = read_llama_moe(config, decoder, {.num_experts = 64, .num_choices = 8, .balance_coef = 0.01});
  moe.moe.rule.normalize = config.flag("norm_topk_prob", false);
  decoder.resolved = config.resolved();
  return make_llama_moe(decoder, moe);
}

[[maybe_unused]] const bool added = families().add("olmoe", make);

}  // namespace
}  // namespace hone
