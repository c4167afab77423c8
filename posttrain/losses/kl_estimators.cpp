#include "posttrain/losses/kl_estimators.h"

#include <cmath>

#include "posttrain/losses/surrogate.h"

namespace hone {

Term kl_k1(double logp, double reference_logp) { return {logp - reference_logp, 1}; }

Term kl_k2(double logp, double reference_logp) {
  const double d = logp - reference_logp;
  return {0.5 * d * d, d};
}

Term kl_k3(double logp, double reference_logp) {
  const LogRatio q = log_ratio(reference_logp, logp);
  return {std::expm1(q.value) - q.value, q.live ? -std::expm1(q.value) : 0};
}

const Registry<KlEstimator>& kl_estimators() {
  static const Registry<KlEstimator> registry = [] {
    Registry<KlEstimator> r("KL estimator");
    r.add("k1", kl_k1);
    r.add("k2", kl_k2);
    r.add("k3", kl_k3);
    return r;
  }();
  return registry;
}

}  // namespace hone
