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

// Clip range of ratios. delta: upper bound of the ratio for negative advantages (0: none; above 1 + high). tau: SAPO's
// temperatures for positive advantages and for the others.
struct Clip {
  double low = 0.2, high = 0.2, delta = 0;
  double tau_positive = 1, tau_negative = 1.05;
};

// What a policy term is a function of. ratio: log(ratio) of the token or of its sequence. old_logp: the denominator of
// the token's own ratio.
struct PolicyToken {
  LogRatio ratio = {};
  double logp = 0, old_logp = 0, advantage = 0;
};

// A policy term with its derivatives by log(ratio) and by the token's own logp. clipped_low, clipped_high: the ratio
// was clipped on that side. clipped_surrogate and cispo count it only if the sign of the advantage makes it matter (as
// TRL), cispo_relative always (as verl).
struct PolicyTerm {
  double loss = 0, dratio_term = 0, dlogp_term = 0;
  bool clipped_low = false, clipped_high = false, cut_delta = false;
};
using Surrogate = PolicyTerm (*)(const PolicyToken& token, const Clip& clip);

// -min(r A, clip(r, 1 - low, 1 + high) A), r = exp(ratio) (Schulman et al. 2017, eq. 7); delta bounds r, so a token
// with a negative advantage and a large ratio has no gradient (Ye et al. 2020, eq. 5: dual clip; INTELLECT-2: two-sided
// clip).
PolicyTerm clipped_surrogate(const PolicyToken& token, const Clip& clip);
// -w A logp with w = min(r, high) held constant (MiniMax-M1 2025, eq. 4): every token keeps a gradient. `high` is the
// bound itself, as in TRL.
PolicyTerm cispo(const PolicyToken& token, const Clip& clip);
// The same with w = clip(r, 1 - low, 1 + high), as in the paper and verl.
PolicyTerm cispo_relative(const PolicyToken& token, const Clip& clip);
// -f(r) A with the soft gate f(r) = 4 / tau * sigmoid(tau (r - 1)) in place of the clip (SAPO, Gao et al. 2025): its
// slope is 1 at r = 1 and falls to 0 on both sides. tau is tau_positive if A > 0, else tau_negative.
PolicyTerm sapo(const PolicyToken& token, const Clip& clip);
// -w A logp with w = min(r, delta) held constant (delta 0: 20, verl's default). 0 if the token has left a trust region
// in the direction in which the advantage pushes it: the divergence between p = exp(logp) and p_old, as probabilities
// of this token against all others, is above `high` (A > 0) or `low` (A <= 0). dppo_tv: the divergence is |p - p_old|,
// dppo_kl: the binary KL(p_old, p) (DPPO, Qi et al. 2026; both as in verl). A token outside counts as clipped;
// cut_delta: one inside, whose ratio is above delta.
PolicyTerm dppo_tv(const PolicyToken& token, const Clip& clip);
PolicyTerm dppo_kl(const PolicyToken& token, const Clip& clip);

// The denominator of the ratio: old_logp, else behavior_logp, else logp itself (ratio 1).
std::span<const float> denominator_logp(const TokenBatch& batch);

// Adds sampling/sampling_logp_difference/{mean,max}: |old_logp - behavior_logp| over masked tokens; without old_logp,
// |logp - behavior_logp|. With exact numerics it is exactly 0 until the first update.
void add_sampling_difference(const TokenBatch& batch, MetricSums& metrics);

}  // namespace hone
