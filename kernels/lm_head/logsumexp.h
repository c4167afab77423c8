#pragma once
// log sum exp of one row of logits, and its entropy. All callers sum in one order, so that the sampler's log-prob has
// the bits of logprob_forward: a row is cut into chunks of 1024; a chunk sums exp(z - max of the chunk) in 16 lanes
// (element i in lane i mod 16), which are folded in halves; chunks are merged in ascending order.
#include <cstdint>
#include <limits>

namespace hone {

inline constexpr int64_t logsumexp_chunk = 1024;

// Sums over a range of z = logits * inv_temperature. Logits of -inf have no weight. A NaN or +inf makes value() NaN.
struct LogSumExp {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;       // of exp(z - max)
  float weighted = 0;  // of (z - max) exp(z - max)

  float value() const;
  // -sum p log p of p = softmax(z).
  float entropy() const;
};

// The range of `next` follows that of `total`.
void merge(LogSumExp& total, const LogSumExp& next);

// At most logsumexp_chunk logits. The plain loop, and the fastest version for this machine; both have the same bits.
LogSumExp log_sum_exp_chunk_specification(const float* logits, int64_t count, float inv_temperature);
LogSumExp log_sum_exp_chunk(const float* logits, int64_t count, float inv_temperature);

// One row of any length, on the calling thread.
LogSumExp log_sum_exp(const float* logits, int64_t count, float inv_temperature);

}  // namespace hone
