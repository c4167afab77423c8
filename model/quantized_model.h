#pragma once
// QuantizedModel: a model for rollouts whose layers multiply by 8-bit copies of another model's matrices, those of
// experts included. Embedding, norms, routers, biases, adapters and lm_head are read from the source model. The source
// model, and training, do not change.
#include <memory>

#include "kernels/quant/quantized_matrix.h"
#include "model/model.h"

namespace hone {

// int8, fp8.
const Registry<QuantFormat>& quant_formats();

class QuantizedModel {
 public:
  // Allocates the copies. `source` must outlive this object. With SourceWeights::free the source's matrices are
  // freed: the source then serves this object only, and must not change.
  enum class SourceWeights : uint8_t { keep, free };
  QuantizedModel(Context& context, Model& source, QuantFormat format, SourceWeights after = SourceWeights::keep);
  // For infer() only: it has no gradients.
  Model& model() { return *model_; }
  // Quantizes the source's current weights again. Call it between passes. After free_memory() it allocates the copies,
  // and reads the source's weights where they are now.
  void refresh();
  // Frees the copies. The model computes nothing until refresh(). Only with SourceWeights::keep; the device must have
  // done all passes.
  void free_memory();
  size_t bytes() const { return memory_.size(); }

 private:
  void allocate();

  Context& context_;
  Model& source_;
  const QuantFormat format_;
  std::unique_ptr<Model> model_;
  Buffer memory_;
};

}  // namespace hone
