// Qwen3-MoE: Qwen3 with experts; some layers may be dense.
#include "model/families/llama_moe.h"

namespace hone {
namespace {

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  LlamaLikeConfig decoder = read_llama_like(config, "Qwen3MoeForCausalLM");
  decoder.qk_norm = true;
  decoder.qkv_bias = decoder.output_bias = config.flag("attention_bias", false);
  // One window for all layers: transformers does not read layer_types here.
  if (read_use_sliding_window(config) && config.find("sliding_window"))
    decoder.windows.assign(decoder.windows.size(), config.count("sliding_window"));
  LlamaMoeConfig moe = read_llama_moe(config, decoder, {.num_experts = 128, .num_choices = 8});
  moe.moe.inner_size = config.count("moe_intermediate_size", 768);
  moe.moe.rule.normalize = config.flag("norm_topk_prob", false);
  moe.sparse = read_sparse_layers(config, decoder.shape.num_layers);
  decoder.resolved = config.resolved();
  return make_llama_moe(decoder, moe);
}

[[maybe_unused]] const bool added = families().add("qwen3_moe", make);

}  // namespace
}  // namespace hone
