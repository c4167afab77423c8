#include "model/config_reader.h"

#include <algorithm>
#include <cmath>

namespace hone {

ConfigReader::ConfigReader(const Json& config, std::string_view source) : source_(source), resolved_(config) {
  require(config.is_object(), "is a JSON ", config.kind_name(), ", wants an object");
  auto& members = resolved_.object_ref();
  std::erase_if(members, [](const auto& member) { return member.first == "dtype" || member.first == "torch_dtype"; });
  require(!find("quantization_config"), "quantization_config: quantized weights are not supported");
}

const Json* ConfigReader::find(std::string_view key) const {
  const Json* value = resolved_.find(key);
  return value && !value->is_null() ? value : nullptr;
}

int64_t ConfigReader::count(const char* key, std::optional<int64_t> fallback, int64_t most) {
  const Json* value = find(key);
  require(value || fallback, "no ", key);
  const int64_t out = value ? value->as_int(concat(source_, ": ", key)) : *fallback;
  require(out >= 1 && out <= most, key, " is ", out, ", wants 1 to ", most);
  set(key, out);
  return out;
}

double ConfigReader::positive(const char* key, std::optional<double> fallback) {
  const Json* value = find(key);
  require(value || fallback, "no ", key);
  const double out = value ? value->as_double(concat(source_, ": ", key)) : *fallback;
  require(std::isfinite(out) && out > 0, key, " is ", out, ", wants a positive number");
  set(key, out);
  return out;
}

bool ConfigReader::flag(const char* key, bool fallback) {
  const Json* value = find(key);
  const bool out = value ? value->as_bool(concat(source_, ": ", key)) : fallback;
  set(key, out);
  return out;
}

std::string ConfigReader::text(const char* key, const char* fallback) {
  const Json* value = find(key);
  std::string out = value ? value->as_string(concat(source_, ": ", key)) : fallback;
  set(key, out);
  return out;
}

void ConfigReader::accept(const char* key, const char* fallback, std::initializer_list<std::string_view> known) {
  const std::string value = text(key, fallback);
  const std::vector<std::string> names(known.begin(), known.end());
  require(std::ranges::find(known, value) != known.end(), key, " '", value,
          "' is not supported; supported: ", join(names));
}

void ConfigReader::accept(const char* key, bool only) {
  require(flag(key, only) == only, key, " = ", only ? "false" : "true", " is not supported");
}

RopeConfig read_rope(ConfigReader& config, int64_t dim, int64_t max_positions) {
  config.require(dim % 2 == 0, "head_dim is ", dim, "; rotary positions want an even one");
  const Json* five = config.find("rope_parameters");
  const Json* given = five ? five : config.find("rope_scaling");
  const Json parameters = given ? *given : Json(JsonObject{});
  const char* where = five ? "rope_parameters" : "rope_scaling";
  config.require(parameters.is_object(), where, " is a JSON ", parameters.kind_name(), ", wants an object");
  const auto find = [&](std::string_view key) {
    const Json* value = parameters.find(key);
    return value && !value->is_null() ? value : nullptr;
  };
  const auto number = [&](const char* key, double fallback) {
    const Json* value = find(key);
    const double out = value ? value->as_double(concat(where, ".", key)) : fallback;
    config.require(std::isfinite(out) && out >= 0, where, ".", key, " is ", out, ", wants a number of 0 or more");
    return out;
  };
  const auto name = [&] {
    for (const char* key : {"rope_type", "type"})
      if (const Json* value = find(key)) return value->as_string(concat(where, ".", key));
    return std::string("default");
  }();

  RopeConfig out{.dim = dim};
  out.theta = find("rope_theta") ? number("rope_theta", 0) : config.positive("rope_theta", 10000);
  config.require(out.theta > 0, where, ".rope_theta is ", out.theta, ", wants a positive number");
  // "dynamic" changes nothing up to max_position_embeddings, the limit of every sequence here.
  out.scaling = name == "dynamic" ? "default" : name;
  config.require(rope_scalings().find(out.scaling), where, ".rope_type '", name,
                 "' is not supported; supported: ", join(rope_scalings().names()), ", dynamic");
  const Json* partial =
      find("partial_rotary_factor") ? find("partial_rotary_factor") : config.find("partial_rotary_factor");
  config.require(!partial || partial->as_double("partial_rotary_factor") == 1,
                 "partial_rotary_factor other than 1 is not supported");
  out.factor = number("factor", 1);
  config.require(out.factor >= 1, where, ".factor is ", out.factor, ", wants 1 or more");
  out.original_max_position = number("original_max_position_embeddings", static_cast<double>(max_positions));
  out.low_freq_factor = number("low_freq_factor", 1);
  out.high_freq_factor = number("high_freq_factor", 4);
  config.require(out.scaling != "llama3" || (out.low_freq_factor > 0 && out.high_freq_factor > out.low_freq_factor),
                 where, ": wants 0 < low_freq_factor < high_freq_factor");
  out.beta_fast = number("beta_fast", 32);
  out.beta_slow = number("beta_slow", 1);
  out.attention_factor = number("attention_factor", 0);
  out.mscale = number("mscale", 0);
  out.mscale_all_dim = number("mscale_all_dim", 0);
  if (const Json* truncate = find("truncate")) out.truncate = truncate->as_bool(concat(where, ".truncate"));

  // Writes both spellings, so that versions 4 and 5 of transformers read the same values.
  Json four = parameters;
  std::erase_if(four.object_ref(), [](const auto& member) { return member.first == "rope_theta"; });
  four.set("rope_type", name);
  Json both = four;
  both.set("rope_theta", out.theta);
  config.set("rope_theta", out.theta);
  config.set("rope_scaling", name == "default" ? Json() : four);
  config.set("rope_parameters", both);
  return out;
}

std::vector<int64_t> read_windows(ConfigReader& config, int64_t num_blocks, int64_t first_sliding) {
  std::vector<int64_t> windows(static_cast<size_t>(num_blocks), 0);
  const Json* types = config.find("layer_types");
  config.require(!types || (types->is_array() && types->as_array().size() == windows.size()),
                 "layer_types wants a list of ", num_blocks, " names");
  const bool given = config.find("sliding_window");
  for (int64_t layer = 0; layer < num_blocks; ++layer) {
    bool sliding = given && layer >= first_sliding;
    if (types) {
      const std::string& type = types->as_array()[static_cast<size_t>(layer)].as_string("layer_types");
      config.require(type == "full_attention" || type == "sliding_attention", "layer_types: '", type,
                     "' is not supported; supported: full_attention, sliding_attention");
      sliding = type == "sliding_attention";
    }
    if (sliding) windows[static_cast<size_t>(layer)] = config.count("sliding_window");
  }
  return windows;
}

}  // namespace hone
