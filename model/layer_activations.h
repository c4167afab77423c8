#pragma once
// LayerActivations: what a layer computes inside, for measures of how much its parts matter (model/prune/). The dense
// families have it.
#include "model/tape.h"

namespace hone {

struct LayerActivations {
  Tensor attn_out;   // [T, heads * head_dim]: the heads' outputs side by side, the input of the output projection
  Tensor activated;  // [T, intermediate_size]: the input of the MLP's last matrix
};

class LayerActivationSource {
 public:
  virtual ~LayerActivationSource() = default;
  // Pops what Model::forward_layer(layer) left on a tape that saves all. The tensors are valid until the next push.
  virtual LayerActivations restore_activations(int64_t layer, Tape& tape) const = 0;
};

}  // namespace hone
