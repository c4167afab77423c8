#pragma once
// log sum exp of one row of logits, and what else comes of the same pass. One order of sums for every caller, so that
// the log-prob a sampler records has the bits of the one logprob_forward computes: a row is cut into chunks of 1024, a
// chunk sums exp(z - max of the chunk) in 16 interleaved lanes (element i goes to lane i mod 16) that are then folded
// in halves, and chunks are merged in ascending order.
#include <cstdint>
#include <limits>

namespace hone {

inline constexpr int64_t logsumexp_chunk = 1024;

// Of z = logits * inv_temperature over some range. Logits of -inf have no weight; a NaN or +inf makes value() NaN.
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

// At most logsumexp_chunk logits. The plain loop, and the fastest this machine runs: the same bits.
LogSumExp log_sum_exp_chunk_specification(const float* logits, int64_t count, float inv_temperature);
LogSumExp log_sum_exp_chunk(const float* logits, int64_t count, float inv_temperature);

// A whole row, on the calling thread.
LogSumExp log_sum_exp(const float* logits, int64_t count, float inv_temperature);

}  // namespace hone
