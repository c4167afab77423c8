// Phi-3, Phi-3.5 and Phi-4 (Microsoft 2024): the layout of Llama with q, k, v and gate, up in one tensor each, sliding
// windows, partial rotary positions (Phi-4-mini) and longrope. Texts are limited to the original context of longrope,
// unless config.json has use_long_rope.
#include "model/families/llama_like.h"

namespace hone {
namespace {

// Version 4 of transformers wants three members. It refuses the others, which version 5 reads.
void set_rope_scaling(ConfigReader& config, const RopeConfig& rope) {
  if (rope.scaling != "longrope") return;
  const Json& parameters = *config.find("rope_parameters");
  Json scaling = JsonObject{{"type", "longrope"},
                            {"short_factor", parameters.at("short_factor")},
                            {"long_factor", parameters.at("long_factor")}};
  for (const char* key : {"factor", "attention_factor"})
    if (const Json* value = parameters.find(key); value && !value->is_null()) scaling.set(key, *value);
  config.set("rope_scaling", std::move(scaling));
}

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  LlamaLikeConfig decoder =
      read_llama_like(config, "Phi3ForCausalLM", {.norm_eps = 1e-5, .rope = {.partial = true, .phi = true}});
  decoder.fused_names = true;
  if (config.find("sliding_window")) decoder.windows.assign(decoder.windows.size(), config.count("sliding_window"));
  set_rope_scaling(config, decoder.ropes.front());
  decoder.resolved = config.resolved();
  return make_llama_like(decoder);
}

[[maybe_unused]] const bool added = families().add("phi3", make);

}  // namespace
}  // namespace hone
