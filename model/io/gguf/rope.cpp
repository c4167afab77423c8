#include "model/io/gguf/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "core/base/log.h"
#include "core/io/gguf/gguf_writer.h"

namespace hone {
namespace {

constexpr std::string_view factors_name = "rope_freqs.weight";
// llama.cpp's converter writes a tenth of mscale_all_dim, and its loader expects it.
constexpr const char* mscale_key = "rope.scaling.yarn_log_multiplier";
constexpr double mscale_unit = 0.1;
constexpr const char* truncate_key = "rope.scaling.yarn_truncate";  // hone's own: true where false is usual

struct Llama3Scaling {
  double factor = 1, low = 1, high = 4, original = 8192;
};

// llama.cpp divides the frequency of each pair by these factors.
std::vector<float> llama3_factors(const Llama3Scaling& scaling, double theta, int64_t head_dim) {
  std::vector<float> out;
  for (int64_t i = 0; i < head_dim; i += 2) {
    const double frequency = 1 / std::pow(theta, static_cast<double>(i) / static_cast<double>(head_dim));
    const double turns = scaling.original * frequency / (2 * std::numbers::pi);
    const double keep = std::clamp((turns - scaling.low) / (scaling.high - scaling.low), 0.0, 1.0);
    out.push_back(static_cast<float>(1 / ((1 - keep) / scaling.factor + keep)));
  }
  return out;
}

bool reproduces(const Llama3Scaling& scaling, const std::vector<float>& factors, double theta, int64_t head_dim) {
  const std::vector<float> made = llama3_factors(scaling, theta, head_dim);
  return std::ranges::equal(made, factors, [](float a, float b) { return std::abs(a - b) <= 1e-4f * std::abs(b); });
}

// The settings that give these factors. The file lacks them; low_freq_factor is 1 in every published model, and only
// its ratios to the others matter.
std::optional<Llama3Scaling> fit_llama3(const std::vector<float>& factors, double theta, int64_t head_dim) {
  Llama3Scaling scaling{.factor = static_cast<double>(*std::ranges::max_element(factors))};
  for (const double high : {4.0, 2.0, 8.0, 16.0})
    for (double original = 8192; original >= 64; original /= 2)
      for (const double candidate : {original, 8192 * 8192 / original}) {
        scaling.high = high, scaling.original = candidate;
        if (reproduces(scaling, factors, theta, head_dim)) return scaling;
      }
  return std::nullopt;
}

void read_llama3(const GgufTensor& tensor, const GgufKeys& keys, double theta, int64_t head_dim, Json& config) {
  const std::vector<float> factors = read_rope_factors(tensor, keys, head_dim);
  if (std::ranges::all_of(factors, [](float x) { return x == 1; })) return;
  const std::optional<Llama3Scaling> scaling = fit_llama3(factors, theta, head_dim);
  keys.require(scaling.has_value(), "tensor '", tensor.name,
               "': these factors are not those of Llama 3.1's scaling; others are not supported");
  config.set("rope_scaling", JsonObject{{"rope_type", "llama3"},
                                        {"factor", scaling->factor},
                                        {"low_freq_factor", scaling->low},
                                        {"high_freq_factor", scaling->high},
                                        {"original_max_position_embeddings", static_cast<int64_t>(scaling->original)}});
}

// llama.cpp's scale of attention has the temperature of mscale_all_dim, and cosines and sines have none.
void read_mscale(const GgufKeys& keys, Json& scaling) {
  const double mscale = keys.number(mscale_key, 0) / mscale_unit;
  if (mscale == 0) {
    scaling.set("attention_factor", 1.0);
    return;
  }
  scaling.set("mscale", mscale);
  scaling.set("mscale_all_dim", mscale);
}

// YaRN's attention temperature: llama.cpp multiplies it by attn_factor.
double temperature(double factor) { return factor > 1 ? 0.1 * std::log(factor) + 1 : 1; }

}  // namespace

std::vector<float> read_rope_factors(const GgufTensor& tensor, const GgufKeys& keys, int64_t rotary_dim) {
  keys.require(tensor.shape.size() == 1 && tensor.columns() == rotary_dim / 2, "tensor '", tensor.name, "' has ",
               tensor.rows() * tensor.columns(), " numbers; half of the dimensions that rotate, ", rotary_dim / 2,
               ", is right");
  keys.require(tensor.type->dequantize, "tensor '", tensor.name, "' has the type ", tensor.type->name,
               "; supported: ", supported_gguf_types());
  std::vector<float> out(static_cast<size_t>(tensor.columns()));
  dequantize(*tensor.type, tensor.bytes, out);
  keys.require(std::ranges::all_of(out, [](float x) { return std::isfinite(x) && x > 0; }), "tensor '", tensor.name,
               "' has numbers that are not positive");
  return out;
}

void read_gguf_rope(const GgufKeys& keys, int64_t head_dim, Json& config, const GgufRopeOptions& options) {
  const double theta = keys.number("rope.freq_base", 10000);
  config.set("rope_theta", theta);
  if (const GgufTensor* factors = keys.file().find_tensor(factors_name))
    return read_llama3(*factors, keys, theta, head_dim, config);
  const bool has_longrope = keys.file().find_tensor("rope_factors_long.weight");
  keys.require(!has_longrope || options.longrope,
               "LongRoPE (rope_factors_long.weight) is not supported in this architecture; supported RoPE scalings: "
               "linear, yarn, and llama3 (rope_freqs.weight)");
  if (has_longrope) return;
  const double factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 1));
  const std::string type = keys.text("rope.scaling.type", factor == 1 ? "none" : "linear");
  keys.require(type == "none" || type == "linear" || type == "yarn", "key '", keys.full("rope.scaling.type"), "' is '",
               type, "'; supported: none, linear, yarn");
  if (type == "none" || factor == 1) return;
  Json scaling = JsonObject{{"rope_type", type}, {"factor", factor}};
  if (type == "yarn") {
    if (keys.has("rope.scaling.original_context_length"))
      scaling.set("original_max_position_embeddings", keys.count("rope.scaling.original_context_length"));
    if (const double attention = keys.number("rope.scaling.attn_factor", 1); attention != 1)
      scaling.set("attention_factor", attention * temperature(factor));
    scaling.set("beta_fast", keys.number("rope.scaling.yarn_beta_fast", 32));
    scaling.set("beta_slow", keys.number("rope.scaling.yarn_beta_slow", 1));
    if (options.untruncated) scaling.set("truncate", keys.flag(truncate_key, false));
    if (options.mscale) read_mscale(keys, scaling);
  }
  config.set("rope_scaling", std::move(scaling));
}

void write_gguf_rope(const Json& config, int64_t head_dim, GgufWriter& out, const GgufRopeOptions& options) {
  const double theta = config.at("rope_theta", "config.json").as_double("rope_theta");
  out.number("rope.freq_base", theta);
  const Json* scaling = config.find("rope_scaling");
  if (!scaling || !scaling->is_object()) return;
  const auto number = [&](const char* key, double fallback) {
    const Json* value = scaling->find(key);
    return value && value->is_number() ? value->as_double() : fallback;
  };
  const char* type_key = scaling->find("rope_type") ? "rope_type" : "type";  // of phi3
  const std::string type = scaling->at(type_key, "rope_scaling").as_string(type_key);
  if (type == "longrope" && options.longrope) return;
  const double positions = config.at("max_position_embeddings", "config.json").as_double();
  const double original = number("original_max_position_embeddings", positions), factor = number("factor", 1);
  if (type == "llama3") {
    HONE_CHECK(out.architecture() == "llama", "export: llama.cpp's architecture ", out.architecture(),
               " has no RoPE scaling llama3");
    const Llama3Scaling llama3{factor, number("low_freq_factor", 1), number("high_freq_factor", 4), original};
    const std::vector<float> factors = llama3_factors(llama3, theta, head_dim);
    const GgufType& f32 = gguf_type_named("F32");
    out.add_tensor(std::string(factors_name), f32, {head_dim / 2},
                   [factors, &f32] { return encode_gguf(f32, factors); });
    return;
  }
  if (type == "default" || type == "dynamic") return;
  HONE_CHECK(type == "linear" || type == "yarn", "export: GGUF has no RoPE scaling '", type, "'");
  out.text("rope.scaling.type", type);
  out.number("rope.scaling.factor", factor);
  if (type == "linear") return;
  const bool rounds = !(scaling->find("truncate") && *scaling->find("truncate") == Json(false));
  HONE_CHECK(rounds || options.untruncated, "export: GGUF cannot express YaRN with truncate = false");
  if (options.untruncated && rounds) out.set_flag(concat(out.architecture(), ".", truncate_key), true);
  if (!rounds)
    log::warning(
        "export: llama.cpp rounds the bounds of YaRN's ramp, this model does not (truncate = false); results "
        "differ slightly there");
  const double mscale = number("mscale", 0), of_attention = number("mscale_all_dim", 0);
  HONE_CHECK(mscale == of_attention && (mscale == 0 || options.mscale), "export: GGUF cannot express YaRN with mscale ",
             mscale, " and mscale_all_dim ", of_attention, options.mscale ? "; they must be equal" : "");
  const double attention = number("attention_factor", 0);
  HONE_CHECK(!options.mscale || (mscale != 0 ? attention == 0 : attention == 1),
             "export: llama.cpp computes YaRN of this architecture with mscale = mscale_all_dim above 0 and without "
             "attention_factor, or with attention_factor = 1");
  if (mscale != 0) out.number(mscale_key, mscale * mscale_unit);
  out.count("rope.scaling.original_context_length", static_cast<int64_t>(original));
  if (attention > 0 && !options.mscale) out.number("rope.scaling.attn_factor", attention / temperature(factor));
  out.number("rope.scaling.yarn_beta_fast", number("beta_fast", 32));
  out.number("rope.scaling.yarn_beta_slow", number("beta_slow", 1));
}

}  // namespace hone
