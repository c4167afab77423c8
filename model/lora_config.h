#pragma once
// LoraConfig: the keys of PEFT's LoraConfig, and which modules they target.
#include <span>
#include <string>
#include <vector>

#include "core/config/fields.h"
#include "core/io/json.h"

namespace hone {

struct LoraConfig {
  int64_t r = 0;  // rank; 0 = no adapters
  double lora_alpha = 8, lora_dropout = 0;
  bool use_rslora = false;
  std::vector<std::string> target_modules{};
  void fields(Fields& f);
  bool operator==(const LoraConfig&) const = default;
  // Of B A: lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora (Kalajdzievski 2023).
  double scale() const;
};

// Which of the modules (full names, "model.layers.0.self_attn.q_proj") the targets name. As in PEFT a target is a
// module's name or the end of it after a dot, or a regular expression that matches a whole name, or "all-linear"; no
// target stands for PEFT's own choice for the families here: q_proj and v_proj, or c_attn. A target that names nothing
// is an Error that lists what there is.
std::vector<bool> find_targets(std::span<const std::string> targets, std::span<const std::string> modules);
// The shortest list of targets that names exactly these modules: last parts of names where every module of that ending
// is one of them, else whole names.
std::vector<std::string> name_targets(const std::vector<bool>& chosen, std::span<const std::string> modules);

// adapter_config.json. What the adapters here cannot do (DoRA, ranks that differ, trained biases, ...) is an Error that
// names the key.
LoraConfig lora_config_of(const Json& adapter_config, std::string_view source);
// PEFT's rank_pattern and alpha_pattern for one adapter at the fused gate and up of experts, made of two.
Json gate_up_patterns(const LoraConfig& config);
// `fan_in_fan_out`: the base's file holds the adapted weights transposed (GPT-2's Conv1D). `classifier`: a value head
// goes with the adapter.
Json adapter_config_of(const LoraConfig& config, std::string_view base_model_name_or_path, bool fan_in_fan_out,
                       bool classifier = false);

}  // namespace hone
