// Log-sum-exp on the CPU: merging of ranges.
#include "kernels/lm_head/logsumexp.h"

#include "kernels/cpu/exp.h"

namespace hone {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// A range without weight is left as it is: exp(-inf - max) would be NaN if max is -inf.
LogSumExp rescaled(const LogSumExp& part, float max) {
  if (part.max == minus_infinity) return part;
  const float shift = part.max - max, scale = exp_f32(shift);
  return {max, part.sum * scale, (part.weighted + shift * part.sum) * scale};
}

}  // namespace

float LogSumExp::value() const { return static_cast<float>(max + std::log(static_cast<double>(sum))); }
float LogSumExp::entropy() const {
  return static_cast<float>(std::log(static_cast<double>(sum)) - static_cast<double>(weighted) / sum);
}

void merge(LogSumExp& total, const LogSumExp& next) {
  const float max = std::max(total.max, next.max);
  const LogSumExp a = rescaled(total, max), b = rescaled(next, max);
  total = {max, a.sum + b.sum, a.weighted + b.weighted};
}

LogSumExp log_sum_exp_chunk_specification(const float* logits, int64_t count, float inv_temperature) {
  constexpr int64_t lanes = 16;
  LogSumExp out;
  for (int64_t i = 0; i < count; ++i) out.max = std::max(out.max, logits[i] * inv_temperature);
  const float origin = out.max == minus_infinity ? 0 : out.max;
  float sum[lanes] = {}, weighted[lanes] = {};
  for (int64_t i = 0; i < count; ++i) {
    const float z = logits[i] * inv_temperature - origin, e = exp_f32(z);
    sum[i % lanes] += e;
    weighted[i % lanes] = std::fma(std::max(z, exp_constants::smallest), e, weighted[i % lanes]);
  }
  for (int64_t half = lanes / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) {
      sum[i] += sum[i + half];
      weighted[i] += weighted[i + half];
    }
  out.sum = sum[0];
  out.weighted = weighted[0];
  return out;
}

LogSumExp log_sum_exp(const float* logits, int64_t count, float inv_temperature) {
  LogSumExp total;
  for (int64_t first = 0; first < count; first += logsumexp_chunk)
    merge(total, log_sum_exp_chunk(logits + first, std::min(logsumexp_chunk, count - first), inv_temperature));
  return total;
}

}  // namespace hone
