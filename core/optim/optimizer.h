#pragma once
// Optimizers over a model's parameters; one file each. They own their states (f32 on the model's device).
#include <memory>

#include "core/checkpoint.h"
#include "core/fields.h"
#include "core/model/model.h"
#include "core/registry.h"

namespace hone {

class Optimizer : public Stateful {
 public:
  virtual void fields(Fields&) {}
  // Makes the states (zero) for the model's trainable parameters.
  virtual void attach(Context& context, Model& model) = 0;
  // One update with the gradients as they are, each multiplied by clip [1] f32. step counts from 1.
  virtual void update(Context& context, Model& model, Tensor clip, int64_t step, double learning_rate) = 0;
  virtual int64_t state_bytes() const = 0;
};

using OptimizerFactory = std::unique_ptr<Optimizer> (*)();
Registry<OptimizerFactory>& optimizers();   // adamw, sgd, rmsprop

}  // namespace hone
