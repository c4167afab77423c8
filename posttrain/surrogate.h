#pragma once
// What losses on sampled tokens are made of: each part is a number and its derivative with respect to logp, in double precision. A policy-gradient
// objective is a choice of them.
#include <cstddef>
#include <span>

#include "core/model/objective.h"

namespace hone {

// A part of a token's loss and its derivative.
struct Term {
  double loss = 0, slope = 0;
};

// logp - other of a token, kept within +-20 so that no ratio overflows. Past the limit it is constant: `live` is false, and derivatives are 0.
struct LogRatio {
  double value = 0;
  bool live = true;
};
LogRatio log_ratio(double logp, double other);

// -min(r A, clip(r, 1 - low, 1 + high) A), r = exp(ratio) (Schulman et al. 2017, eq. 7). Which side the clip cut, if any:
struct ClippedTerm : Term {
  bool cut_low = false, cut_high = false;
};
ClippedTerm clipped_surrogate(LogRatio ratio, double advantage, double low, double high);

// The k3 estimate of KL(policy || reference), exp(q) - q - 1 with q = reference - logp (Schulman 2020).
Term kl_k3(double logp, double reference_logp);

// What the ratio's denominator is: old_logp, else behavior_logp; with neither the policy itself (ratio 1).
std::span<const float> denominator_logp(const TokenBatch& batch);

// sampling/sampling_logp_difference/{mean,max}: |behavior_logp - logp| over masked tokens. On-policy it is exactly 0.
void add_sampling_difference(const TokenBatch& batch, MetricSums& metrics);

}  // namespace hone
