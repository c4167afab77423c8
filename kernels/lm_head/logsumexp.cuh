#pragma once
// Log-sum-exp of rows of logits on a GPU. All kernels use one order, so that the log-prob that a sampler records has
// the bits of the one that logprob_forward computes. Only .cu and .cuh files include it.
//
// A row is cut into chunks of 64. In a chunk, place p (0 to 15) adds exp(z - max of the chunk) of columns 2 p and 2 p +
// 1 to that of columns 2 p + 32 and 2 p + 33. Then places are folded by their bits 2, 3, 0 and 1. In a GEMM accumulator
// four threads hold a row of a chunk, four places each. A row in memory is read by eight lanes, two places each. Chunks
// are rescaled to the row's maximum: slot s of lane l adds chunks l + 32 s + 256 i; then slots are folded, then lanes
// by a butterfly.
#include <cmath>

#include "kernels/cuda/cuda.cuh"

namespace hone {

inline constexpr int logsumexp_cuda_chunk = 64;
inline int64_t num_logsumexp_chunks(int64_t V) { return (V + logsumexp_cuda_chunk - 1) / logsumexp_cuda_chunk; }

// Sums of z = logits * inv_temperature in a chunk. sum: of exp(z - max). weighted: of (z - max) * exp(z - max).
struct ChunkSums {
  float max, sum, weighted;
};
// The origin from which z is measured: exp(-inf - -inf) would be NaN.
__device__ inline float origin_of(float max) { return max == -INFINITY ? 0 : max; }
// Bounds log p from below, so that p * log p is 0 where p is 0.
__device__ inline float finite_log(float log_p) { return fmaxf(log_p, -87.0f); }

// Lane l of eight reads columns first + 32 i + 4 l + (0..3) of a row into x[4 i ..]; -inf past the end. packed: the row
// may be read in 16-byte vectors.
__device__ inline void load_chunk(float (&x)[8], const float* row, int64_t first, int64_t V, bool packed) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int64_t column = first + 32 * i + 4 * (threadIdx.x % 8);
    if (packed && column + 4 <= V) {
      const float4 four = *reinterpret_cast<const float4*>(row + column);
      x[4 * i] = four.x;
      x[4 * i + 1] = four.y;
      x[4 * i + 2] = four.z;
      x[4 * i + 3] = four.w;
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) x[4 * i + j] = column + j < V ? row[column + j] : -INFINITY;
    }
  }
}

// Adds the lanes that are `first` apart, then those that are 2 * first apart.
__device__ inline float fold_lanes(float x, int first) {
  x += __shfl_xor_sync(0xffffffffu, x, first);
  return x + __shfl_xor_sync(0xffffffffu, x, 2 * first);
}

// One row of a chunk of which this thread holds `places` places: x[at(i, p, b)] is column b (0, 1) of step i (0, 1) in
// its p-th place. x becomes exp(z - max). All lanes of the warp call it.
template <bool weighted, int places, int size, class At>
__device__ __forceinline__ ChunkSums chunk_sums(float (&x)[size], float inv_temperature, At at) {
  float max = -INFINITY;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int p = 0; p < places; ++p) max = fmaxf(max, fmaxf(x[at(i, p, 0)], x[at(i, p, 1)]));
#pragma unroll
  for (int lanes = 8 / places; lanes > 0; lanes /= 2) max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, lanes));
  max *= inv_temperature;
  const float origin = origin_of(max);
  float sum[places], weight[places];
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int p = 0; p < places; ++p) {
      float &e0 = x[at(i, p, 0)], &e1 = x[at(i, p, 1)];
      const float z0 = e0 * inv_temperature - origin, z1 = e1 * inv_temperature - origin;
      e0 = exp_approx(z0);
      e1 = exp_approx(z1);
      const float pair = e0 + e1;
      sum[p] = i == 0 ? pair : sum[p] + pair;
      if constexpr (weighted) {
        const float both = fmaf(finite_log(z1), e1, finite_log(z0) * e0);
        weight[p] = i == 0 ? both : weight[p] + both;
      }
    }
  const auto folded = [](const float(&of)[places]) {
    if constexpr (places == 2) {  // lanes: bits 1, 2, 3 of the place
      const float both = fold_lanes(of[0], 2) + fold_lanes(of[1], 2);
      return both + __shfl_xor_sync(0xffffffffu, both, 1);
    } else {  // lanes: bits 0 and 1
      return fold_lanes((of[0] + of[1]) + (of[2] + of[3]), 1);
    }
  };
  return {max, folded(sum), weighted ? folded(weight) : 0};
}

// A chunk in the layout of load_chunk(); all eight lanes get the result.
template <bool weighted>
__device__ inline ChunkSums chunk_sums_of_lanes(float (&x)[8], float inv_temperature) {
  return chunk_sums<weighted, 2>(x, inv_temperature, [](int i, int p, int b) { return 4 * i + 2 * p + b; });
}
// A chunk in the accumulator layout: thread t of four holds column 8 j + 2 t + b in x[first + 4 * j + b]. All four get
// the result.
template <bool weighted, int size>
__device__ __forceinline__ ChunkSums chunk_sums_of_quad(float (&x)[size], int first, float inv_temperature) {
  return chunk_sums<weighted, 4>(x, inv_temperature,
                                 [first](int i, int p, int b) { return first + 16 * i + 4 * p + b; });
}

struct RowSums {
  float max, sum, weighted;
  __device__ float value() const { return static_cast<float>(max + log(static_cast<double>(sum))); }
  __device__ float entropy() const {
    return static_cast<float>(log(static_cast<double>(sum)) - static_cast<double>(weighted) / sum);
  }
};

// Sum and weighted sum of a row, or partial sums of them.
struct MergedSums {
  float sum, weighted;
  __device__ void add(float2 chunk, float chunk_weighted, float origin) {
    const float shift = chunk.x - origin, scale = exp_approx(shift);
    sum = fmaf(chunk.y, scale, sum);
    weighted = fmaf(fmaf(finite_log(shift), chunk.y, chunk_weighted), scale, weighted);
  }
};
inline constexpr int merge_slots = 8;
template <class X>
__device__ float fold_slots(X x) {
  return ((x(0) + x(1)) + (x(2) + x(3))) + ((x(4) + x(5)) + (x(6) + x(7)));
}

// Merges a row's chunks (max, sum) and, unless nullptr, their weighted sums. One warp; all lanes get the result.
__device__ inline RowSums merge_chunks(const float2* chunks, const float* weighted, int count) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float max = -INFINITY;
#pragma unroll 4
  for (int c = lane; c < count; c += 32) max = fmaxf(max, chunks[c].x);
  max = warp_max(max);
  const float origin = origin_of(max);
  MergedSums slots[merge_slots] = {};
  for (int c = lane; c < count; c += 32 * merge_slots)
#pragma unroll
    for (int s = 0; s < merge_slots; ++s)
      if (const int at = c + 32 * s; at < count) slots[s].add(chunks[at], weighted ? weighted[at] : 0, origin);
  return {max, warp_sum(fold_slots([&](int s) { return slots[s].sum; })),
          warp_sum(fold_slots([&](int s) { return slots[s].weighted; }))};
}
// The same without weighted sums, one slot per warp. `shared` holds merge_slots * 32 floats; max: that of all chunks.
// After a __syncthreads() any warp folds the slots with merged().
__device__ inline void merge_slot(float* shared, const float2* chunks, int count, int slot, float max) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  MergedSums sums{};
#pragma unroll 4
  for (int c = lane + 32 * slot; c < count; c += 32 * merge_slots) sums.add(chunks[c], 0, origin_of(max));
  shared[32 * slot + lane] = sums.sum;
}
__device__ inline RowSums merged(const float* shared, float max) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return {max, warp_sum(fold_slots([&](int s) { return shared[32 * s + lane]; })), 0};
}

}  // namespace hone
