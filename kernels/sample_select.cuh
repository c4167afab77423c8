#pragma once
// Selection among the tokens of a row by a block of threads: the shortest run of tokens, in some order, that holds so much. Counts and masses are
// integers, hence the same whatever order threads add them in. .cu files alone include it.
#include "core/rng.h"
#include "kernels/logsumexp.cuh"
#include "kernels/sample.h"

namespace hone {

inline constexpr int draw_threads = 512;
inline constexpr int id_bits = 24;
inline constexpr int mass_bits = 43;
inline constexpr int64_t most_vocabulary = int64_t{1} << (62 - mass_bits);  // so many masses of 1 are added in 64 bits
inline constexpr int most_listed = 4096;

struct SelectMemory {
  uint64_t mass[256];
  uint32_t count[256];
  uint64_t warp_sums[draw_threads / 32];
  uint64_t rest, before;
  int found, digit, listed;
  int ids[most_listed];
  float z[most_listed];
};

// exp(z - max) as an integer; and back.
__device__ inline uint64_t fixed(float weight) { return __float2ull_rn(weight * static_cast<float>(int64_t{1} << mass_bits)); }
inline constexpr double mass_unit = 1.0 / static_cast<double>(int64_t{1} << mass_bits);
// What a uniform draw in [0, 1) makes of [0, total).
__device__ inline uint64_t part_of(uint64_t total, double uniform) {
  const uint64_t part = static_cast<uint64_t>(uniform * static_cast<double>(total));
  return part < total ? part : total - 1;
}

struct RowLogits {
  const float* logits;
  const float2* sums;  // of the chunks
  int V, chunks;
  float inv_temperature, max, sum;

  __device__ float z(int v) const { return logits[v] * inv_temperature; }
  __device__ float weight(float z) const { return exp_approx(z - max); }
  __device__ uint64_t mass(float z) const { return fixed(weight(z)); }
  // Ascending keys are tokens by falling z (-0 is 0), then by ascending id. Eighths of the distance from the maximum lead, so that the first digit
  // tells tokens apart whose exponents are equal.
  __device__ uint64_t key(float z, int id) const {
    const uint32_t bits = __float_as_uint(z + 0.0f), ordered = bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
    const uint64_t eighths = static_cast<uint64_t>(fminf((max - z) * 8, 255.0f));
    return (eighths << 32 | ordered) << id_bits | static_cast<uint64_t>(id);
  }
};

// What the threads before this one hold, and what all do. Every thread has read it when a later __syncthreads() is passed.
__device__ inline uint64_t block_scan(uint64_t own, uint64_t& total, SelectMemory& memory) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  uint64_t sum = own;
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const uint64_t other = __shfl_up_sync(0xffffffffu, sum, lanes);
    if (lane >= lanes) sum += other;
  }
  __syncthreads();
  if (lane == 31) memory.warp_sums[warp] = sum;
  __syncthreads();
  uint64_t before = sum - own;
  total = 0;
  for (int w = 0; w < draw_threads / 32; ++w) {
    if (w < warp) before += memory.warp_sums[w];
    total += memory.warp_sums[w];
  }
  return before;
}

struct Selection {
  uint64_t last;         // no item of the run has a larger key, no other item a key as small
  uint64_t mass, count;  // of all items
};

// each(add) calls add(key, mass) for this thread's items; keys have `bits` bits, a multiple of 8, and differ. wanted(mass, count of all items) is
// what the run holds at least, in mass or, where by_count, in items.
template <bool by_count, class Each, class Wanted>
__device__ Selection select(Each each, int bits, Wanted wanted, SelectMemory& memory) {
  Selection out{};
  uint64_t prefix = 0, before = 0, target = 0;
  for (int shift = bits - 8; shift >= 0; shift -= 8) {
    __syncthreads();
    if (threadIdx.x < 256) memory.mass[threadIdx.x] = 0, memory.count[threadIdx.x] = 0;
    __syncthreads();
    each([&](uint64_t key, uint64_t mass) {
      if (shift + 8 < bits && key >> (shift + 8) != prefix) return;
      const uint32_t digit = static_cast<uint32_t>(key >> shift) & 255u;
      atomicAdd(&memory.count[digit], 1u);
      if (!by_count) atomicAdd(reinterpret_cast<unsigned long long*>(&memory.mass[digit]), static_cast<unsigned long long>(mass));
    });
    __syncthreads();
    const uint64_t count = threadIdx.x < 256 ? memory.count[threadIdx.x] : 0, mass = threadIdx.x < 256 ? memory.mass[threadIdx.x] : 0;
    uint64_t total = 0;
    if (shift == bits - 8) {
      block_scan(count, out.count, memory);
      if (!by_count) block_scan(mass, out.mass, memory);
      target = wanted(out.mass, out.count);
    }
    const uint64_t own = by_count ? count : mass, from = before + block_scan(own, total, memory);
    if (from < target && target <= from + own) memory.digit = static_cast<int>(threadIdx.x), memory.before = from;
    __syncthreads();
    const int digit = memory.digit;
    prefix = prefix << 8 | static_cast<uint64_t>(digit), before = memory.before;
    const uint64_t unknown = (uint64_t{1} << shift) - 1;
    out.last = prefix << shift | unknown;
    if (memory.count[digit] == 1) break;
  }
  __syncthreads();
  return out;
}

struct Truncated {
  int id;
  bool whole;   // nothing was truncated
  double mass;  // of what was kept, in units of the likeliest token
};

// Every token that truncation may keep has a key of at most this, whatever its id.
__device__ inline uint64_t key_bound(const RowLogits& row, const SampleParams& params, SelectMemory& memory) {
  constexpr uint64_t any_id = (uint64_t{1} << id_bits) - 1;
  uint64_t bound = ~uint64_t{0};
  const auto at_least = [&](float weight) {
    if (weight > 0) bound = min(bound, row.key(row.max + logf(weight) - 1e-3f - 1e-6f * fabsf(row.max), 0) | any_id);
  };
  const bool top_k = params.top_k > 0 && params.top_k < row.V;
  if (!top_k || params.top_p >= 1) at_least(params.min_p);  // top-p takes its part of all that top-k leaves
  // All tokens below this weight hold at most half of what top-p leaves out.
  if (params.top_p < 1 && !top_k) at_least(0.5f * (1 - params.top_p) * row.sum / static_cast<float>(row.V));
  if (top_k && params.top_k <= row.chunks) {  // so many maxima of chunks are as large
    const auto each = [&](auto add) {
      for (int c = static_cast<int>(threadIdx.x); c < row.chunks; c += draw_threads) add(row.key(row.sums[c].x, c), 0);
    };
    const Selection chosen = select<true>(
        each, 64, [&](uint64_t, uint64_t) { return static_cast<uint64_t>(params.top_k); }, memory);
    bound = min(bound, chosen.last | any_id);
  }
  return bound;
}

__device__ inline Truncated draw_truncated(const RowLogits& row, const SampleParams& params, double uniform, SelectMemory& memory) {
  const uint64_t bound = key_bound(row, params, memory);
  // Tokens within the bound, by warps: a chunk at a time.
  const auto each_of_row = [&](auto visit) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    for (int c = static_cast<int>(threadIdx.x / 32); c < row.chunks; c += draw_threads / 32) {
      if (row.key(row.sums[c].x, 0) > bound) continue;
#pragma unroll
      for (int i = 0; i < logsumexp_cuda_chunk; i += 32) {
        const int v = c * logsumexp_cuda_chunk + i + lane;
        if (v >= row.V) continue;
        const float z = row.z(v);
        if (row.key(z, v) <= bound) visit(v, z);
      }
    }
  };
  if (threadIdx.x == 0) memory.listed = 0;
  __syncthreads();
  each_of_row([&](int v, float z) {
    const int place = atomicAdd(&memory.listed, 1);
    if (place < most_listed) memory.ids[place] = v, memory.z[place] = z;
  });
  __syncthreads();
  const int listed = memory.listed;
  const auto each_token = [&](auto visit) {
    if (listed > most_listed) return each_of_row(visit);
    for (int i = static_cast<int>(threadIdx.x); i < listed; i += draw_threads) visit(memory.ids[i], memory.z[i]);
  };

  uint64_t last = ~uint64_t{0};
  const auto each_key = [&](auto add) {
    each_token([&](int v, float z) {
      const uint64_t key = row.key(z, v);
      if (key <= last) add(key, row.mass(z));
    });
  };
  if (params.top_k > 0 && params.top_k < row.V)
    last = select<true>(
               each_key, 64, [&](uint64_t, uint64_t count) { return min(count, static_cast<uint64_t>(params.top_k)); }, memory)
               .last;
  if (params.top_p < 1) {
    const bool of_row = params.top_k <= 0 || params.top_k >= row.V;  // the list lacks some of the row's mass
    const auto wanted = [&](uint64_t mass, uint64_t) {
      const double all = of_row ? static_cast<double>(row.sum) / mass_unit : static_cast<double>(mass);
      const uint64_t part = static_cast<uint64_t>(ceil(static_cast<double>(params.top_p) * all));
      return max(uint64_t{1}, min(part, mass));
    };
    last = min(last, select<false>(each_key, 64, wanted, memory).last);  // its low bits may be unknown
  }
  const auto each_id = [&](auto add) {
    each_token([&](int v, float z) {
      if (row.key(z, v) <= last && row.weight(z) >= params.min_p) add(static_cast<uint64_t>(v), row.mass(z));
    });
  };
  const Selection drawn = select<false>(
      each_id, id_bits, [&](uint64_t mass, uint64_t) { return part_of(mass, uniform) + 1; }, memory);
  if (threadIdx.x == 0) memory.found = 0;
  __syncthreads();
  each_id([&](uint64_t v, uint64_t) {
    if (v <= drawn.last) atomicMax(&memory.found, static_cast<int>(v));
  });
  __syncthreads();
  return {memory.found, drawn.count == static_cast<uint64_t>(row.V), static_cast<double>(drawn.mass) * mass_unit};
}

}  // namespace hone
