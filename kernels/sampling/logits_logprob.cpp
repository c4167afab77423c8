// CPU specification of logits_logprob.
#include "kernels/sampling/logits_logprob.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/lm_head/logsumexp.h"
#include "kernels/sampling/internal.h"

namespace hone {

void check_score_rows(const LogitsLogprob& args) {
  const int64_t S = args.logits.dim(0), V = args.logits.dim(1), n = args.top_ids.dim(1);
  check_shape(logits_logprob, "logits", args.logits, {S, V});
  check_shape(logits_logprob, "ids", args.ids, {S}, DType::i32);
  check_shape(logits_logprob, "logp", args.logp, {S});
  check_shape(logits_logprob, "raw_logp", args.raw_logp, {S});
  check_shape(logits_logprob, "top_ids", args.top_ids, {S, n}, DType::i32);
  check_shape(logits_logprob, "top_logp", args.top_logp, {S, n});
  check_shape(logits_logprob, "params", args.params, {S * static_cast<int64_t>(sizeof(RowSamplingParams))}, DType::u8);
  HONE_CHECK(V > 0, "logits_logprob: the vocabulary is empty");
  HONE_CHECK(n <= std::min(V, max_top_logprobs), "logits_logprob: top_ids has ", n,
             " columns; the maximum is the smaller of ", max_top_logprobs, " and the vocabulary of ", V);
}

namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

void run(Context&, const LogitsLogprob& args) {
  check_score_rows(args);
  const int64_t V = args.logits.dim(1), n = args.top_ids.dim(1);
  std::vector<int32_t> order(static_cast<size_t>(V));
  for (int64_t r = 0; r < args.logits.dim(0); ++r) {
    const float* const row = args.logits.row<float>(r);
    const float inv_temperature = inverse_temperature(params_of(args.params, r).temperature),
                raw_lse = log_sum_exp(row, V, 1).value(),
                lse = inv_temperature == 1 ? raw_lse : log_sum_exp(row, V, inv_temperature).value();
    const bool valid = std::isfinite(raw_lse);
    const int32_t id = args.ids.ptr<int32_t>()[r];
    const bool scored = valid && id >= 0 && id < V;
    args.logp.ptr<float>()[r] = scored ? row[id] * inv_temperature - lse : nan;
    args.raw_logp.ptr<float>()[r] = scored ? row[id] - raw_lse : nan;
    std::iota(order.begin(), order.end(), 0);
    if (valid)
      std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end(),
                        [row](int32_t a, int32_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
    for (int64_t i = 0; i < n; ++i) {
      const int32_t top = order[static_cast<size_t>(i)];
      args.top_ids.row<int32_t>(r)[i] = valid ? top : -1;
      args.top_logp.row<float>(r)[i] = valid ? row[top] - raw_lse : nan;
    }
  }
}

[[maybe_unused]] const bool added = logits_logprob.add({"specification", DeviceKind::cpu, run});

}  // namespace
}  // namespace hone
