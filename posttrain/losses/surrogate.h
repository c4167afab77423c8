#pragma once
// Parts of losses on sampled tokens: values with their derivatives, in double precision. Policy-gradient objectives
// combine them.
#include <cstddef>
#include <span>

#include "train/objective.h"

namespace hone {

// logp - other of a token, clamped to +-20 so that no ratio overflows. Beyond the limit it is constant: `live` is
// false, and derivatives are 0.
struct LogRatio {
  double value = 0;
  bool live = true;
};
LogRatio log_ratio(double logp, double other);

// Clip range of ratios. delta: upper bound of the ratio for negative advantages (0: none; above 1 + high).
struct Clip {
  double low = 0.2, high = 0.2, delta = 0;
};

// A policy term as a function of log(ratio), which may be that of a sequence, and of the token's own logp, with the
// derivative by each. clipped_low, clipped_high: the ratio was clipped on that side. clipped_surrogate and cispo count
// it only if the sign of the advantage makes it matter (as TRL), cispo_relative always (as verl).
struct PolicyTerm {
  double loss = 0, dratio_term = 0, dlogp_term = 0;
  bool clipped_low = false, clipped_high = false, cut_delta = false;
};

// -min(r A, clip(r, 1 - low, 1 + high) A), r = exp(ratio) (Schulman et al. 2017, eq. 7); delta bounds r, so a token
// with a negative advantage and a large ratio has no gradient (Ye et al. 2020, eq. 5: dual clip; INTELLECT-2: two-sided
// clip).
PolicyTerm clipped_surrogate(LogRatio ratio, double logp, double advantage, const Clip& clip);
// -w A logp with w = min(r, high) held constant (MiniMax-M1 2025, eq. 4): every token keeps a gradient. `high` is the
// bound itself, as in TRL.
PolicyTerm cispo(LogRatio ratio, double logp, double advantage, const Clip& clip);
// The same with w = clip(r, 1 - low, 1 + high), as in the paper and verl.
PolicyTerm cispo_relative(LogRatio ratio, double logp, double advantage, const Clip& clip);

// The denominator of the ratio: old_logp, else behavior_logp, else logp itself (ratio 1).
std::span<const float> denominator_logp(const TokenBatch& batch);

// Adds sampling/sampling_logp_difference/{mean,max}: |old_logp - behavior_logp| over masked tokens; without old_logp,
// |logp - behavior_logp|. With exact numerics it is exactly 0 until the first update.
void add_sampling_difference(const TokenBatch& batch, MetricSums& metrics);

}  // namespace hone
