#pragma once
// ParamUpdate: the gradients and the optimizer of one list of parameters (the policy's, or a critic's).
#include <memory>
#include <span>
#include <string>

#include "train/gradient_sum.h"
#include "train/optim/optimizer.h"
#include "train/optim/param_groups.h"

namespace hone {

// Clip factor and norm of gradients that are clipped together, f32 [1] on the device.
struct GradNorm {
  Tensor clip, norm;
};

class ParamUpdate : public Stateful {
 public:
  // list: in the names of random streams (Optimizer::attach).
  ParamUpdate(Context& context, std::unique_ptr<GradientSum> gradients, std::unique_ptr<Optimizer> optimizer,
              std::string list = "", std::span<const ParamGroup> groups = {});
  GradientSum& gradients() { return *gradients_; }
  const GradientSum& gradients() const { return *gradients_; }
  // One update with clipped gradients. step counts from 1.
  void apply(const GradNorm& norm, int64_t step, double learning_rate);
  double learning_rate_of(int64_t step, double scheduled) const {
    return optimizer_->learning_rate_of(step, scheduled);
  }
  int64_t state_bytes() const { return optimizer_->state_bytes(); }

  void save_state(StateSection& section) const override { optimizer_->save_state(section); }
  void load_state(const StateSection& section) override { optimizer_->load_state(section); }

 private:
  Context& context_;
  std::unique_ptr<GradientSum> gradients_;
  std::unique_ptr<Optimizer> optimizer_;
};

// Queues the norm of the gradients of all `updates`, clipped to max_norm (0: no clip). Memory is taken from `arena`.
// The sum is over the pieces of all units, in an order that their number alone decides.
GradNorm queue_norm(Context& context, Arena& arena, std::span<ParamUpdate* const> updates, double max_norm);

}  // namespace hone
