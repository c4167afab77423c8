#pragma once
// The decoder of Llama with experts in place of the MLPs of some layers: Mixtral, OLMoE, Qwen2-MoE, Qwen3-MoE.
#include "model/families/llama_like.h"
#include "model/moe/moe.h"

namespace hone {

// Limit of a config.json.
constexpr int64_t max_experts = 4096;

struct LlamaMoeConfig {
  MoeConfig moe;                   // num_layers is counted from `sparse`, `activation` is that of the layer
  std::vector<bool> sparse;        // of each layer: it has experts, not a dense MLP; later layers are like the last
  std::string block = "mlp";       // the module of a layer that holds router and experts
  const char* gate = "gate_proj";  // the matrices of an expert
  const char* up = "up_proj";
  const char* down = "down_proj";
  int64_t shared_size = 0;  // inner size of the shared expert; 0: none
  // The shared expert is block.shared_expert with a gate (Qwen2-MoE), or block.shared_experts without (DeepSeek).
  bool gated_shared = true;
};

// Reads what these families share: num_experts (or num_local_experts), num_experts_per_tok, norm_topk_prob and the
// members of read_balance(). Each default is the family's.
struct LlamaMoeDefaults {
  int64_t num_experts = 0, num_choices = 0;
  double balance_coef = 0.001;
};
LlamaMoeConfig read_llama_moe(ConfigReader& config, const LlamaLikeConfig& decoder, const LlamaMoeDefaults& defaults);
// Which layers are sparse, from decoder_sparse_step and mlp_only_layers (Qwen).
std::vector<bool> read_sparse_layers(ConfigReader& config, int64_t num_layers);
// Reads n_group and topk_group, checks them, and sets them in the rule. 0: the file must have them. num_experts: the
// name of their number in messages.
void read_expert_groups(ConfigReader& config, MoeConfig& moe, int64_t num_groups, int64_t top_groups,
                        const char* num_experts = "n_routed_experts");

// Puts experts in place of the MLPs of sparse layers.
void add_experts(const LlamaLikeConfig& decoder, LlamaMoeConfig config, TransformerParts& parts);
std::unique_ptr<Model> make_llama_moe(const LlamaLikeConfig& decoder, LlamaMoeConfig config);

}  // namespace hone
