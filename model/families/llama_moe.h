#pragma once
// The decoder of Llama with experts in place of the MLPs of some layers: Mixtral, OLMoE, Qwen2-MoE, Qwen3-MoE.
#include "model/families/llama_like.h"
#include "model/moe/moe.h"

namespace hone {

struct LlamaMoeConfig {
  MoeConfig moe;                   // num_layers is counted from `sparse`
  std::vector<bool> sparse;        // of each layer: it has experts, not a dense MLP
  std::string block = "mlp";       // the module of a layer that holds router and experts
  const char* gate = "gate_proj";  // the matrices of an expert
  const char* up = "up_proj";
  const char* down = "down_proj";
  int64_t shared_size = 0;  // inner size of a gated shared expert, block.shared_expert; 0: none
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

std::unique_ptr<Model> make_llama_moe(const LlamaLikeConfig& decoder, LlamaMoeConfig config);

}  // namespace hone
