// gpt-oss (OpenAI 2025): experts with biases and a clamped SwiGLU in all layers, attention sinks, sliding windows in
// every other layer, YaRN. Files with experts in MXFP4 are read (model/io/gpt_oss_experts.cpp).
#include "model/attention.h"
#include "model/families/llama_moe.h"

namespace hone {
namespace {

// The config of the weights as they are in memory: without the quantization of the file.
Json without_quantization(const Json& json, std::string_view source) {
  const Json* given = json.is_object() ? json.find("quantization_config") : nullptr;
  if (!given) return json;
  if (!given->is_null()) {
    HONE_CHECK(given->is_object(), source, ": quantization_config is ", given->kind_name(), ", wants an object");
    const Json* method = given->find("quant_method");
    const std::string name = method && method->is_string() ? method->as_string() : "(none)";
    HONE_CHECK(name == "mxfp4", source, ": quantization_config.quant_method '", name,
               "' is not supported; supported: mxfp4");
  }
  Json out = json;
  std::erase_if(out.object_ref(), [](const auto& member) { return member.first == "quantization_config"; });
  return out;
}

// What transformers sets if config.json leaves it out.
void set_defaults(ConfigReader& config) {
  if (!config.find("rope_parameters") && !config.find("rope_scaling"))
    config.set("rope_scaling", JsonObject{{"rope_type", "yarn"},
                                          {"factor", 32.0},
                                          {"beta_fast", 32.0},
                                          {"beta_slow", 1.0},
                                          {"truncate", false},
                                          {"original_max_position_embeddings", int64_t{4096}}});
  if (!config.has("sliding_window")) config.set("sliding_window", int64_t{128});
  // An older name in OpenAI's own files.
  if (const Json* choices = config.find("experts_per_token"); choices && !config.find("num_experts_per_tok"))
    config.set("num_experts_per_tok", *choices);
}

LlamaLikeConfig read_decoder(ConfigReader& config) {
  LlamaLikeConfig out = read_llama_like(
      config, "GptOssForCausalLM", {.head_dim = 64, .num_kv_heads = 8, .norm_eps = 1e-5, .rope = {.theta = 150000}});
  out.qkv_bias = out.output_bias = config.flag("attention_bias", true);
  out.windows = read_windows(
      config, read_sliding_layers(config, out.shape.num_layers, [](int64_t layer) { return layer % 2 == 0; }));
  return out;
}

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(without_quantization(json, source), source);
  set_defaults(config);
  LlamaLikeConfig decoder = read_decoder(config);
  MoeConfig moe = read_llama_moe(config, decoder, {.num_experts = 128, .num_choices = 4}).moe;
  moe.rule.scores = RouterScores::softmax_of_top;
  moe.biases = true;
  moe.clamped = ClampedGlu{.limit = static_cast<float>(config.positive("swiglu_limit", 7)),
                           .alpha = static_cast<float>(config.positive("swiglu_alpha", 1.702))};
  moe.num_layers = decoder.shape.num_layers;
  decoder.resolved = config.resolved();
  const auto totals = make_balance_totals(moe);
  TransformerParts parts = llama_like_parts(decoder);
  for (int64_t layer = 0; layer < parts.num_all_layers(); ++layer) {
    DecoderLayer& to = parts.layer(layer);
    const std::string prefix = concat("model.layers.", layer, ".");
    dynamic_cast<SelfAttention&>(*to.mixer.sublayer).sinks = {
        .slices = {{prefix + "self_attn.sinks", decoder.shape.num_attention_heads}},
        .shape = {decoder.shape.num_attention_heads},
        .decay = false,
        .init_std = decoder.init_std};
    to.mlp.sublayer = std::make_unique<Moe>(
        moe, Moe::Names{.router = prefix + "mlp.router", .experts = prefix + "mlp.experts"}, decoder.shape.hidden_size,
        decoder.init_std, layer, layer < moe.num_layers ? totals : nullptr);
  }
  return make_transformer(std::move(parts));
}

[[maybe_unused]] const bool added = families().add("gpt_oss", make);

}  // namespace
}  // namespace hone
