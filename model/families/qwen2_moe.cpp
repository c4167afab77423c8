// Qwen2-MoE (Qwen1.5-MoE): Qwen2 with experts and one gated shared expert; some layers may be dense.
#include "model/families/llama_moe.h"

namespace hone {
namespace {

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  LlamaLikeConfig decoder = read_llama_like(config, "Qwen2MoeForCausalLM");
  decoder.qkv_bias = config.flag("qkv_bias", true);
  const bool slides = read_use_sliding_window(config) && config.find("sliding_window");
  const int64_t sliding_layers = slides ? config.count("max_window_layers", 28, max_layers, 0) : 0;
  decoder.windows = read_windows(config, read_sliding_layers(config, decoder.shape.num_layers, [&](int64_t layer) {
                                   return layer % 2 == 0 && layer < sliding_layers;
                                 }));
  LlamaMoeConfig moe = read_llama_moe(config, decoder, {.num_experts = 60, .num_choices = 4});
  moe.moe.inner_size = config.count("moe_intermediate_size", 1408);
  moe.moe.rule.normalize = config.flag("norm_topk_prob", false);
  constexpr int64_t most = int64_t{1} << 24;
  moe.shared_size = config.count("shared_expert_intermediate_size", 5632, most, 0);  // 0: no shared expert
  moe.sparse = read_sparse_layers(config, decoder.shape.num_layers);
  decoder.resolved = config.resolved();
  return make_llama_moe(decoder, moe);
}

[[maybe_unused]] const bool added = families().add("qwen2_moe", make);

}  // namespace
}  // namespace hone
