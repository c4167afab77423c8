#pragma once
// Runs the layers of a model. Recomputation is done here and nowhere else.
#include <span>

#include "model/lora.h"
#include "model/model.h"
#include "model/mtp.h"
#include "model/units.h"

namespace hone {

struct EmbeddingNoise;  // kernels/elementwise/noise.h

// What forward saves for backward. none: all tensors. selective: those that are costly to recompute
// (SavePolicy::selective). full: each layer's input only; backward runs the layer's forward again.
enum class Recompute : uint8_t { none, selective, full };

// A forward pass for training and its backward. It owns the tape and the layers' inputs, and allocates nothing after
// its largest batch.
class TrainingPass {
 public:
  // hooks: called at the borders of units; null: none. All arguments must outlive the pass.
  TrainingPass(Context& context, Model& model, Recompute recompute, UnitHooks* hooks = nullptr);
  // Returns hidden [R, D] of the tokens `rows` ([R] i32 on the device): lm_head is computed for rows with a loss only.
  // Valid until backward. `noise` is added to the embeddings; the embedding gradient is that of the sum. With `draws`
  // the adapters use dropout, in backward too. With `aux` the layers add to its sums, and backward adds the gradients
  // of their losses; its tensors must live until then. The sums of multi-token prediction are added by backward
  // (model/mtp.h).
  Tensor forward(const Batch& batch, Tensor rows, const EmbeddingNoise& noise,
                 const std::optional<DropoutStream>& draws, const AuxLoss& aux = {});
  Tensor forward(const Batch& batch, Tensor rows);  // without noise and dropout
  // Begins the backward pass of the units that lm_head's gradient and that of its input belong to. Call it before work
  // that adds to lm_head's gradient (kernels/lm_head/logprob.h); otherwise backward() calls it.
  void begin_backward();
  // Adds to the parameters' gradients.
  void backward(Tensor dhidden);
  // Call the hooks of forward(), or of backward(), and compute nothing: only other ranks have something to compute.
  void skip_forward();
  void skip_backward();
  // Reserves `bytes` for saved tensors in one block. Call it between passes.
  void reserve(size_t bytes) { tape_.reserve(bytes); }
  // Frees the saved tensors' memory. Call it between passes that the device has done.
  void free_memory() { tape_.free_memory(); }
  size_t peak_bytes() const { return tape_.peak_bytes(); }
  size_t capacity_bytes() const { return tape_.capacity_bytes(); }

 private:
  size_t back_unit() const { return static_cast<size_t>(model_.shape().num_layers) + 1; }
  bool front_stays_open() const { return back_adds_to_front(model_); }
  void learn_further_ahead(Tensor dx);
  void begin_front_backward();

  Context& context_;
  Model& model_;
  Recompute recompute_;
  UnitHooks* hooks_;
  bool began_backward_ = false;
  Tape tape_;
  std::vector<Tensor> inputs_;  // of each layer, on the tape; the output of the last; then SharedKv::k, v by group
  Batch batch_;
  Tensor rows_, read_;  // rows of the forward call, and the last layer's output there
  std::optional<DropoutStream> draws_;
  AuxLoss aux_;
};

// Returns hidden [R, D] of the tokens `rows` (empty: all tokens), without a tape, in the scratch of the caller's
// ScratchScope. For log-probs of given tokens and, with a KV view, for generation. With model.value_hooks() all ranks
// make equally many passes; skip_infer() is one that computes nothing.
Tensor infer(Context& context, Model& model, const Batch& batch, Tensor rows, const KvView* kv);
void skip_infer(Context& context, Model& model);

}  // namespace hone
