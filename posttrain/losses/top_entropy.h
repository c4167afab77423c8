#pragma once
// Top-entropy token selection: the policy term of the loss is that of the tokens with the highest entropy (Wang et al.
// 2025, "Beyond the 80/20 rule"). The key is TRL's.
//
// The threshold is a quantile of the entropies of all trained tokens of the rollout batch, under the weights before its
// epochs. TRL takes the quantile over what its devices hold in one forward pass, under the current weights, so that the
// number of devices and the micro-batch size change the selection. Here every rank has the entropies of the whole batch
// before the first update: ranks, micro-batches and mini-batches change nothing, and the epochs train on the same
// tokens. The first update's weights are those before the epochs, so its entropies are TRL's.
#include <span>

#include "train/objective.h"

namespace hone {

namespace columns {
inline const Column old_entropy =
    register_column("old_entropy", {.doc = "the learner's entropy before the step's epochs", .alias = "entropy"});
inline const Column top_entropy =
    register_column("top_entropy", {.doc = "1 where a token is among those of highest entropy (top_entropy_quantile)"});
}  // namespace columns

struct TopEntropy {
  double quantile = 1;

  void fields(Fields& f);
  bool on() const { return quantile < 1; }
  // Adds the columns that select() reads and writes.
  void add_needs(Needs& needs) const;
  // Writes top_entropy: 1 for masked tokens whose old_entropy is at least the (1 - quantile) quantile of all of them.
  // Adds top_entropy/threshold, in nats, and top_entropy/selected, the share of tokens.
  void select(std::span<Group> groups, MetricSums& metrics) const;
};

// torch.quantile of float32 values, with its interpolation and its arithmetic, so that a value on the border is
// selected here if it is selected there. Reorders the values; there must be one.
float quantile_of(std::span<float> values, double q);

}  // namespace hone
