// sample_rows on a GPU: sampling with temperature, top-k, top-p and min-p.
//
// Use       every vocabulary of sums.cuh.
// Tile      one row per thread block, after sums_kernel (sums.cuh).
// Roles     1024 threads, all alike.
// Pipeline  none.
// Smem      static: SelectMemory 37 KB and 1.1 KB for the merge of chunks.
// Numerics  probability masses are integers, so a sum has one value in any order. Truncation is a radix selection over
//           the tokens that pass a bound from the chunk maxima. The draw is a function of (seed, stream, position).
// PDL       none.
// Limits    fewer than 2^19 tokens in the vocabulary; at most 65,535 rows.
#include "kernels/check_shape.h"
#include "kernels/sampling/draw.cuh"
#include "kernels/sampling/sample.h"
#include "kernels/sampling/sums.cuh"

namespace hone {
namespace {

struct SampledRows : SumRows {
  uint64_t* masses;  // [S, chunks], used with truncation
  int32_t* ids;
  float *logp, *truncated_logp, *raw_logp;
};

__global__ void __launch_bounds__(draw_threads) draw_kernel(SampledRows rows) {
  __shared__ SelectMemory memory;
  const int64_t r = blockIdx.x;
  const RowSamplingParams params = rows.params[r];
  RowLogits row;
  row.logits = rows.logits + r * rows.stride;
  row.sums = rows.sums + r * rows.chunks;
  row.V = rows.V;
  row.chunks = rows.chunks;
  row.inv_temperature = inverse_temperature_of(params);
  const bool scaled = row.inv_temperature != 1;
  const RowSums sums = merge_row(row.sums, row.chunks),
                raw_sums = scaled ? merge_row(rows.raw_sums + r * rows.chunks, row.chunks) : sums;
  const float lse = sums.value(), raw_lse = raw_sums.value();
  row.max = sums.max;
  row.sum = sums.sum;

  // Sample: greedy, truncated, or from all tokens. A row without a finite log-sum-exp gives -1.
  int id = -1;
  float truncated_logp = 0;
  if (isfinite(lse)) {
    if (params.temperature == 0) {
      id = draw_greedy(row, memory);
    } else if ((params.top_k > 0 && params.top_k < row.V) || params.top_p < 1 || params.min_p > 0) {
      const Truncated drawn = draw_truncated(row, params, uniform_of(params), rows.masses + r * rows.chunks, memory);
      id = drawn.id;
      truncated_logp = drawn.whole ? row.z(id) - lse
                                   : static_cast<float>(static_cast<double>(row.z(id) - row.max) - log(drawn.mass));
    } else {
      const auto mass_of = [&](int c) { return fixed(row.sums[c].y * exp_approx(row.sums[c].x - row.max)); };
      id = draw_by_mass(
               row, uniform_of(params), mass_of, [](int, float) { return true; }, memory)
               .id;
      truncated_logp = row.z(id) - lse;
    }
  }
  if (threadIdx.x != 0) return;
  rows.ids[r] = id;
  rows.logp[r] = id < 0 ? NAN : row.z(id) - lse;
  rows.truncated_logp[r] = id < 0 ? NAN : truncated_logp;
  rows.raw_logp[r] = id < 0 ? NAN : row.logits[id] - raw_lse;
}

void run(Context& context, const SampleRows& args) {
  const int64_t S = args.logits.dim(0), V = args.logits.dim(1), chunks = num_logsumexp_chunks(V);
  check_shape(sample_rows, "logits", args.logits, {S, V});
  check_shape(sample_rows, "ids", args.ids, {S}, DType::i32);
  check_shape(sample_rows, "logp", args.logp, {S});
  check_shape(sample_rows, "truncated_logp", args.truncated_logp, {S});
  check_shape(sample_rows, "raw_logp", args.raw_logp, {S});
  if (S == 0) return;
  const ScratchScope scope(context);
  SampledRows rows{};
  sum_rows(context, sample_rows, rows, args.logits, args.params);
  rows.masses = numbers<uint64_t>(context.scratch().take(DType::f32, {S, 2 * chunks}));
  rows.ids = numbers<int32_t>(args.ids);
  rows.logp = numbers<float>(args.logp);
  rows.truncated_logp = numbers<float>(args.truncated_logp);
  rows.raw_logp = numbers<float>(args.raw_logp);
  draw_kernel<<<static_cast<unsigned>(S), draw_threads, 0, cuda_stream(context)>>>(rows);
  check_launch(sample_rows);
}

size_t scratch(const SampleRows& args) {
  return sum_scratch_bytes(args.logits) +
         static_cast<size_t>(args.logits.dim(0) * num_logsumexp_chunks(args.logits.dim(1))) * sizeof(uint64_t);
}

[[maybe_unused]] const bool added = sample_rows.add({"chunks", DeviceKind::cuda, run, 0, nullptr, scratch});

}  // namespace
}  // namespace hone
