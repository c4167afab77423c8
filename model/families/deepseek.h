#pragma once
// The decoder of DeepSeek-V2 and V3: multi-head latent attention; dense layers first, then experts with expert groups
// and shared experts. A family's file reads its router.
#include "model/families/latent.h"
#include "model/families/llama_moe.h"

namespace hone {

struct DeepseekConfig {
  LlamaLikeConfig decoder;
  LatentConfig latent;
  LlamaMoeConfig experts;  // `moe.rule` and the losses are the family's
};

// What config.json leaves out, as the family's class in transformers has it.
struct DeepseekDefaults {
  int64_t num_experts = 256, num_choices = 8, expert_size = 2048, shared_experts = 1, dense_layers = 3;
};

// Reads all but the router's rule. architecture: the class in transformers.
DeepseekConfig read_deepseek(ConfigReader& config, const char* architecture, const DeepseekDefaults& defaults);

std::unique_ptr<Model> make_deepseek(const DeepseekConfig& config);

}  // namespace hone
