#include "model/flops.h"

#include <algorithm>

#include "model/modules.h"
#include "model/mtp.h"

namespace hone {

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
  const ModelShape& shape = model.shape();
  const auto context = static_cast<double>(context_length), heads = static_cast<double>(shape.num_attention_heads),
             dim = static_cast<double>(shape.head_dim);
  // One layer of full attention: q . k, softmax and the weighted sum of v over all keys.
  const double attention = 2 * context * heads * dim + 3 * context * heads + 2 * context * heads * dim;
  plan.forward_flops_per_token = 2 * multiplied + static_cast<double>(shape.num_layers) * attention;
  plan.train_flops_per_token = 3 * plan.forward_flops_per_token - 2 * frozen;
  plan.active_params = multiplied;
  plan.causal_train_flops_per_token =
      6 * multiplied - 2 * frozen + 6 * static_cast<double>(shape.num_layers) * heads * dim * context;
  if (mtp && mtp->num_aux_sums() > 0) {
    const double layers = static_cast<double>(mtp->size());
    plan.train_flops_per_token += 3 * (2 * predicting + layers * attention);
    plan.causal_train_flops_per_token += 6 * predicting + 6 * layers * heads * dim * context;
  }
  return plan;
}

}  // namespace hone
