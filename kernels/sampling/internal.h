#pragma once
// Argument checks and row parameters of the CPU bodies of sampling.
#include <cstring>

#include "kernels/check_shape.h"
#include "kernels/lm_head/logsumexp.h"
#include "kernels/sampling/sample.h"

namespace hone {

inline RowSamplingParams params_of(const Tensor& params, int64_t r) {
  RowSamplingParams out;
  std::memcpy(&out, params.ptr<uint8_t>() + static_cast<size_t>(r) * sizeof(RowSamplingParams),
              sizeof(RowSamplingParams));
  return out;
}

// Throws Error for shapes that disagree and parameters out of range.
inline void check_sample_rows(const SampleRows& args) {
  const int64_t S = args.logits.dim(0), V = args.logits.dim(1);
  check_shape(sample_rows, "logits", args.logits, {S, V});
  check_shape(sample_rows, "ids", args.ids, {S}, DType::i32);
  check_shape(sample_rows, "logp", args.logp, {S});
  check_shape(sample_rows, "truncated_logp", args.truncated_logp, {S});
  check_shape(sample_rows, "raw_logp", args.raw_logp, {S});
  HONE_CHECK(V > 0, "sample_rows: the vocabulary is empty");
  HONE_CHECK(
      args.params.dtype == DType::u8 && args.params.size() == S * static_cast<int64_t>(sizeof(RowSamplingParams)),
      "sample_rows: params hold ", args.params.size(), " bytes, not ", S, " times ", sizeof(RowSamplingParams));
  for (int64_t r = 0; r < S; ++r) {
    const RowSamplingParams p = params_of(args.params, r);
    HONE_CHECK(p.temperature >= 0, "sample_rows: row ", r, " has temperature ", p.temperature, ", not 0 or more");
    HONE_CHECK(p.top_p > 0, "sample_rows: row ", r, " has top_p ", p.top_p, ", not above 0");
    HONE_CHECK(p.min_p >= 0 && p.min_p <= 1, "sample_rows: row ", r, " has min_p ", p.min_p, ", not in [0, 1]");
    HONE_CHECK(p.top_k >= 0, "sample_rows: row ", r, " has top_k ", p.top_k, ", not 0 (all) or more");
  }
}

// Throws Error for a row that has no distribution.
inline void check_row_sums(int64_t r, const LogSumExp& sums) {
  HONE_CHECK(
      sums.value() > -std::numeric_limits<float>::infinity() && sums.value() < std::numeric_limits<float>::infinity(),
      "sample_rows: the logits of row ", r, " hold a NaN, an infinity, or nothing but -infinity");
}

}  // namespace hone
