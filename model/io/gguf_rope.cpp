#include "model/io/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "core/io/gguf/gguf_writer.h"

namespace hone {
namespace {

constexpr std::string_view factors_name = "rope_freqs.weight";

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

std::vector<float> read_factors(const GgufTensor& tensor, const GgufKeys& keys, int64_t head_dim) {
  keys.require(tensor.shape.size() == 1 && tensor.columns() == head_dim / 2, "tensor '", tensor.name, "' has ",
               tensor.rows() * tensor.columns(), " numbers; half the head size, ", head_dim / 2, ", is right");
  keys.require(tensor.type->dequantize, "tensor '", tensor.name, "' has the type ", tensor.type->name,
               "; supported: ", supported_gguf_types());
  std::vector<float> out(static_cast<size_t>(tensor.columns()));
  dequantize(*tensor.type, tensor.bytes, out);
  keys.require(std::ranges::all_of(out, [](float x) { return std::isfinite(x) && x > 0; }), "tensor '", tensor.name,
               "' has numbers that are not positive");
  return out;
}

void read_llama3(const GgufTensor& tensor, const GgufKeys& keys, double theta, int64_t head_dim, Json& config) {
  const std::vector<float> factors = read_factors(tensor, keys, head_dim);
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

// YaRN's attention temperature: llama.cpp multiplies it by attn_factor.
double temperature(double factor) { return factor > 1 ? 0.1 * std::log(factor) + 1 : 1; }

}  // namespace

void read_gguf_rope(const GgufKeys& keys, int64_t head_dim, Json& config) {
  const double theta = keys.number("rope.freq_base", 10000);
  config.set("rope_theta", theta);
  if (const GgufTensor* factors = keys.file().find_tensor(factors_name))
    return read_llama3(*factors, keys, theta, head_dim, config);
  keys.require(!keys.file().find_tensor("rope_factors_long.weight"),
               "LongRoPE (rope_factors_long.weight) is not "
               "supported; supported RoPE scalings: linear, yarn, and llama3 (rope_freqs.weight)");
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
  }
  config.set("rope_scaling", std::move(scaling));
}

void write_gguf_rope(const Json& config, int64_t head_dim, GgufWriter& out) {
  const double theta = config.at("rope_theta", "config.json").as_double("rope_theta");
  out.number("rope.freq_base", theta);
  const Json* scaling = config.find("rope_scaling");
  if (!scaling || !scaling->is_object()) return;
  const auto number = [&](const char* key, double fallback) {
    const Json* value = scaling->find(key);
    return value && value->is_number() ? value->as_double() : fallback;
  };
  const std::string type = scaling->at("rope_type", "rope_scaling").as_string("rope_type");
  const double positions = config.at("max_position_embeddings", "config.json").as_double();
  const double original = number("original_max_position_embeddings", positions), factor = number("factor", 1);
  if (type == "llama3") {
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
  HONE_CHECK(number("mscale", 0) == 0 && !(scaling->find("truncate") && *scaling->find("truncate") == Json(false)),
             "export: GGUF cannot express YaRN with mscale or truncate = false");
  out.count("rope.scaling.original_context_length", static_cast<int64_t>(original));
  if (const double attention = number("attention_factor", 0); attention > 0)
    out.number("rope.scaling.attn_factor", attention / temperature(factor));
  out.number("rope.scaling.yarn_beta_fast", number("beta_fast", 32));
  out.number("rope.scaling.yarn_beta_slow", number("beta_slow", 1));
}

}  // namespace hone
