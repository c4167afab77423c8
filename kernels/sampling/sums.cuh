#pragma once
// Log-sum-exp of the rows of logits that sample.cu and logits_logprob.cu start from. Only .cu and .cuh files include
// it.
//
// Use       first launch of both ops.
// Tile      sums_kernel: 64 chunks of 64 tokens of one row per block. Grid: chunk tiles x rows.
// Roles     256 threads; eight lanes share two chunks.
// Pipeline  none: a thread loads both chunks before it uses the first.
// Smem      none. merge_row(): static 1.1 KB.
// Numerics  the order of logsumexp.cuh, for z = logits / temperature and, if the temperature is not 1, for the logits.
// PDL       none.
// Limits    fewer than 2^19 tokens in the vocabulary; at most 65,535 rows.
#include "kernels/sampling/select.cuh"

namespace hone {

inline constexpr int sum_threads = 256, chunks_per_block = sum_threads / 4;

struct SumRows {
  const float* logits;
  int64_t stride;
  int V, chunks;
  bool packed;
  const RowSamplingParams* params;
  float2 *sums, *raw_sums;  // [S, chunks]; raw_sums is written where the temperature is not 1
};

__device__ inline float inverse_temperature_of(const RowSamplingParams& params) {
  return params.temperature == 0 ? 1 : 1 / params.temperature;
}

// Eight lanes compute two chunks of a row.
static __global__ void __launch_bounds__(sum_threads) sums_kernel(SumRows rows) {
  const int64_t r = blockIdx.y;
  const int chunk = static_cast<int>(blockIdx.x * chunks_per_block + threadIdx.x / 8);
  const float inv_temperature = inverse_temperature_of(rows.params[r]);
  float x[2][8];
#pragma unroll
  for (int c = 0; c < 2; ++c)
    load_chunk(x[c], rows.logits + r * rows.stride, int64_t{chunk + c * (sum_threads / 8)} * logsumexp_cuda_chunk,
               rows.V, rows.packed);
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const int at = chunk + c * (sum_threads / 8);
    const bool writes = at < rows.chunks && threadIdx.x % 8 == 0;
    if (inv_temperature != 1) {
      float copy[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) copy[i] = x[c][i];
      const ChunkSums raw = chunk_sums_of_lanes<false>(copy, 1);
      if (writes) rows.raw_sums[r * rows.chunks + at] = {raw.max, raw.sum};
    }
    const ChunkSums sums = chunk_sums_of_lanes<false>(x[c], inv_temperature);
    if (writes) rows.sums[r * rows.chunks + at] = {sums.max, sums.sum};
  }
}

// merge_chunks() by a thread block; all threads get the result.
__device__ inline RowSums merge_row(const float2* chunks, int count) {
  __shared__ float maxima[32], slots[32 * merge_slots];
  float max = -INFINITY;
  for (int c = static_cast<int>(threadIdx.x); c < count; c += draw_threads) max = fmaxf(max, chunks[c].x);
  __syncthreads();  // a call before this one has read the shared arrays
  max = block_max(max, maxima);
  const int warp = static_cast<int>(threadIdx.x / 32);
  if (warp < merge_slots) merge_slot(slots, chunks, count, warp, max);
  __syncthreads();  // all slots are in shared memory
  return merged(slots, max);
}

// Fills in `rows` and queues sums_kernel. Takes sum_scratch_bytes() of scratch memory.
inline void sum_rows(Context& context, const OpBase& op, SumRows& rows, const Tensor& logits, const Tensor& params) {
  const int64_t S = logits.dim(0), V = logits.dim(1), chunks = num_logsumexp_chunks(V);
  constexpr int64_t most_rows = 65535;
  HONE_CHECK(V > 0 && V < most_vocabulary, op.name(), ": the vocabulary has ", V, " tokens; it must have 1 to ",
             most_vocabulary - 1);
  HONE_CHECK(S <= most_rows, op.name(), ": logits has ", S, " rows; the maximum is ", most_rows);
  HONE_CHECK(params.dtype == DType::u8 && params.size() == S * static_cast<int64_t>(sizeof(RowSamplingParams)),
             op.name(), ": params has ", params.size(), " bytes, but needs ", S, " times ", sizeof(RowSamplingParams));
  HONE_CHECK(reinterpret_cast<uintptr_t>(params.data) % alignof(RowSamplingParams) == 0, op.name(),
             ": params must be aligned to ", alignof(RowSamplingParams), " bytes");
  rows.logits = numbers<const float>(logits);
  rows.stride = logits.row_stride;
  rows.V = static_cast<int>(V);
  rows.chunks = static_cast<int>(chunks);
  rows.packed = logits.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(logits.data) % 16 == 0;
  rows.params = static_cast<const RowSamplingParams*>(params.data);
  rows.sums = numbers<float2>(context.scratch().take(DType::f32, {S, 2 * chunks}));
  rows.raw_sums = numbers<float2>(context.scratch().take(DType::f32, {S, 2 * chunks}));
  if (S == 0) return;
  sums_kernel<<<dim3(static_cast<unsigned>((chunks + chunks_per_block - 1) / chunks_per_block),
                     static_cast<unsigned>(S)),
                sum_threads, 0, cuda_stream(context)>>>(rows);
}
inline size_t sum_scratch_bytes(const Tensor& logits) {
  return static_cast<size_t>(logits.dim(0) * num_logsumexp_chunks(logits.dim(1))) * 2 * sizeof(float2);
}

}  // namespace hone
