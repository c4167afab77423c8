#pragma once
// What a training step costs before it is run. Memory is measured, not modelled: the step runs on the meta device with
// the code that trains.
#include "core/io/json.h"
#include "model/forward.h"
#include "model/model.h"

namespace hone {

struct ModelFlops {
  int64_t params = 0, trained_params = 0, embedding_params = 0;
  // Multiply-adds counted as two, for one token at the given context length (Chinchilla's appendix F convention:
  // attention included, embedding look-up not). A frozen weight has a gradient of its input, none of its own.
  double forward_flops_per_token = 0, train_flops_per_token = 0;
  // The count that published training speeds use: 6 for each weight that a token is multiplied with, the head once, and
  // causal attention (half of what is above); without norms and biases.
  double active_params = 0, causal_train_flops_per_token = 0;
};
ModelFlops count_flops(Model& model, int64_t context_length);

}  // namespace hone
