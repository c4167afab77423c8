#include "posttrain/losses/importance.h"

#include <algorithm>
#include <cmath>

#include "posttrain/losses/surrogate.h"

namespace hone {
namespace {

struct Mode {
  bool on, sequence, truncate;
};

const Registry<Mode>& modes() {
  static const Registry<Mode> registry = [] {
    Registry<Mode> r("importance_sampling_mode");
    r.add("none", {false, false, false});
    r.add("token_truncate", {true, false, true});
    r.add("token_mask", {true, false, false});
    r.add("sequence_truncate", {true, true, true});
    r.add("sequence_mask", {true, true, false});
    return r;
  }();
  return registry;
}

}  // namespace

void ImportanceCorrection::fields(Fields& f) {
  f("importance_sampling_mode", mode,
    "auto | none | token_truncate | token_mask | sequence_truncate | sequence_mask: weight of a completion by the "
    "learner's probability divided by the sampler's; auto: token_truncate if max_staleness is above 0, the sampler is "
    "quantized, or sampling truncates, penalizes or biases the distribution; else none");
  f("importance_sampling_clip_max", clip_max, "upper bound of the weight");
  f("importance_sampling_clip_min", clip_min, "lower bound of the weight");
  f.require("importance_sampling_mode", mode == "auto" || modes().contains(mode), modes().unknown(mode) + ", auto");
  f.require("importance_sampling_clip_max", clip_max >= 1, "importance_sampling_clip_max must be 1 or more");
  f.require("importance_sampling_clip_min", clip_min >= 0 && clip_min <= 1,
            "importance_sampling_clip_min must be in [0, 1]");
}

void ImportanceCorrection::resolve(bool off_policy) {
  if (mode == "auto" && off_policy) mode = "token_truncate";
}

std::vector<double> ImportanceCorrection::weights(const TokenBatch& batch, size_t s, MetricSums& metrics) const {
  const Mode& kind = modes().at(mode);
  const auto begin = static_cast<size_t>(batch.offsets[s]), end = static_cast<size_t>(batch.offsets[s + 1]);
  const auto bounded = [&](double difference) {
    const double weight = std::exp(log_ratio(difference, 0).value), kept = std::clamp(weight, clip_min, clip_max);
    return kind.truncate || kept == weight ? kept : 0;
  };
  const auto observe = [&](double weight, double count) {
    metrics.minimum("sampling/importance_sampling_ratio/min", weight);
    metrics.add("sampling/importance_sampling_ratio/mean", count * weight, count);
    metrics.maximum("sampling/importance_sampling_ratio/max", weight);
  };
  const std::span<const float> mask = batch[columns::mask], old_logp = batch[columns::old_logp],
                               behavior_logp = batch[columns::behavior_logp];
  std::vector<double> out(end - begin, 0);
  double sum = 0;
  bool any = false;
  for (size_t t = begin; t < end; ++t) {
    if (mask[t] == 0) continue;
    const double difference = static_cast<double>(old_logp[t]) - behavior_logp[t];
    any = true;
    sum += mask[t] * difference;
    if (!kind.sequence) observe(out[t - begin] = bounded(difference), mask[t]);
  }
  if (!kind.sequence || !any) return out;
  const double weight = bounded(sum);
  observe(weight, 1);
  for (size_t t = begin; t < end; ++t)
    if (mask[t] != 0) out[t - begin] = weight;
  return out;
}

}  // namespace hone
