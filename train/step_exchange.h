#pragma once
// StepExchange: the ranks that train a model together, as the trainer sees them. It deals the micro-batches of a step,
// tells every rank what the others found, and adds their gradients. This class is that of one rank.
#include <memory>
#include <span>
#include <vector>

#include "train/gradient_sum.h"
#include "train/objective.h"

namespace hone {

struct StepPlan;  // train/step_plan.h

// What a micro-batch adds to the step's loss and metrics. They are added up in the order of the plan.
struct MicroBatchResult {
  double loss = 0;
  MetricSums metrics;
  std::vector<float> aux_sums;  // AuxLoss::sums
};

class StepExchange {
 public:
  virtual ~StepExchange() = default;
  virtual size_t rank() const { return 0; }
  virtual size_t size() const { return 1; }
  // Rank r runs the micro-batches r, r + size(), ...
  bool is_own(size_t index) const { return index % size() == rank(); }
  // Throws an AgreedError on all ranks if their plans of a step differ: their exchanges would not match.
  virtual void check_plan(const StepPlan& /*plan*/) {}
  // Sets the results of other ranks' micro-batches.
  virtual void fold(std::span<MicroBatchResult> /*results*/) {}
  // The gradients of one list of parameters. model: whose units the first ones are; null: they are of no model.
  virtual std::unique_ptr<GradientSum> make_gradient_sum(Context& context, Model* /*model*/,
                                                         std::vector<GradUnit> units, int64_t piece) {
    return make_local_gradient_sum(context, std::move(units), piece);
  }
};

}  // namespace hone
