#pragma once
// Selection among a row's tokens by a thread block: the shortest prefix of the most likely tokens that holds a wanted
// count or mass. Counts and masses are integers, so the result does not depend on the order in which threads add them.
// Only .cu and .cuh files include it.
#include "kernels/lm_head/logsumexp.cuh"
#include "kernels/sampling/sample.h"

namespace hone {

inline constexpr int draw_threads = 1024, draw_warps = draw_threads / 32;
inline constexpr int id_bits = 24, key_bits = 64;
inline constexpr uint64_t any_id = (uint64_t{1} << id_bits) - 1;
inline constexpr int mass_bits = 43;
inline constexpr int64_t most_vocabulary = int64_t{1} << (62 - mass_bits);  // this number of masses of 1 fits 64 bits
inline constexpr double mass_unit = 1.0 / static_cast<double>(int64_t{1} << mass_bits);
inline constexpr int most_listed = 4096;

// Masses are added in parts of part_bits: shared memory adds 32 bits in one instruction, but 64 bits in a
// compare-and-swap loop.
inline constexpr int part_bits = 11, mass_parts = (mass_bits + part_bits) / part_bits;

struct SelectMemory {
  uint32_t mass[mass_parts][256];
  uint32_t count[256];
  uint64_t warp_sums[draw_warps];
  uint64_t rest, before;
  int found, digit, listed;
  uint64_t keys[most_listed];
};

// A weight exp(z - max) as an integer, in units of mass_unit.
__device__ inline uint64_t fixed(float weight) {
  return __float2ull_rn(weight * static_cast<float>(int64_t{1} << mass_bits));
}

struct RowLogits {
  const float* logits;
  const float2* sums;  // (max, sum) of the chunks
  int V, chunks;
  float inv_temperature, max, sum;

  __device__ float z(int v) const { return logits[v] * inv_temperature; }
  __device__ float weight(float z) const { return exp_approx(z - max); }
  __device__ uint64_t mass(float z) const { return fixed(weight(z)); }
  // Ascending keys are tokens by falling z (-0 is 0), then by ascending id. The top bits are the distance from the
  // maximum in eighths, so that the first digit separates tokens whose exponents are equal.
  __device__ uint64_t key(float z, int id) const {
    const uint32_t bits = __float_as_uint(z + 0.0f), ordered = bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
    const uint64_t eighths = static_cast<uint64_t>(fminf((max - z) * 8, 255.0f));
    return (eighths << 32 | ordered) << id_bits | static_cast<uint64_t>(id);
  }
  __device__ static float z_of(uint64_t key) {
    const uint32_t ordered = static_cast<uint32_t>(key >> id_bits);
    return __uint_as_float(ordered & 0x80000000u ? ordered : ~ordered & 0x7fffffffu);
  }
};

// Returns the sum over the threads before this one; total: the sum over all threads.
__device__ inline uint64_t block_scan(uint64_t own, uint64_t& total, SelectMemory& memory) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const auto scan = [lane](uint64_t sum) {
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const uint64_t other = __shfl_up_sync(0xffffffffu, sum, lanes);
      if (lane >= lanes) sum += other;
    }
    return sum;
  };
  const uint64_t sum = scan(own);
  __syncthreads();  // warp_sums of the call before have been read
  if (lane == 31) memory.warp_sums[warp] = sum;
  __syncthreads();  // warp_sums are complete
  const uint64_t warps = scan(memory.warp_sums[lane]);
  total = __shfl_sync(0xffffffffu, warps, 31);
  const uint64_t before = __shfl_sync(0xffffffffu, warps, (warp + 31) % 32);
  return (warp == 0 ? 0 : before) + sum - own;
}
static_assert(draw_warps == 32);

// Calls visit(id, z, within) for the tokens of all chunks that hold a key of at most `bound`; within: the token's key
// is at most `bound`. A warp looks at sixteen chunks and loads four at once. All of its lanes call visit together.
template <class Visit>
__device__ void each_token(const RowLogits& row, uint64_t bound, Visit visit) {
  constexpr int looked_at = 16, at_once = 4, steps = logsumexp_cuda_chunk / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int first = looked_at * static_cast<int>(threadIdx.x / 32); first < row.chunks;
       first += looked_at * draw_warps) {
    const int own = first + lane;
    uint32_t wanted = __ballot_sync(
        0xffffffffu, lane < looked_at && own < row.chunks && row.key(row.sums[min(own, row.chunks - 1)].x, 0) <= bound);
    while (wanted != 0) {
      int begin[at_once];
      float z[at_once][steps];
#pragma unroll
      for (int c = 0; c < at_once; ++c) {
        begin[c] = wanted != 0 ? (first + __ffs(static_cast<int>(wanted)) - 1) * logsumexp_cuda_chunk : row.V;
        wanted &= wanted - 1;
#pragma unroll
        for (int i = 0; i < steps; ++i) {
          const int v = begin[c] + 32 * i + lane;
          z[c][i] = v < row.V ? row.z(v) : 0;
        }
      }
#pragma unroll
      for (int c = 0; c < at_once; ++c)
#pragma unroll
        for (int i = 0; i < steps; ++i) {
          const int v = begin[c] + 32 * i + lane;
          if (begin[c] < row.V) visit(v, z[c][i], v < row.V && row.key(z[c][i], v) <= bound);
        }
    }
  }
}

// Returns the largest key of the shortest prefix of items, in ascending order of keys, that holds wanted(total mass or
// count): in mass or, if by_count, in items. Keys differ. The low bits of the result may be ones if no other key shares
// the bits above them. each(add) calls add(key) for this thread's items, the same in every call; mass_of(key) is an
// item's mass.
template <bool by_count, class Each, class Mass, class Wanted>
__device__ uint64_t select(Each each, Mass mass_of, Wanted wanted, SelectMemory& memory) {
  uint64_t prefix = 0, before = 0, target = 0, last = 0;
  bool listed = false;
  for (int shift = key_bits - 8; shift >= 0; shift -= 8) {
    const auto inside = [&](uint64_t key) { return shift + 8 == key_bits || key >> (shift + 8) == prefix; };
    const auto add = [&](uint64_t key) {
      if (!inside(key)) return;
      const uint32_t digit = static_cast<uint32_t>(key >> shift) & 255u;
      atomicAdd(&memory.count[digit], 1u);
      if constexpr (!by_count) {
        const uint64_t mass = mass_of(key);
#pragma unroll
        for (int i = 0; i < mass_parts; ++i)
          atomicAdd(&memory.mass[i][digit], static_cast<uint32_t>(mass >> (i * part_bits)) & ((1u << part_bits) - 1));
      }
    };
    __syncthreads();  // all threads have read the counters of the digit before
    if (threadIdx.x < 256) memory.count[threadIdx.x] = 0;
    for (int i = static_cast<int>(threadIdx.x); !by_count && i < mass_parts * 256; i += draw_threads)
      memory.mass[i / 256][i % 256] = 0;
    __syncthreads();  // counters are zero
    if (listed)
      for (int i = static_cast<int>(threadIdx.x); i < memory.listed; i += draw_threads) add(memory.keys[i]);
    else
      each(add);
    __syncthreads();  // counters are complete
    uint64_t own = 0, total = 0;
    if (by_count && threadIdx.x < 256) own = memory.count[threadIdx.x];
    for (int i = 0; !by_count && threadIdx.x < 256 && i < mass_parts; ++i)
      own += static_cast<uint64_t>(memory.mass[i][threadIdx.x]) << (i * part_bits);
    const uint64_t from = before + block_scan(own, total, memory);
    if (shift + 8 == key_bits) target = wanted(total);
    if (from < target && target <= from + own) {
      memory.digit = static_cast<int>(threadIdx.x);
      memory.before = from;
    }
    if (threadIdx.x == 0 && !listed) memory.listed = 0;
    __syncthreads();  // the digit is chosen
    const uint32_t digit = static_cast<uint32_t>(memory.digit), left = memory.count[digit];
    prefix = prefix << 8 | digit;
    before = memory.before;
    last = prefix << shift | ((uint64_t{1} << shift) - 1);
    if (left == 1) break;
    if (!listed && left <= most_listed) {
      each([&](uint64_t key) {
        if (key >> shift == prefix) memory.keys[atomicAdd(&memory.listed, 1)] = key;
      });
      listed = true;
    }
  }
  __syncthreads();  // all threads have read the result; memory may be reused
  return last;
}

}  // namespace hone
