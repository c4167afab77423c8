#include "model/config_reader.h"

#include <algorithm>
#include <cmath>

namespace hone {

ConfigReader::ConfigReader(const Json& config, std::string_view source) : source_(source), resolved_(config) {
  require(config.is_object(), "is ", config.kind_name(), ", wants an object");
  auto& members = resolved_.object_ref();
  std::erase_if(members, [](const auto& member) { return member.first == "dtype" || member.first == "torch_dtype"; });
  require(!find("quantization_config"), "quantization_config: quantized weights are not supported");
}

const Json* ConfigReader::find(std::string_view key) const {
  const Json* value = resolved_.find(key);
  return value && !value->is_null() ? value : nullptr;
}

int64_t ConfigReader::count(const char* key, std::optional<int64_t> fallback, int64_t most, int64_t least) {
  const Json* value = find(key);
  require(value || fallback, "no ", key);
  const int64_t out = value ? value->as_int(place(key)) : *fallback;
  require(out >= least && out <= most, key, " is ", out, ", wants ", least, " to ", most);
  set(key, out);
  return out;
}

double ConfigReader::positive(const char* key, std::optional<double> fallback) {
  const Json* value = find(key);
  require(value || fallback, "no ", key);
  const double out = value ? value->as_double(place(key)) : *fallback;
  require(std::isfinite(out) && out > 0, key, " is ", out, ", wants a positive number");
  set(key, out);
  return out;
}

bool ConfigReader::flag(const char* key, bool fallback) {
  const Json* value = find(key);
  const bool out = value ? value->as_bool(place(key)) : fallback;
  set(key, out);
  return out;
}

std::string ConfigReader::text(const char* key, const char* fallback) {
  const Json* value = find(key);
  std::string out = value ? value->as_string(place(key)) : fallback;
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

double ConfigReader::positive_or_none(const char* key, double fallback) {
  const Json* value = resolved_.find(key);
  if (value && value->is_null()) return 0;
  if (!value && fallback == 0) return 0;
  return positive(key, fallback);
}

std::vector<std::string> ConfigReader::text_per_layer(const char* key, const char* fallback, int64_t num_layers) {
  const Json* given = find(key);
  if (!given || !given->is_array()) {
    const std::string all = text(key, fallback);
    return std::vector<std::string>(static_cast<size_t>(num_layers), all);
  }
  const JsonArray& list = given->as_array();
  require(std::ssize(list) == num_layers, key, " has ", list.size(), " names, wants one name, or a list of ",
          num_layers, ": one for each layer");
  std::vector<std::string> out;
  for (const Json& one : list) out.push_back(one.as_string(place(key)));
  return out;
}

Activation ConfigReader::activation_of(const char* key, const std::string& name) const {
  static const std::vector<std::pair<std::string, Activation>> known{{"silu", Activation::silu},
                                                                     {"swish", Activation::silu},
                                                                     {"gelu", Activation::gelu},
                                                                     {"gelu_new", Activation::gelu_tanh},
                                                                     {"gelu_pytorch_tanh", Activation::gelu_tanh},
                                                                     {"gelu_python", Activation::gelu},
                                                                     {"gelu_python_tanh", Activation::gelu_tanh},
                                                                     {"gelu_accurate", Activation::gelu_tanh},
                                                                     {"relu", Activation::relu},
                                                                     {"relu2", Activation::relu2},
                                                                     {"gelu_fast", Activation::gelu_tanh}};
  const auto found = std::ranges::find(known, name, &std::pair<std::string, Activation>::first);
  std::vector<std::string> names;
  for (const auto& [one, kind] : known) names.push_back(one);
  require(found != known.end(), key, " '", name, "' is not supported; supported: ", join(names));
  return found->second;
}

namespace {

const Json* find_in(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value && !value->is_null() ? value : nullptr;
}

// The divisors of longrope. Those that are not used are checked, too: a typing error there would show later.
void read_longrope(ConfigReader& config, const Json& parameters, const std::string& where, RopeConfig& out) {
  const auto list = [&](const char* key) {
    const Json* value = find_in(parameters, key);
    const auto count = static_cast<size_t>(out.dim / 2);
    config.require(value && value->is_array() && value->as_array().size() == count, where, ".", key,
                   " wants a list of ", count, " numbers");
    std::vector<double> numbers;
    for (const Json& number : value->as_array()) {
      numbers.push_back(number.as_double(config.place(where + "." + key)));
      config.require(std::isfinite(numbers.back()) && numbers.back() > 0, where, ".", key, " contains ", numbers.back(),
                     ", wants positive numbers");
    }
    return numbers;
  };
  out.short_factor = list("short_factor");
  out.long_factor = list("long_factor");
}

std::string scaling_name(const ConfigReader& config, const Json& parameters, const std::string& where, bool phi) {
  for (const char* key : {"rope_type", "type"})
    if (const Json* value = find_in(parameters, key)) {
      std::string name = value->as_string(config.place(where + "." + key));
      return phi && (name == "su" || name == "yarn") ? "longrope" : name;
    }
  return "default";
}

}  // namespace

RopeConfig read_rope_object(ConfigReader& config, const Json& parameters, const std::string& where, int64_t dim,
                            int64_t max_positions, const RopeDefaults& defaults) {
  config.require(parameters.is_object(), where, " is ", parameters.kind_name(), ", wants an object");
  const auto number = [&](const char* key, double fallback) {
    const Json* value = find_in(parameters, key);
    const double out = value ? value->as_double(config.place(where + "." + key)) : fallback;
    config.require(std::isfinite(out) && out >= 0, where, ".", key, " is ", out, ", wants a number of 0 or more");
    return out;
  };
  const std::string name = scaling_name(config, parameters, where, defaults.phi);
  RopeConfig out{.dim = dim};
  out.theta = number("rope_theta", defaults.theta);
  config.require(out.theta > 0, where, ".rope_theta is ", out.theta, ", wants a positive number");
  // "dynamic" changes nothing up to max_position_embeddings, the limit of every sequence here.
  out.scaling = name == "dynamic" ? "default" : name;
  config.require(rope_scalings().find(out.scaling), where, ".rope_type '", name,
                 "' is not supported; supported: ", join(rope_scalings().names()), ", dynamic");
  const Json* given = find_in(parameters, "partial_rotary_factor");
  const std::string partial_place = config.place(given ? where + ".partial_rotary_factor" : "partial_rotary_factor");
  if (!given) given = config.find("partial_rotary_factor");
  const double partial = given ? given->as_double(partial_place) : 1;
  config.require(partial == 1 || defaults.partial, "partial_rotary_factor other than 1 is not supported");
  config.require(partial > 0 && partial <= 1, "partial_rotary_factor is ", partial, ", wants a number above 0 up to 1");
  if (given && defaults.partial) config.set("partial_rotary_factor", partial);  // where every version reads it
  out.dim = static_cast<int64_t>(static_cast<double>(dim) * partial);
  config.require(out.dim > 0 && out.dim % 2 == 0, "head_dim is ", dim, " and partial_rotary_factor ", partial,
                 ", so RoPE would rotate ", out.dim, " dimensions; it rotates an even number");
  constexpr const char* original_key = "original_max_position_embeddings";
  if (defaults.phi || (defaults.original_beside && config.find(original_key)))
    out.original_max_position = static_cast<double>(config.count(original_key, 4096));
  else
    out.original_max_position = number(original_key, static_cast<double>(max_positions));
  // As in transformers, a factor that is null is that of the longest sequence; only longrope may lack it.
  const bool needs_factor = out.scaling == "linear" || out.scaling == "llama3" || out.scaling == "yarn";
  config.require(!needs_factor || find_in(parameters, "factor") || (out.scaling == "yarn" && parameters.find("factor")),
                 where, ".factor is missing: rope_type '", name, "' wants a number of 1 or more");
  const bool by_length = (out.scaling == "longrope" || out.scaling == "yarn") && out.original_max_position > 0;
  const double longest = by_length ? static_cast<double>(max_positions) / out.original_max_position : 1;
  out.factor = number("factor", out.scaling == "longrope" ? std::max(1.0, longest) : longest);
  config.require(out.factor >= 1, where, ".factor is ", out.factor,
                 find_in(parameters, "factor") ? "" : " (max_position_embeddings / original_max_position_embeddings)",
                 ", wants 1 or more");
  if (out.scaling == "llama3")  // as transformers, which has defaults for the other members alone
    for (const char* key : {"low_freq_factor", "high_freq_factor"})
      config.require(find_in(parameters, key), where, ".", key,
                     " is missing: rope_type 'llama3' wants a number above 0");
  out.low_freq_factor = number("low_freq_factor", 1);
  out.high_freq_factor = number("high_freq_factor", 4);
  config.require(out.scaling != "llama3" || (out.low_freq_factor > 0 && out.high_freq_factor > out.low_freq_factor),
                 where, ": wants 0 < low_freq_factor < high_freq_factor");
  // transformers takes 0 for a missing number.
  const auto or_default = [](double value, double fallback) { return value > 0 ? value : fallback; };
  out.beta_fast = or_default(number("beta_fast", 32), 32);
  out.beta_slow = or_default(number("beta_slow", 1), 1);
  out.attention_factor = number("attention_factor", 0);
  config.require(out.attention_factor > 0 || !find_in(parameters, "attention_factor"), where,
                 ".attention_factor is 0, wants a positive number");
  out.mscale = number("mscale", 0);
  out.mscale_all_dim = number("mscale_all_dim", 0);
  if (const Json* truncate = find_in(parameters, "truncate"))
    out.truncate = truncate->as_bool(config.place(where + ".truncate"));
  if (out.scaling == "longrope") read_longrope(config, parameters, where, out);
  out.use_long_rope = config.find("use_long_rope") && config.flag("use_long_rope", false);
  config.require(!out.use_long_rope || out.scaling == "longrope", "use_long_rope is true and ", where,
                 ".rope_type is '", name, "'; use_long_rope is for 'longrope'");
  return out;
}

RopeConfig read_rope(ConfigReader& config, int64_t dim, int64_t max_positions, const RopeDefaults& defaults) {
  // As in transformers 5, rope_scaling wins over rope_parameters.
  const Json *five = config.find("rope_parameters"), *four_given = config.find("rope_scaling");
  if (four_given && four_given->is_object() && four_given->as_object().empty()) four_given = nullptr;
  const Json* given = four_given ? four_given : five;
  const Json parameters = given ? *given : Json(JsonObject{});
  const char* where = four_given ? "rope_scaling" : "rope_parameters";
  config.require(parameters.is_object(), where, " is ", parameters.kind_name(), ", wants an object");
  RopeDefaults own = defaults;
  own.original_beside = true;
  if (!find_in(parameters, "rope_theta")) {
    const Json* beside = five && five->is_object() ? find_in(*five, "rope_theta") : nullptr;
    own.theta = config.positive("rope_theta", defaults.theta);
    // transformers does not read it, and would take another one.
    config.require(!beside || beside->as_double(config.place("rope_parameters.rope_theta")) == own.theta,
                   "rope_scaling is given, so rope_theta is ", own.theta, ", but rope_parameters.rope_theta is ",
                   beside ? beside->dump() : "", "; remove one of rope_scaling and rope_parameters");
  }
  const RopeConfig out = read_rope_object(config, parameters, where, dim, max_positions, own);

  // Writes both spellings, so that versions 4 and 5 of transformers read the same values.
  const std::string name = scaling_name(config, parameters, where, defaults.phi);
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

int64_t rope_positions(const RopeConfig& rope, int64_t max_positions) {
  if (rope.scaling != "longrope" || rope.use_long_rope) return max_positions;
  return std::clamp<int64_t>(static_cast<int64_t>(rope.original_max_position), 1, max_positions);
}

std::vector<bool> read_sliding_layers(ConfigReader& config, int64_t num_layers,
                                      const std::function<bool(int64_t layer)>& slides) {
  std::vector<bool> out;
  const Json* types = config.find("layer_types");
  config.require(!types || (types->is_array() && std::ssize(types->as_array()) == num_layers),
                 "layer_types wants a list of ", num_layers, " names");
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    if (!types) {
      out.push_back(slides(layer));
      continue;
    }
    const std::string& type = types->as_array()[static_cast<size_t>(layer)].as_string(config.place("layer_types"));
    config.require(type == "full_attention" || type == "sliding_attention", "layer_types: '", type,
                   "' is not supported; supported: full_attention, sliding_attention");
    out.push_back(type == "sliding_attention");
  }
  if (types || std::ranges::none_of(out, [](bool sliding) { return sliding; })) return out;
  JsonArray resolved;
  for (const bool sliding : out) resolved.emplace_back(sliding ? "sliding_attention" : "full_attention");
  config.set("layer_types", std::move(resolved));
  return out;
}

std::vector<int64_t> read_windows(ConfigReader& config, const std::vector<bool>& sliding) {
  std::vector<int64_t> out;
  for (const bool slides : sliding) out.push_back(slides ? config.count("sliding_window") : 0);
  return out;
}

bool read_use_sliding_window(ConfigReader& config) {
  const bool slides = config.flag("use_sliding_window", false);
  if (slides && !config.has("sliding_window")) config.set("sliding_window", 4096);
  return slides;
}

std::vector<int64_t> read_windows(ConfigReader& config, int64_t num_layers, int64_t first_sliding) {
  const bool given = config.find("sliding_window");
  return read_windows(
      config, read_sliding_layers(config, num_layers, [&](int64_t layer) { return given && layer >= first_sliding; }));
}

std::vector<bool> read_rope_layers(ConfigReader& config, int64_t num_layers, int64_t interval) {
  std::vector<bool> out;
  const Json* given = config.find("no_rope_layers");
  if (!given) {
    if (interval > 0 || config.find("no_rope_layer_interval"))
      interval = config.count("no_rope_layer_interval", interval);
    for (int64_t layer = 0; layer < num_layers; ++layer) out.push_back(interval == 0 || (layer + 1) % interval != 0);
  } else {
    config.require(given->is_array() && std::ssize(given->as_array()) >= num_layers,
                   "no_rope_layers wants a list of at least ", num_layers, " numbers");
    for (int64_t layer = 0; layer < num_layers; ++layer) {
      const int64_t has_rope = given->as_array()[static_cast<size_t>(layer)].as_int(config.place("no_rope_layers"));
      config.require(has_rope == 0 || has_rope == 1, "no_rope_layers contains ", has_rope, ", wants 0 and 1");
      out.push_back(has_rope == 1);
    }
  }
  JsonArray resolved;
  for (const bool has_rope : out) resolved.push_back(Json(int64_t{has_rope}));
  config.set("no_rope_layers", resolved);
  return out;
}

}  // namespace hone
