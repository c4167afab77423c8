#pragma once
// FLOPs of a model. (Memory is not modeled: a step on the meta device measures it, train/memory_plan.h.)
#include "core/io/json.h"
#include "model/forward.h"
#include "model/layer.h"

namespace hone {

struct ModelFlops {
  int64_t params = 0, trained_params = 0, embedding_params = 0;
  // Per token at the given context length; a multiply-add counts as two. As in appendix F of Chinchilla (Hoffmann et
  // al. 2022): with attention, without embedding lookups. A layer with a window reads as many keys at most. A frozen
  // weight has an input gradient and no weight gradient.
  double forward_flops_per_token = 0, train_flops_per_token = 0;
  // The count of published training speeds (MFU): 6 per weight that a token is multiplied by, lm_head once, and causal
  // attention (half of the context, a window does not count), without norms and biases.
  double active_params = 0, causal_train_flops_per_token = 0;
};
// Of each layer.
std::vector<AttentionCost> attention_costs(const Model& model);
ModelFlops count_flops(Model& model, int64_t context_length);

}  // namespace hone
