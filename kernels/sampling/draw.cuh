#pragma once
// The three ways in which a thread block samples a token of a row: greedy, from all tokens, from truncated ones. Only
// .cu and .cuh files include it.
#include "core/base/rng.h"
#include "kernels/sampling/select.cuh"

namespace hone {

// The draw Rng(seed, stream, position).uniform() of the CPU.
__device__ inline double uniform_of(const RowSamplingParams& params) {
  const Philox4 words = philox(params.seed, params.stream, params.position);
  return static_cast<double>(((uint64_t{words.word[1]} << 32) | words.word[0]) >> 11) * 0x1p-53;
}

// Returns the lowest id among the largest logits.
__device__ inline int draw_greedy(const RowLogits& row, SelectMemory& memory) {
  if (threadIdx.x == 0) memory.found = row.V;
  __syncthreads();  // found is initialized
  for (int c = static_cast<int>(threadIdx.x); c < row.chunks; c += draw_threads)
    if (row.sums[c].x == row.max) atomicMin(&memory.found, c);
  __syncthreads();  // found: first chunk with the maximum
  const int v = memory.found * logsumexp_cuda_chunk + static_cast<int>(threadIdx.x);
  __syncthreads();  // all threads have read found
  if (threadIdx.x == 0) memory.found = row.V;
  __syncthreads();  // found is initialized again
  if (threadIdx.x < logsumexp_cuda_chunk && v < row.V && row.z(v) == row.max) atomicMin(&memory.found, v);
  __syncthreads();  // found: first token with the maximum
  return memory.found;
}

struct Drawn {
  int id;
  uint64_t mass;  // total mass of the candidates
};

// Samples the chunk by mass_of(chunk), then the token in it. kept(id, z): whether a token is a candidate.
template <class MassOf, class Kept>
__device__ Drawn draw_by_mass(const RowLogits& row, double uniform, MassOf mass_of, Kept kept, SelectMemory& memory) {
  const int each = (row.chunks + draw_threads - 1) / draw_threads, begin = static_cast<int>(threadIdx.x) * each,
            end = min(begin + each, row.chunks);
  uint64_t own = 0, total = 0, unused = 0;
  for (int c = begin; c < end; ++c) own += mass_of(c);
  uint64_t before = block_scan(own, total, memory);
  const uint64_t drawn = min(static_cast<uint64_t>(uniform * static_cast<double>(total)), total - 1);
  if (before <= drawn && drawn < before + own) {
    int c = begin;
    for (uint64_t mass = mass_of(c); before + mass <= drawn; mass = mass_of(c)) {
      before += mass;
      ++c;
    }
    memory.found = c;
    memory.rest = drawn - before;
  }
  __syncthreads();  // the chunk and the rest of the mass are set
  const int v = memory.found * logsumexp_cuda_chunk + static_cast<int>(threadIdx.x);
  const uint64_t rest = memory.rest;
  const bool inside = threadIdx.x < logsumexp_cuda_chunk && v < row.V;
  const float z = inside ? row.z(v) : 0, weight = inside && kept(v, z) ? row.weight(z) : 0;
  __syncthreads();  // all threads have read them
  if (threadIdx.x == 0) memory.found = 0;
  before = block_scan(fixed(weight), unused, memory);
  // The chunk's mass may be rounded as a whole, not per token. The excess goes to its last token.
  if (weight > 0 && before <= rest) atomicMax(&memory.found, v);
  __syncthreads();  // found: the sampled token
  return {memory.found, total};
}

// Every token that truncation may keep has a key of at most the returned bound.
__device__ inline uint64_t key_bound(const RowLogits& row, const RowSamplingParams& params, SelectMemory& memory) {
  uint64_t bound = ~uint64_t{0};
  const auto at_least = [&](float weight) {
    if (weight > 0) bound = min(bound, row.key(row.max + logf(weight) - 1e-3f - 1e-6f * fabsf(row.max), 0) | any_id);
  };
  const bool top_k = params.top_k > 0 && params.top_k < row.V;
  if (!top_k || params.top_p >= 1) at_least(params.min_p);  // top-p is a share of everything that top-k keeps
  // All tokens below this weight hold at most half of the mass that top-p removes.
  if (params.top_p < 1 && !top_k) at_least(0.5f * (1 - params.top_p) * row.sum / static_cast<float>(row.V));
  if (top_k && params.top_k <= row.chunks) {  // at least top_k chunk maxima are as large as the k-th largest one
    const auto each = [&](auto add) {
      for (int c = static_cast<int>(threadIdx.x); c < row.chunks; c += draw_threads) add(row.key(row.sums[c].x, c));
    };
    const auto wanted = [&](uint64_t) { return static_cast<uint64_t>(params.top_k); };
    bound = min(bound, select<true>(
                           each, [](uint64_t) { return uint64_t{0}; }, wanted, memory) |
                           any_id);
  }
  return bound;
}

struct Truncated {
  int id;
  bool whole;   // nothing was truncated
  double mass;  // mass of the kept tokens; the most likely token has 1
};

// masses: scratch memory, [chunks].
__device__ inline Truncated draw_truncated(const RowLogits& row, const RowSamplingParams& params, double uniform,
                                           uint64_t* masses, SelectMemory& memory) {
  const bool top_k = params.top_k > 0 && params.top_k < row.V;
  uint64_t last = key_bound(row, params, memory);
  const auto each = [&](auto add) {
    each_token(row, last, [&](int v, float z, bool within) {
      if (within) add(row.key(z, v));
    });
  };
  const auto mass_of_key = [&](uint64_t key) { return row.mass(row.z_of(key)); };
  // top-k, then top-p over what it keeps: each lowers `last`, the largest kept key.
  if (top_k) {
    const auto wanted = [&](uint64_t count) { return min(count, static_cast<uint64_t>(params.top_k)); };
    last = min(last, select<true>(each, mass_of_key, wanted, memory));
  }
  if (params.top_p < 1) {
    const auto wanted = [&](uint64_t mass) {
      const double all =
          top_k ? static_cast<double>(mass) : static_cast<double>(row.sum) / mass_unit;  // the bound dropped tokens
      return max(uint64_t{1}, min(static_cast<uint64_t>(ceil(static_cast<double>(params.top_p) * all)), mass));
    };
    last = min(last, select<false>(each, mass_of_key, wanted, memory));
  }

  // Mass of each chunk over the kept tokens, then the draw.
  const auto kept = [&](int v, float z) { return row.key(z, v) <= last && row.weight(z) >= params.min_p; };
  for (int c = static_cast<int>(threadIdx.x); c < row.chunks; c += draw_threads) masses[c] = 0;
  if (threadIdx.x == 0) memory.listed = 0;
  __syncthreads();  // masses and listed are zero
  int count = 0;
  each_token(row, last, [&](int v, float z, bool within) {
    const bool counts = within && kept(v, z);
    count += counts;
    const uint64_t mass = counts ? row.mass(z) : 0;
    constexpr int low_bits = 24;  // the sums of 32 lanes' low and high parts fit 32 bits
    const uint64_t low = __reduce_add_sync(0xffffffffu, static_cast<uint32_t>(mass) & ((1u << low_bits) - 1));
    const uint64_t high = __reduce_add_sync(0xffffffffu, static_cast<uint32_t>(mass >> low_bits));
    if (threadIdx.x % 32 == 0) masses[v / logsumexp_cuda_chunk] += low + (high << low_bits);
  });
  count = __reduce_add_sync(0xffffffffu, count);
  if (threadIdx.x % 32 == 0) atomicAdd(&memory.listed, count);
  __syncthreads();  // masses and the number of kept tokens are complete
  const bool whole = memory.listed == row.V;
  const Drawn drawn = draw_by_mass(
      row, uniform, [&](int c) { return masses[c]; }, kept, memory);
  return {drawn.id, whole, static_cast<double>(drawn.mass) * mass_unit};
}

}  // namespace hone
