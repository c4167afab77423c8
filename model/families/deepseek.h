#pragma once
// The decoder of DeepSeek-V2 and V3: multi-head latent attention; dense layers first, then experts with expert groups
// and shared experts. A family's file reads its router.
#include "model/families/llama_moe.h"
#include "model/attention/latent_attention.h"

namespace hone {

struct DeepseekConfig {
  LlamaLikeConfig decoder;
  MoeConfig moe;  // `rule` and the losses are the family's
  LatentShape heads;
  int64_t q_rank = 0;  // of the queries' latent; 0: none
  RopeConfig rope;
  bool interleaved = true, attention_bias = false;
  double scale = 0;          // of q . k
  int64_t dense_layers = 0;  // the first layers, which have no experts
  int64_t shared_size = 0;   // inner size of the shared experts together; 0: none
};

// What config.json leaves out, as the family's class in transformers has it.
struct DeepseekDefaults {
  int64_t num_experts = 256, num_choices = 8, expert_size = 2048, shared_experts = 1, dense_layers = 3;
};

// Reads all but the router's rule. architecture: the class in transformers.
DeepseekConfig read_deepseek(ConfigReader& config, const char* architecture, const DeepseekDefaults& defaults);
// Reads n_group and topk_group, checks them, and sets them in the rule. 0: the file must have them.
void read_expert_groups(ConfigReader& config, MoeConfig& moe, int64_t num_groups, int64_t top_groups);

std::unique_ptr<Model> make_deepseek(DeepseekConfig config);

}  // namespace hone
