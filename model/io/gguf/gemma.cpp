// GGUF's architectures gemma2 and gemma3 (its text model). The scale of attention is not in the file: llama.cpp takes
// the head size, or hidden_size / heads for the largest model of each, which it knows by its number of layers.
#include <algorithm>
#include <cmath>

#include "model/io/gguf/llama_like.h"

namespace hone {
namespace {

constexpr int64_t gemma2_period = 2, gemma3_period = 6;         // the last layer of each period has no window
constexpr int64_t gemma2_largest = 46, gemma3_largest = 62;     // layers of the models of 27B
constexpr double gemma2_score_cap = 50, gemma2_logit_cap = 30;  // what llama.cpp takes if the file lacks them
constexpr double local_theta = 10000;                           // of gemma3's layers with a window
constexpr GgufLlamaOptions options{.activation_key = "hidden_activation", .activation = "gelu_pytorch_tanh"};

const std::vector<GgufTensorName> norms = {
    {"blk.*.attn_norm", "model.layers.*.input_layernorm"},
    {"blk.*.post_attention_norm", "model.layers.*.post_attention_layernorm"},
    {"blk.*.ffn_norm", "model.layers.*.pre_feedforward_layernorm"},
    {"blk.*.post_ffw_norm", "model.layers.*.post_feedforward_layernorm"},
};

// query_pre_attn_scalar as llama.cpp has it.
int64_t scale_of(const Json& config, int64_t largest) {
  if (count_of(config, "num_hidden_layers") != largest) return count_of(config, "head_dim");
  return count_of(config, "hidden_size") / count_of(config, "num_attention_heads");
}

Json read_gemma(const GgufKeys& keys, bool tied, const char* model_type, int64_t largest, int64_t period) {
  Json out = read_gguf_llama(keys, tied, model_type, options);
  check_window_pattern(keys, period);
  out.set("query_pre_attn_scalar", scale_of(out, largest));
  out.set("attention_bias", false);
  return out;
}

Json read_gemma2(const GgufKeys& keys, bool tied) {
  Json out = read_gemma(keys, tied, "gemma2", gemma2_largest, gemma2_period);
  out.set("sliding_window", keys.count("attention.sliding_window", 4096));
  out.set("attn_logit_softcapping", keys.number("attn_logit_softcapping", gemma2_score_cap));
  out.set("final_logit_softcapping", keys.number("final_logit_softcapping", gemma2_logit_cap));
  return out;
}

Json read_gemma3(const GgufKeys& keys, bool tied) {
  Json out = read_gemma(keys, tied, "gemma3_text", gemma3_largest, gemma3_period);
  out.set("sliding_window", keys.count("attention.sliding_window"));
  out.set("rope_local_base_freq", keys.number("rope.freq_base_swa", local_theta));
  keys.require(keys.number("final_logit_softcapping", 0) == 0, "key '", keys.full("final_logit_softcapping"),
               "' is not supported in this architecture");
  return out;
}

void write_gemma(const Json& config, GgufWriter& out, int64_t largest, int64_t period) {
  require_setting(config, "attention_bias", Json(false), out);
  require_setting(config, "tie_word_embeddings", Json(true), out);
  require_window_pattern(config, period, out);
  const auto scale = static_cast<double>(scale_of(config, largest));
  HONE_CHECK(number_of(config, "query_pre_attn_scalar") == scale, "export: query_pre_attn_scalar is ",
             number_of(config, "query_pre_attn_scalar"), " in config.json; llama.cpp computes this ",
             out.architecture(), " with ", scale, " only");
  write_gguf_llama(config, out, options);
  out.count("attention.sliding_window", count_of(config, "sliding_window"));
}

void write_gemma2(const Json& config, GgufWriter& out) {
  const auto cap = [&](const char* key) {
    const Json* value = config.find(key);
    HONE_CHECK(value && value->is_number() && value->as_double() > 0, "export: ", key,
               " is missing in config.json; llama.cpp computes gemma2 with a soft-cap only");
    out.number(key, value->as_double());
  };
  write_gemma(config, out, gemma2_largest, gemma2_period);
  cap("attn_logit_softcapping");
  cap("final_logit_softcapping");
}

void write_gemma3(const Json& config, GgufWriter& out) {
  const Json* cap = config.find("final_logit_softcapping");
  HONE_CHECK(!cap || cap->is_null() || cap->as_double() == 0,
             "export: llama.cpp's gemma3 has no soft-cap of logits; final_logit_softcapping of config.json is ",
             cap->dump());
  const Json& sliding = config.at("rope_parameters", "config.json").at("sliding_attention", "rope_parameters");
  const Json* scaling = sliding.find("rope_type");
  HONE_CHECK(!scaling || *scaling == Json("default"),
             "export: llama.cpp's gemma3 has no RoPE scaling in layers with a window");
  write_gemma(config, out, gemma3_largest, gemma3_period);
  out.number("rope.freq_base_swa", number_of(config, "rope_local_base_freq"));
}

[[maybe_unused]] const bool added = [] {
  auto& all = gguf_architectures();
  const std::vector<GgufTensorName> names = joined({gguf_attention_names(), norms, gguf_mlp_names()});
  all.add("gemma2", {.model_types = {"gemma2"},
                     .names = names,
                     .adds_one_to_norms = true,
                     .config = read_gemma2,
                     .write_keys = write_gemma2});
  return all.add("gemma3", {.model_types = {"gemma3_text"},
                            .names = names,
                            .adds_one_to_norms = true,
                            .config = read_gemma3,
                            .write_keys = write_gemma3});
}();

}  // namespace
}  // namespace hone
