// GGUF's architecture phi3: q, k, v and gate, up are one tensor each, RoPE may be partial, and the factors of longrope
// are tensors. llama.cpp takes the short ones for contexts up to the original one, as hone does.
#include <algorithm>
#include <cmath>

#include "model/io/gguf/llama_like.h"

namespace hone {
namespace {

constexpr const char *short_name = "rope_factors_short.weight", *long_name = "rope_factors_long.weight";
constexpr const char* original_key = "rope.scaling.original_context_length";
constexpr GgufLlamaOptions options{.partial_rope = true, .rope = {.longrope = true}};

const std::vector<GgufTensorName> own_names = {
    {"blk.*.attn_norm", "model.layers.*.input_layernorm"},
    {"blk.*.attn_qkv", "model.layers.*.self_attn.qkv_proj"},
    {"blk.*.ffn_norm", "model.layers.*.post_attention_layernorm"},
    {"blk.*.ffn_up", "model.layers.*.mlp.gate_up_proj"},
    {"blk.*.ffn_down", "model.layers.*.mlp.down_proj"},
};

// The factor on cosines and sines that transformers derives from the two contexts.
double attention_factor(int64_t positions, int64_t original) {
  const double factor = static_cast<double>(positions) / static_cast<double>(original);
  return factor > 1 ? std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original))) : 1;
}

Json read_list(const GgufKeys& keys, const char* name, int64_t count) {
  const GgufTensor* tensor = keys.file().find_tensor(name);
  keys.require(tensor, "tensor '", name, "' is missing");
  JsonArray out;
  for (const float factor : read_rope_factors(*tensor, keys, 2 * count)) out.emplace_back(static_cast<double>(factor));
  return out;
}

Json read_config(const GgufKeys& keys, bool tied) {
  Json out = read_gguf_llama(keys, tied, "phi3", options);
  if (keys.has("attention.sliding_window") && keys.number("attention.sliding_window", 0) > 0)
    out.set("sliding_window", keys.count("attention.sliding_window"));
  const int64_t positions = count_of(out, "max_position_embeddings"), original = keys.count(original_key, positions);
  out.set("original_max_position_embeddings", original);
  if (!keys.file().find_tensor(long_name) && !keys.file().find_tensor(short_name)) return out;
  const int64_t pairs = keys.count("rope.dimension_count", count_of(out, "head_dim")) / 2;
  out.set("rope_scaling", JsonObject{{"type", "longrope"},
                                     {"short_factor", read_list(keys, short_name, pairs)},
                                     {"long_factor", read_list(keys, long_name, pairs)}});
  const double given = keys.number("rope.scaling.attn_factor", 1), wanted = attention_factor(positions, original);
  keys.require(std::abs(given - wanted) <= 1e-4 * wanted, "key '", keys.full("rope.scaling.attn_factor"), "' is ",
               given, "; with contexts of ", original, " and ", positions, " tokens it must be ", wanted);
  return out;
}

void write_factors(const Json& scaling, const char* key, const char* name, GgufWriter& out) {
  std::vector<float> factors;
  for (const Json& factor : scaling.at(key, "rope_scaling").as_array())
    factors.push_back(static_cast<float>(factor.as_double(key)));
  const GgufType& f32 = gguf_type_named("F32");
  out.add_tensor(name, f32, {std::ssize(factors)}, [factors, &f32] { return encode_gguf(f32, factors); });
}

void write_keys(const Json& config, GgufWriter& out) {
  require_square_heads(config, out);
  write_gguf_llama(config, out, options);
  if (const Json* window = config.find("sliding_window"); window && window->is_int())
    out.count("attention.sliding_window", window->as_int());
  const int64_t original = count_of(config, "original_max_position_embeddings");
  const Json* scaling = config.find("rope_scaling");
  out.count(original_key, original);
  if (!scaling || !scaling->is_object()) return;
  HONE_CHECK(!scaling->find("factor") && !scaling->find("attention_factor"),
             "export: rope_scaling of config.json has a factor; llama.cpp's phi3 derives it from "
             "max_position_embeddings and original_max_position_embeddings");
  out.number("rope.scaling.attn_factor", attention_factor(count_of(config, "max_position_embeddings"), original));
  write_factors(*scaling, "long_factor", long_name, out);
  write_factors(*scaling, "short_factor", short_name, out);
}

[[maybe_unused]] const bool added =
    gguf_architectures().add("phi3", {.model_types = {"phi3"},
                                      .names = joined({own_names, gguf_attention_names()}),
                                      .config = read_config,
                                      .write_keys = write_keys});

}  // namespace
}  // namespace hone
