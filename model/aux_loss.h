#pragma once
// Losses made inside a layer: the balance of a router, its z-loss. They have no column: a layer computes its term in
// the forward pass and adds the term's gradient in its backward pass.
#include "core/device/tensor.h"
#include "core/io/metrics.h"

namespace hone {

// What a training pass gives to the layers. Both empty: the pass has no such losses.
struct AuxLoss {
  // [T] f32: each token's share of the step's mean over tokens, for losses that have no target, such as the balance of
  // a router. It is 1 / (number of tokens of the step), of prompts too, as transformers counts every token that is not
  // padding; 0 in a sequence without trained tokens, or of a sample that the step skips. So micro-batches change a
  // term by rounding only.
  Tensor weights{};
  // [T] f32: each token's share of the step's loss as a target, for multi-token prediction; empty without it. It is
  // 1 / (number of trained tokens of the step) where the token is trained on, else 0; with another unit of the loss,
  // the tokens of a sequence share the sequence's part.
  Tensor target_weights{};
  // [Model::num_aux_sums()] f32, added to: sums over the tokens of the step, of all layers or of the layer in question.
  // Empty in a forward pass that backward repeats.
  Tensor sums{};
};

// What a layer makes of the sums of a whole step, over micro-batches and ranks.
struct AuxReport {
  double loss = 0;  // added to the step's loss
  // Means over layers; a name that ends in max is the largest, in min the smallest.
  void add(const std::string& name, double value);
  Metrics metrics() const;

 private:
  struct Entry {
    double value = 0;
    int64_t count = 0;
  };
  std::map<std::string, Entry> entries_;
};

}  // namespace hone
