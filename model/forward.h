#pragma once
// Runs the layers of a model. Recomputation is done here and nowhere else.
#include <span>

#include "model/lora.h"
#include "model/model.h"

namespace hone {

struct EmbeddingNoise;  // kernels/elementwise/noise.h

// What forward saves for backward. none: all tensors. selective: those that are costly to recompute
// (SavePolicy::selective). full: each layer's input only; backward runs the layer's forward again.
enum class Recompute : uint8_t { none, selective, full };

// A forward pass for training and its backward. It owns the tape and the layers' inputs, and allocates nothing after
// its largest batch.
class TrainingPass {
 public:
  TrainingPass(Context& context, Model& model, Recompute recompute);
  // Returns hidden [R, D] of the tokens `rows` ([R] i32 on the device): lm_head is computed for rows with a loss only.
  // Valid until backward. `noise` is added to the embeddings; the embedding gradient is that of the sum. With `draws`
  // the adapters use dropout, in backward too.
  Tensor forward(const Batch& batch, Tensor rows, const EmbeddingNoise& noise,
                 const std::optional<DropoutStream>& draws);
  Tensor forward(const Batch& batch, Tensor rows);  // without noise and dropout
  // Adds to the parameters' gradients. The caller computes the gradient of lm_head (kernels/lm_head/logprob.h).
  void backward(Tensor dhidden);
  // Reserves `bytes` for saved tensors in one block. Call it between passes.
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
  Tensor rows_, read_;  // rows of the forward call, and the last layer's output there
  std::optional<DropoutStream> draws_;
};

// Returns hidden [R, D] of the tokens `rows` (empty: all tokens), without a tape, in the scratch of the caller's
// ScratchScope. For log-probs of given tokens and, with a KV view, for generation.
Tensor infer(Context& context, Model& model, const Batch& batch, Tensor rows, const KvView* kv);

}  // namespace hone
