// Gemma 3 (Gemma Team 2025), text only: five layers with a sliding window for each layer with full attention, RoPE with
// another base in each kind, an RMSNorm on each head of q and k.
#include "model/families/gemma.h"

namespace hone {
namespace {

constexpr double global_theta = 1000000, local_theta = 10000;

// RoPE of the layers with full attention, then of those with a window. Version 4 of transformers writes rope_theta,
// rope_scaling and rope_local_base_freq; version 5 rope_parameters with an object for each kind. Resolves both.
std::vector<RopeConfig> read_ropes(ConfigReader& config, const ModelShape& shape) {
  const Json* five = config.find("rope_parameters");
  config.require(!five || five->is_object(), "rope_parameters wants an object");
  const auto object_of = [&](const char* kind, const char* theta_key, double theta, bool scales) {
    const Json* given = five ? five->find(kind) : nullptr;
    const bool has_five = given && !given->is_null();
    Json out = has_five ? *given : JsonObject{{"rope_type", "default"}};
    config.require(out.is_object(), "rope_parameters.", kind, " is ", out.kind_name(), ", wants an object");
    if (const Json* scaling = config.find("rope_scaling"); scales && scaling) {
      config.require(scaling->is_object(), "rope_scaling is ", scaling->kind_name(), ", wants an object");
      for (const auto& [key, value] : scaling->as_object())  // transformers adds it to the other
        out.set(key == "type" ? "rope_type" : key, value);   // the older name
    }
    if (!out.find("rope_theta")) out.set("rope_theta", config.positive(theta_key, theta));
    return out;
  };
  const Json full = object_of("full_attention", "rope_theta", global_theta, true),
             sliding = object_of("sliding_attention", "rope_local_base_freq", local_theta, false);
  const auto read = [&](const Json& object, const char* kind, double theta) {
    return read_rope_object(config, object, concat("rope_parameters.", kind), shape.head_dim, shape.max_positions,
                            {.theta = theta});
  };
  std::vector<RopeConfig> out{read(full, "full_attention", global_theta),
                              read(sliding, "sliding_attention", local_theta)};
  Json four = full;
  std::erase_if(four.object_ref(), [](const auto& member) { return member.first == "rope_theta"; });
  config.set("rope_theta", out[0].theta);
  config.set("rope_local_base_freq", out[1].theta);
  config.set("rope_scaling", out[0].scaling == "default" ? Json() : four);
  config.set("rope_parameters", JsonObject{{"full_attention", full}, {"sliding_attention", sliding}});
  return out;
}

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  LlamaLikeConfig decoder = read_gemma(config, "Gemma3ForCausalLM", false);
  decoder.qk_norm = true;
  decoder.ropes = read_ropes(config, decoder.shape);
  for (const RopeConfig& rope : decoder.ropes)
    decoder.shape.max_positions = rope_positions(rope, decoder.shape.max_positions);
  // transformers reads attn_logit_softcapping for this family and does not apply it.
  decoder.shape.logit_softcap = static_cast<float>(config.positive_or_none("final_logit_softcapping", 0));
  const int64_t pattern = config.find("layer_types") ? 1 : config.count("sliding_window_pattern", 6);
  const std::vector<bool> sliding =
      read_sliding_layers(config, decoder.shape.num_layers, [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  decoder.windows = read_windows(config, sliding);
  for (size_t i = 0; i < sliding.size(); ++i) decoder.layer_rope[i] = sliding[i] ? 1 : 0;
  decoder.resolved = config.resolved();
  return make_llama_like(decoder);
}

[[maybe_unused]] const bool added = families().add("gemma3_text", make);

}  // namespace
}  // namespace hone
