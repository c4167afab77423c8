#pragma once
// Drives a model's layers: the one place that knows recomputation.
#include <span>

#include "kernels/elementwise/noise.h"
#include "model/lora.h"
#include "model/model.h"

namespace hone {

// What is kept from forward to backward: everything; what is costly to make again (Keep::costly); or each layer's input
// alone (the layer's forward then runs twice).
enum class Recompute : uint8_t { none, selective, full };

// A forward pass for training and its backward. The tape and the layers' inputs are its own; it may be used again and
// again, and allocates nothing once it has seen its largest batch.
class TrainingPass {
 public:
  TrainingPass(Context& context, Model& model, Recompute recompute);
  // hidden [R, D] of the token rows `rows` ([R] i32 on the device; rows that no loss reads are never multiplied by the
  // head). Valid until backward. `noise` is added to the embeddings; their gradient is that of the sum. Adapters drop
  // inputs as `draws` says, in the backward pass, too; without it they do not.
  Tensor forward(const Batch& batch, Tensor rows, const EmbeddingNoise& noise = {},
                 const std::optional<DropoutStream>& draws = {});
  // Adds to the parameters' gradients (the head's own are the caller's, kernels/lm_head/logprob.h).
  void backward(Tensor dhidden);
  // Room for a forward pass that keeps so much, in one piece; between passes.
  void reserve(size_t bytes) { tape_.reserve(bytes); }
  size_t peak_bytes() const { return tape_.peak_bytes(); }
  size_t capacity_bytes() const { return tape_.capacity_bytes(); }

 private:
  Context& context_;
  Model& model_;
  Recompute recompute_;
  Tape tape_;
  std::vector<Tensor> inputs_;  // of each layer, on the tape; last the output of the last layer
  Batch batch_;
  Tensor rows_, read_;  // the rows asked for, and the last output there
  std::optional<DropoutStream> draws_;
};

// hidden [R, D] of the token rows `rows` (or empty: of every token) without a tape, in context.scratch() (inside the
// caller's ScratchScope): scoring and, with a KV view, generation.
Tensor infer(Context& context, Model& model, const Batch& batch, Tensor rows, const KvView* kv);

}  // namespace hone
