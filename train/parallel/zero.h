#pragma once
// ZeRO-2 (Rajbhandari et al. 2020): each rank keeps the optimizer states and the summed gradients of its shard of every
// unit; values are whole on all ranks. It has the bits of one rank: the owner of a shard receives it from every rank
// that has a micro-batch in the round, and adds the parts in the order of the micro-batches.
#include <memory>
#include <span>
#include <vector>

#include "core/comm/ranks.h"
#include "train/gradient_sum.h"
#include "train/step_exchange.h"

namespace hone {

// group must outlive the sum. Units whose gradients have no memory (drop_gradient_memory) are fine.
std::unique_ptr<GradientSum> make_zero2(Context& context, std::vector<GradUnit> units, int64_t piece,
                                        ProcessGroup& group);

// Deals micro-batches to the ranks of a group and exchanges their results once a step.
class ZeroExchange : public StepExchange {
 public:
  explicit ZeroExchange(ProcessGroup& group) : group_(group) {}
  size_t rank() const override { return static_cast<size_t>(group_.rank()); }
  size_t size() const override { return static_cast<size_t>(group_.size()); }
  void check_plan(const StepPlan& plan) override;
  void fold(std::span<MicroBatchResult> results) override;
  std::unique_ptr<GradientSum> make_gradient_sum(Context& context, std::vector<GradUnit> units,
                                                 int64_t piece) override {
    return make_zero2(context, std::move(units), piece, group_);
  }

 private:
  ProcessGroup& group_;
};

// The exchange of a run's ranks; null for one rank. Their group must outlive it.
std::unique_ptr<StepExchange> make_exchange(const Ranks& ranks);

}  // namespace hone
