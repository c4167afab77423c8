// GGUF's architectures of Llama's layout with experts in all layers: qwen3moe, qwen2moe, olmoe and gpt-oss.
#include "core/base/log.h"
#include "model/io/gguf/llama_like.h"

namespace hone {
namespace {

constexpr GgufLlamaOptions options{.experts = true};
constexpr int64_t gpt_oss_period = 2;  // every second layer has no window
constexpr double gpt_oss_limit = 7, gpt_oss_alpha = 1.702;

const std::vector<GgufTensorName> norms = {
    {"blk.*.attn_norm", "model.layers.*.input_layernorm"},
    {"blk.*.ffn_norm", "model.layers.*.post_attention_layernorm"},
};
const std::vector<GgufTensorName> shared_names = {
    {.gguf = "blk.*.ffn_gate_inp_shexp", .hugging_face = "model.layers.*.mlp.shared_expert_gate", .one_row = true},
    {"blk.*.ffn_gate_shexp", "model.layers.*.mlp.shared_expert.gate_proj"},
    {"blk.*.ffn_up_shexp", "model.layers.*.mlp.shared_expert.up_proj"},
    {"blk.*.ffn_down_shexp", "model.layers.*.mlp.shared_expert.down_proj"},
};
const std::vector<GgufTensorName> gpt_oss_names = {
    {"blk.*.attn_norm", "model.layers.*.input_layernorm"},
    {"blk.*.post_attention_norm", "model.layers.*.post_attention_layernorm"},
    {.gguf = "blk.*.attn_sinks.weight", .hugging_face = "model.layers.*.self_attn.sinks", .complete = true},
    {"blk.*.ffn_gate_inp", "model.layers.*.mlp.router"},
    {"blk.*.ffn_gate_exps", "model.layers.*.mlp.experts.#.gate_proj"},
    {"blk.*.ffn_up_exps", "model.layers.*.mlp.experts.#.up_proj"},
    {"blk.*.ffn_down_exps", "model.layers.*.mlp.experts.#.down_proj"},
};

Json read_mixture(const GgufKeys& keys, bool tied, const char* model_type, const GgufLlamaOptions& with = options) {
  Json out = read_gguf_llama(keys, tied, model_type, with);
  read_gguf_experts(keys, out);
  return out;
}

Json read_qwen3(const GgufKeys& keys, bool tied) {
  Json out = read_mixture(keys, tied, "qwen3_moe");
  out.set("moe_intermediate_size", keys.count("expert_feed_forward_length"));
  out.set("norm_topk_prob", true);
  out.set("attention_bias", false);
  return out;
}

Json read_qwen2(const GgufKeys& keys, bool tied) {
  Json out = read_mixture(keys, tied, "qwen2_moe");
  out.set("moe_intermediate_size", keys.count("expert_feed_forward_length"));
  out.set("shared_expert_intermediate_size", keys.count("expert_shared_feed_forward_length"));
  out.set("norm_topk_prob", false);
  return out;
}

Json read_olmoe(const GgufKeys& keys, bool tied) {
  Json out = read_mixture(keys, tied, "olmoe");
  out.set("norm_topk_prob", false);
  return out;
}

// llama.cpp's file does not say that the ramp of YaRN has no whole bounds; all published models are such.
constexpr GgufLlamaOptions gpt_oss_options{.activation = nullptr, .experts = true, .rope = {.untruncated = true}};

Json read_gpt_oss(const GgufKeys& keys, bool tied) {
  Json out = read_mixture(keys, tied, "gpt_oss", gpt_oss_options);
  check_window_pattern(keys, gpt_oss_period);
  out.set("intermediate_size", keys.count("expert_feed_forward_length"));
  out.set("sliding_window", keys.count("attention.sliding_window"));
  if (!out.find("rope_scaling")) out.set("rope_scaling", JsonObject{{"rope_type", "default"}});
  return out;
}

void require_experts_everywhere(const Json& config, const GgufWriter& out) {
  require_setting(config, "decoder_sparse_step", Json(int64_t{1}), out);
  require_setting(config, "mlp_only_layers", Json(JsonArray()), out);
}

void write_qwen3(const Json& config, GgufWriter& out) {
  require_experts_everywhere(config, out);
  require_setting(config, "norm_topk_prob", Json(true), out);
  require_setting(config, "attention_bias", Json(false), out);
  write_gguf_llama(config, out, options);
  write_gguf_experts(config, "moe_intermediate_size", out);
}

void write_qwen2(const Json& config, GgufWriter& out) {
  require_experts_everywhere(config, out);
  require_setting(config, "norm_topk_prob", Json(false), out);
  require_setting(config, "qkv_bias", Json(true), out);
  require_square_heads(config, out);
  const int64_t shared = count_of(config, "shared_expert_intermediate_size");
  HONE_CHECK(shared > 0,
             "export: shared_expert_intermediate_size is 0 in config.json; llama.cpp's qwen2moe always "
             "has a shared expert");
  write_gguf_llama(config, out, options);
  write_gguf_experts(config, "moe_intermediate_size", out);
  out.count("expert_shared_feed_forward_length", shared);
}

void write_olmoe(const Json& config, GgufWriter& out) {
  require_setting(config, "norm_topk_prob", Json(false), out);
  require_setting(config, "attention_bias", Json(false), out);
  require_setting(config, "clip_qkv", Json(), out);
  require_setting(config, "num_key_value_heads", config.at("num_attention_heads", "config.json"), out);
  require_square_heads(config, out);
  write_gguf_llama(config, out, options);
  write_gguf_experts(config, "intermediate_size", out);
}

void write_gpt_oss(const Json& config, GgufWriter& out) {
  require_setting(config, "attention_bias", Json(true), out);
  require_setting(config, "swiglu_limit", Json(gpt_oss_limit), out);
  require_setting(config, "swiglu_alpha", Json(gpt_oss_alpha), out);
  require_window_pattern(config, gpt_oss_period, out);
  write_gguf_llama(config, out, gpt_oss_options);
  write_gguf_experts(config, "intermediate_size", out);
  out.count("attention.sliding_window", count_of(config, "sliding_window"));
}

[[maybe_unused]] const bool added = [] {
  auto& all = gguf_architectures();
  const std::vector<GgufTensorName> names = joined({gguf_attention_names(), norms, gguf_expert_names()});
  const auto add = [&](const char* name, const char* family, std::vector<GgufTensorName> own, auto config, auto write) {
    return all.add(name, {.model_types = {family},
                          .names = std::move(own),
                          .always_has_head = true,
                          .config = config,
                          .write_keys = write});
  };
  add("qwen3moe", "qwen3_moe", names, read_qwen3, write_qwen3);
  add("qwen2moe", "qwen2_moe", joined({names, shared_names}), read_qwen2, write_qwen2);
  add("olmoe", "olmoe", names, read_olmoe, write_olmoe);
  return add("gpt-oss", "gpt_oss", joined({gguf_attention_names(), gpt_oss_names}), read_gpt_oss, write_gpt_oss);
}();

}  // namespace
}  // namespace hone
