#pragma once
// Estimators of the KL divergence of the policy from the reference, by one token, with their derivatives.
#include "core/base/registry.h"

namespace hone {

// A part of a token's loss and its derivative with respect to the token's logp.
struct Term {
  double loss = 0, dlogp = 0;
};

// Estimates of KL(policy || reference) from one token, d = logp - reference_logp (Schulman 2020): k1 = d, k2 = d^2 / 2,
// k3 = exp(-d) - 1 + d. As a loss, k1 has a gradient of mean 0, k2 the gradient of the divergence, and k3 one close to
// it.
Term kl_k1(double logp, double reference_logp);
Term kl_k2(double logp, double reference_logp);
Term kl_k3(double logp, double reference_logp);
using KlEstimator = Term (*)(double logp, double reference_logp);
const Registry<KlEstimator>& kl_estimators();  // k1, k2, k3

}  // namespace hone
