// Gemma 2 (Gemma Team 2024): alternating sliding windows, soft-caps of the scores and of the logits.
#include "model/gemma.h"

namespace hone {
namespace {

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  LlamaLikeConfig decoder = read_gemma(config, "Gemma2ForCausalLM", true);
  decoder.attention_softcap = config.positive_or_none("attn_logit_softcapping", 50);
  decoder.shape.logit_softcap = static_cast<float>(config.positive_or_none("final_logit_softcapping", 30));
  decoder.windows = read_windows(
      config, read_sliding_layers(config, decoder.shape.num_layers, [](int64_t layer) { return layer % 2 == 0; }));
  decoder.resolved = config.resolved();
  return make_llama_like(decoder);
}

[[maybe_unused]] const bool added = families().add("gemma2", make);

}  // namespace
}  // namespace hone
