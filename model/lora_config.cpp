#include "model/lora_config.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/suggest.h"
#include "core/text/unicode/regex.h"

namespace hone {
namespace {

constexpr int64_t max_rank = 65536;

std::string last_part(const std::string& module) { return module.substr(module.rfind('.') + 1); }

// Refuses a key of adapter_config.json unless it is absent or empty (null, false, [], {}).
void refuse(const Json& config, const char* key, std::string_view source) {
  const Json* value = config.find(key);
  const bool nothing = !value || value->is_null() || (value->is_bool() && !value->as_bool()) ||
                       (value->is_array() && value->as_array().empty()) ||
                       (value->is_object() && value->as_object().empty());
  HONE_CHECK(nothing, source, ": ", key, " is ", value->dump(),
             "; adapters here know r, lora_alpha, lora_dropout, target_modules and use_rslora alone");
}

// PEFT's lora_alpha is an integer.
Json json_alpha(double alpha) {
  const bool whole = alpha == std::floor(alpha) && alpha < 0x1p53;
  return whole ? Json(static_cast<int64_t>(alpha)) : Json(alpha);
}

std::vector<std::string> texts_of(const Json& value, const std::string& what) {
  if (value.is_string()) return {value.as_string()};
  std::vector<std::string> out;
  for (const Json& item : value.as_array(what)) out.push_back(item.as_string(what));
  return out;
}

// Adds the modules of target_parameters: those whose weight is named (mlp.gate_proj.weight). Parameters with all
// experts of a layer have adapters of their own in PEFT. They may be named beside the same matrices of single experts,
// as model/io/adapter.cpp writes them for some families, then with the ranks of gate and up together.
void add_target_parameters(const Json& config, const std::string& file, LoraConfig& out) {
  constexpr std::string_view end = ".weight";
  const Json* given = config.find("target_parameters");
  const bool any = given && !given->is_null() && !texts_of(*given, file + ": target_parameters").empty();
  const Regex of_expert("(?:\\A|.*\\.)experts\\.[0-9]+\\..*\\z", "target_modules");
  const bool experts = std::ranges::any_of(out.target_modules,
                                           [&](const std::string& target) { return of_expert.matches_within(target); });
  if (any)
    for (const std::string& target : texts_of(*given, file + ": target_parameters")) {
      HONE_CHECK(target.ends_with(end) || experts, file, ": target_parameters names ", target,
                 "; adapters here are of single matrices: weights of modules (mlp.gate_proj.weight), not of parameters "
                 "with all experts of a layer; merge the adapter with PEFT (merge_and_unload) and load the model");
      if (target.ends_with(end)) out.target_modules.push_back(target.substr(0, target.size() - end.size()));
    }
  const Json patterns = gate_up_patterns(out);
  for (const char* key : {"rank_pattern", "alpha_pattern"})
    if (const Json* pattern = config.find(key); !any || !experts || !pattern || *pattern != patterns.at(key))
      refuse(config, key, file);
}

}  // namespace

Json gate_up_patterns(const LoraConfig& config) {
  constexpr const char* gate_up = R"(.*\.gate_up_proj)";
  const double alpha = config.lora_alpha * (config.use_rslora ? std::sqrt(2.0) : 2.0);
  return JsonObject{{"rank_pattern", JsonObject{{gate_up, 2 * config.r}}},
                    {"alpha_pattern", JsonObject{{gate_up, json_alpha(alpha)}}}};
}

void LoraConfig::fields(Fields& f) {
  f("r", r, "rank of the adapters; 0 = no adapters: all weights are trained");
  f("lora_alpha", lora_alpha, "the adapters' output is multiplied by lora_alpha / r");
  f("lora_dropout", lora_dropout, "fraction of an adapter's inputs that training sets to 0; 0 = no dropout");
  f("use_rslora", use_rslora, "scale by lora_alpha / sqrt(r) instead of lora_alpha / r (rsLoRA)");
  f("target_modules", target_modules,
    "modules with adapters: names or ends of them (q_proj), a regular expression of whole names, or all-linear; empty "
    "= q_proj and v_proj (c_attn)");
  f.require("r", r >= 0 && r <= max_rank, concat("r must be in [0, ", max_rank, "]"));
  f.require("lora_alpha", lora_alpha > 0, "lora_alpha must be above 0");
  f.require("lora_dropout", lora_dropout >= 0 && lora_dropout < 1, "lora_dropout must be in [0, 1)");
}

double LoraConfig::scale() const {
  return lora_alpha / (use_rslora ? std::sqrt(static_cast<double>(r)) : static_cast<double>(r));
}

std::vector<bool> find_targets(std::span<const std::string> targets, std::span<const std::string> modules) {
  static const std::vector<std::string> usual = {"q_proj", "v_proj", "c_attn"};
  std::vector<bool> out(modules.size(), false);
  const auto add = [&](const auto& fits) {
    bool any = false;
    for (size_t i = 0; i < modules.size(); ++i)
      if (fits(modules[i])) out[i] = any = true;
    return any;
  };
  const auto add_named = [&](const std::string& target) {
    return add([&](const std::string& module) { return module == target || module.ends_with("." + target); });
  };
  if (targets.empty())
    for (const std::string& target : usual) add_named(target);
  for (const std::string& target : targets) {
    if (target == "all-linear" ? add([](const std::string&) { return true; }) : add_named(target)) continue;
    const Regex whole("\\A(?:" + target + ")\\z", "target_modules");
    if (add([&](const std::string& module) { return whole.matches_within(module); })) continue;
    std::set<std::string> ends;
    for (const std::string& module : modules) ends.insert(last_part(module));
    const std::vector<std::string> known(ends.begin(), ends.end());
    fail("target_modules: no module is called '", target, "'", suggestion(target, known), "; known: ", join(known),
         ", all-linear");
  }
  return out;
}

std::vector<std::string> name_targets(const std::vector<bool>& chosen, std::span<const std::string> modules) {
  std::set<std::string> left_out, out;
  for (size_t i = 0; i < modules.size(); ++i)
    if (!chosen[i]) left_out.insert(last_part(modules[i]));
  for (size_t i = 0; i < modules.size(); ++i)
    if (chosen[i]) out.insert(left_out.contains(last_part(modules[i])) ? modules[i] : last_part(modules[i]));
  return {out.begin(), out.end()};
}

LoraConfig lora_config_of(const Json& config, std::string_view source) {
  const std::string file(source);
  const std::string& type = config.at("peft_type", file).as_string(file + ": peft_type");
  HONE_CHECK(type == "LORA", file, ": peft_type is ", type, ", wants LORA");
  for (const char* key : {"use_dora", "use_qalora", "use_bdlora", "lora_bias", "layers_to_transform",
                          "layer_replication", "exclude_modules", "trainable_token_indices", "alora_invocation_tokens",
                          "arrow_config", "kasa_config", "monteclora_config", "velora_config", "megatron_config"})
    refuse(config, key, source);
  // PEFT's names of a sequence classifier's head. No other module can be saved whole.
  if (const Json* modules = config.find("modules_to_save"); modules && !modules->is_null())
    for (const std::string& module : texts_of(*modules, file + ": modules_to_save"))
      HONE_CHECK(module == "score" || module == "classifier", file, ": modules_to_save names ", module,
                 "; only a value head (score) goes with an adapter");
  if (const Json* bias = config.find("bias"); bias && !bias->is_null())
    HONE_CHECK(bias->as_string(file + ": bias") == "none", file, ": bias is ", bias->as_string(), ", wants none");
  // Other initializations change the base weights, so the adapter alone does not define the model.
  if (const Json* init = config.find("init_lora_weights"); init && init->is_string()) {
    const std::string& name = init->as_string();
    HONE_CHECK(name == "gaussian" || name == "orthogonal" || name == "eva", file, ": init_lora_weights is ", name,
               ", which changes the base model");
  }
  LoraConfig out;
  out.r = config.at("r", file).as_int(file + ": r");
  HONE_CHECK(out.r > 0 && out.r <= max_rank, file, ": r is ", out.r, ", wants 1 to ", max_rank);
  out.lora_alpha = config.at("lora_alpha", file).as_double(file + ": lora_alpha");
  HONE_CHECK(std::isfinite(out.lora_alpha), file, ": lora_alpha is ", out.lora_alpha, ", wants a number");
  if (const Json* dropout = config.find("lora_dropout")) out.lora_dropout = dropout->as_double(file + ": lora_dropout");
  HONE_CHECK(out.lora_dropout >= 0 && out.lora_dropout < 1, file, ": lora_dropout is ", out.lora_dropout,
             ", wants a number in [0, 1)");
  if (const Json* rslora = config.find("use_rslora")) out.use_rslora = rslora->as_bool(file + ": use_rslora");
  if (const Json* targets = config.find("target_modules"); targets && !targets->is_null())
    out.target_modules = texts_of(*targets, file + ": target_modules");
  add_target_parameters(config, file, out);
  return out;
}

Json adapter_config_of(const LoraConfig& config, std::string_view base_model_name_or_path, bool fan_in_fan_out,
                       bool classifier) {
  return JsonObject{{"peft_type", "LORA"},
                    {"task_type", classifier ? "SEQ_CLS" : "CAUSAL_LM"},
                    {"base_model_name_or_path", base_model_name_or_path},
                    {"revision", Json()},
                    {"inference_mode", true},
                    {"r", config.r},
                    {"lora_alpha", json_alpha(config.lora_alpha)},
                    {"lora_dropout", config.lora_dropout},
                    {"use_rslora", config.use_rslora},
                    {"use_dora", false},
                    {"target_modules", Json::array(config.target_modules)},
                    {"fan_in_fan_out", fan_in_fan_out},
                    {"bias", "none"},
                    {"init_lora_weights", true},
                    {"rank_pattern", JsonObject{}},
                    {"alpha_pattern", JsonObject{}},
                    {"layers_to_transform", Json()},
                    {"layers_pattern", Json()},
                    {"modules_to_save", classifier ? Json(JsonArray{"classifier", "score"}) : Json()},
                    {"auto_mapping", Json()}};
}

}  // namespace hone
