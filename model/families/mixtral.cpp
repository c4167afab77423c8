// Mixtral (Jiang et al. 2024): Mistral with experts; the weights of a token's experts sum to 1.
#include "model/families/llama_moe.h"

namespace hone {
namespace {

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  LlamaLikeConfig decoder =
      read_llama_like(config, "MixtralForCausalLM", {.num_kv_heads = 8, .norm_eps = 1e-5, .rope = {.theta = 1000000}});
  // One window for all layers: transformers does not read layer_types here.
  if (config.find("sliding_window")) decoder.windows.assign(decoder.windows.size(), config.count("sliding_window"));
  LlamaMoeConfig moe = read_llama_moe(config, decoder, {.num_experts = 8, .num_choices = 2});
  moe.moe.rule.normalize = true;
  moe.block = "block_sparse_moe";
  moe.gate = "w1";
  moe.up = "w3";
  moe.down = "w2";
  const Json* jitter = config.find("router_jitter_noise");
  config.require(!jitter || jitter->as_double(config.place("router_jitter_noise")) == 0,
                 "router_jitter_noise other than 0 is not supported");
  decoder.resolved = config.resolved();
  return make_llama_moe(decoder, moe);
}

[[maybe_unused]] const bool added = families().add("mixtral", make);

}  // namespace
}  // namespace hone
