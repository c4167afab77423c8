#pragma once
// A loss measured without learning from it.
#include <span>

#include "train/objective.h"
#include "train/trainer.h"

namespace hone {

// The objective's loss and metrics over all samples under the model as it is, as one step's would be: "loss" and what
// the objective measures. Members of a pair are adjacent. Results do not depend on how the samples are packed.
Metrics measure_loss(Context& context, Model& model, Trainer& trainer, double temperature,
                     std::span<const Sample* const> samples, const Objective& objective);

}  // namespace hone
