#include "model/flops.h"

#include <algorithm>

#include "model/modules.h"
#include "model/mtp.h"

namespace hone {

// q . k, softmax and the weighted sum of v over all keys that the layer reads at most.
static double full_attention_flops(const AttentionCost& layer, double context) {
  const double keys = layer.window > 0 ? std::min(context, static_cast<double>(layer.window)) : context;
  return 2 * keys * static_cast<double>(layer.products) + 3 * keys * static_cast<double>(layer.num_heads);
}

// Forward and backward over half of the context.
static double causal_attention_flops(const AttentionCost& layer, double context) {
  return 3 * static_cast<double>(layer.products) * context;
}

std::vector<AttentionCost> attention_costs(const Model& model) {
  return dynamic_cast<const AttentionCostSource&>(model).attention_costs();
}

ModelFlops count_flops(Model& model, int64_t context_length) {
  ModelFlops plan{.params = model.num_params()};
  const Param* head = &model.lm_head();
  const Mtp* const mtp = mtp_of(model);
  ModuleList ahead;  // multi-token prediction, which only training computes
  if (mtp) mtp->add_to(ahead);
  double multiplied = 0, frozen = 0, predicting = 0;  // weights that each token is multiplied by
  for (const Param* param : model.params()) {
    double size = 1;
    for (const int64_t dim : param->shape) size *= static_cast<double>(dim);
    if (param->lookup || param == head) plan.embedding_params += static_cast<int64_t>(size);
    if (param->trainable) plan.trained_params += static_cast<int64_t>(size);
    if (param != head && (param->shape.size() != 2 || param->lookup)) continue;
    if (mtp && param == head) predicting += size * static_cast<double>(mtp->size());
    if (std::ranges::find(ahead.params, param) != ahead.params.end()) {
      predicting += size * param->active_share;
      continue;
    }
    multiplied += size * param->active_share;
    if (!param->trainable) frozen += size * param->active_share;
  }
  const auto context = static_cast<double>(context_length);
  const std::vector<AttentionCost> layers = attention_costs(model);
  double full = 0, causal = 0;  // attention of the layers: as Chinchilla counts it, and as training speeds do
  for (const AttentionCost& layer : layers) {
    full += full_attention_flops(layer, context);
    causal += causal_attention_flops(layer, context);
  }
  plan.forward_flops_per_token = 2 * multiplied + full;
  plan.train_flops_per_token = 3 * plan.forward_flops_per_token - 2 * frozen;
  plan.active_params = multiplied;
  plan.causal_train_flops_per_token = 6 * multiplied - 2 * frozen + causal;
  if (mtp && mtp->num_aux_sums() > 0) {
    // Its layers are like the last one.
    const double modules = static_cast<double>(mtp->size());
    plan.train_flops_per_token += 3 * (2 * predicting + modules * full_attention_flops(layers.back(), context));
    plan.causal_train_flops_per_token += 6 * predicting + modules * causal_attention_flops(layers.back(), context);
  }
  return plan;
}

}  // namespace hone
