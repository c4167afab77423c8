// logits_logprob on a GPU: log-probs of given tokens, and the most likely tokens in order.
//
// Use       every vocabulary of sums.cuh.
// Tile      one row per thread block, after sums_kernel (sums.cuh).
// Roles     1024 threads, all alike.
// Pipeline  none.
// Smem      static: SelectMemory 37 KB and 1.1 KB for the merge of chunks.
// Numerics  log-sum-exp in the order of logsumexp.cuh: the bits of logprob_forward. The top tokens are found by radix
//           selection (select.cuh) and ordered by counting smaller keys.
// PDL       none.
// Limits    fewer than 2^19 tokens in the vocabulary; at most 65,535 rows.
#include "kernels/check_shape.h"
#include "kernels/sampling/draw.cuh"
#include "kernels/sampling/logits_logprob.h"
#include "kernels/sampling/sums.cuh"

namespace hone {
namespace {

struct LogprobRows : SumRows {
  const int32_t* ids;
  float *logp, *raw_logp;
  int32_t* top_ids;
  float* top_logp;
  int64_t top_ids_stride, top_logp_stride;
  int n;
};

__device__ void write_top(const LogprobRows& rows, int64_t r, const RowLogits& row, float lse, SelectMemory& memory) {
  // The key of the n-th most likely token: a bound, then radix selection.
  RowSamplingParams first;
  first.top_k = rows.n;
  uint64_t last = key_bound(row, first, memory);
  const auto each = [&](auto add) {
    each_token(row, last, [&](int v, float z, bool within) {
      if (within) add(row.key(z, v));
    });
  };
  const auto wanted = [&](uint64_t) { return static_cast<uint64_t>(rows.n); };
  last = min(last, select<true>(
                       each, [](uint64_t) { return uint64_t{0}; }, wanted, memory));
  if (threadIdx.x == 0) memory.listed = 0;
  __syncthreads();  // the list is empty
  each([&](uint64_t key) { memory.keys[atomicAdd(&memory.listed, 1)] = key; });
  __syncthreads();  // the list is complete
  if (static_cast<int>(threadIdx.x) >= rows.n) return;
  // Each thread ranks one key.
  const uint64_t key = memory.keys[threadIdx.x];
  int place = 0;
  for (int i = 0; i < rows.n; ++i) place += memory.keys[i] < key;
  const int id = static_cast<int>(key & any_id);
  rows.top_ids[r * rows.top_ids_stride + place] = id;
  rows.top_logp[r * rows.top_logp_stride + place] = row.logits[id] - lse;
}

__global__ void __launch_bounds__(draw_threads) score_kernel(LogprobRows rows) {
  __shared__ SelectMemory memory;
  const int64_t r = blockIdx.x;
  RowLogits row;
  row.logits = rows.logits + r * rows.stride;
  row.V = rows.V;
  row.chunks = rows.chunks;
  row.inv_temperature = 1;
  const float inv_temperature = inverse_temperature_of(rows.params[r]);
  const bool scaled = inv_temperature != 1;
  row.sums = (scaled ? rows.raw_sums : rows.sums) + r * rows.chunks;
  const RowSums raw_sums = merge_row(row.sums, row.chunks),
                sums = scaled ? merge_row(rows.sums + r * rows.chunks, row.chunks) : raw_sums;
  row.max = raw_sums.max;
  row.sum = raw_sums.sum;
  const float raw_lse = raw_sums.value(), lse = sums.value();
  const bool valid = isfinite(raw_lse);
  if (threadIdx.x == 0) {
    const int id = rows.ids[r];
    const bool scored = valid && id >= 0 && id < rows.V;
    rows.logp[r] = scored ? row.logits[id] * inv_temperature - lse : NAN;
    rows.raw_logp[r] = scored ? row.logits[id] - raw_lse : NAN;
  }
  if (rows.n == 0) return;
  if (valid) return write_top(rows, r, row, raw_lse, memory);
  if (static_cast<int>(threadIdx.x) >= rows.n) return;
  rows.top_ids[r * rows.top_ids_stride + threadIdx.x] = -1;
  rows.top_logp[r * rows.top_logp_stride + threadIdx.x] = NAN;
}

void run(Context& context, const LogitsLogprob& args) {
  check_score_rows(args);
  const ScratchScope scope(context);
  LogprobRows rows{};
  sum_rows(context, logits_logprob, rows, args.logits, args.params);
  if (args.logits.dim(0) == 0) return;
  rows.ids = numbers<const int32_t>(args.ids);
  rows.logp = numbers<float>(args.logp);
  rows.raw_logp = numbers<float>(args.raw_logp);
  rows.top_ids = numbers<int32_t>(args.top_ids);
  rows.top_ids_stride = args.top_ids.row_stride;
  rows.top_logp = numbers<float>(args.top_logp);
  rows.top_logp_stride = args.top_logp.row_stride;
  rows.n = static_cast<int>(args.top_ids.dim(1));
  score_kernel<<<static_cast<unsigned>(args.logits.dim(0)), draw_threads, 0, cuda_stream(context)>>>(rows);
  check_launch(logits_logprob);
}

size_t scratch(const LogitsLogprob& args) { return sum_scratch_bytes(args.logits); }

[[maybe_unused]] const bool added = logits_logprob.add({"chunks", DeviceKind::cuda, run, 0, nullptr, scratch});

}  // namespace
}  // namespace hone
