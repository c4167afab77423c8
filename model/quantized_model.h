#pragma once
// QuantizedModel: a model's double for rollouts, whose layers multiply by copies of its matrices in one byte a number.
// Everything else (embedding, norms, biases, adapters, head) it reads where the model has it; the model itself, and
// whoever trains it, sees nothing of this.
#include <memory>

#include "kernels/quant/quantize.h"
#include "model/model.h"

namespace hone {

// int8, fp8.
const Registry<QuantFormat>& quant_formats();

class QuantizedModel {
 public:
  // Memory for the copies is taken here, once. `source` outlives this. What it was of, the matrices, is given up where
  // nobody else needs them (Source::shrinks): then it is of no use but for this, and does not change.
  enum class SourceWeights : uint8_t { stays, shrinks };
  QuantizedModel(Context& context, Model& source, QuantFormat format, SourceWeights after = SourceWeights::stays);
  // It has no gradients and no state: for infer() alone.
  Model& model() { return *model_; }
  // Makes the copies again, of the source's weights as they are now; between passes.
  void refresh();
  size_t bytes() const { return memory_.size(); }

 private:
  Context& context_;
  std::unique_ptr<Model> model_;
  Buffer memory_;
};

}  // namespace hone
