#pragma once
// y = x . w^T in bf16 for some tens to some hundreds of rows of x: too few for gemm_sm90.cuh's tiles to fill the machine. .cu files alone include it.
//
// Here w has the warpgroup products' 64 rows and x their columns, which does not change a bit. A block makes 64 or 128 columns of y for `tokens`
// rows, or a run of their chunks of gemm_cuda_chunk along k: then the chunk sums go to scratch memory, and a second kernel adds them in ascending
// order.
#include "kernels/gemm_cuda.h"
#include "kernels/gemm_epilogue.cuh"
#include "kernels/hopper.cuh"
#include "kernels/launch_dependent.cuh"
#include "kernels/tensor_map.cuh"

namespace hone {

struct GemmSplitShape {
  int M, N;
  int k_stages, chunks;
  int token_tiles;
  int splits;     // blocks that share a tile's chunks
  int per_block;  // chunks of each but the last
  bool pairs;     // y can be written two numbers at a time
};

template <int Warpgroups, int Tokens, int Stages>
struct GemmSplit {
  static constexpr int warpgroups = Warpgroups, rows = 64 * Warpgroups, tokens = Tokens, stages = Stages, depth = 64;
  static constexpr int consumers = 128 * Warpgroups, threads = consumers + 32;
  static constexpr int w_bytes = rows * depth * 2, x_bytes = Tokens * depth * 2, stage_bytes = w_bytes + x_bytes;
  static constexpr int pitch = rows + 4;  // floats of a token's sums; spreads a fragment over all banks
  static_assert(Tokens * pitch * 4 <= Stages * stage_bytes);
  static constexpr int shared_bytes = 1024 + Stages * stage_bytes + 2 * Stages * 8;
};

// Partial sums are [slots, M, N] f32: slot 0 has the total of the first block's chunks, each later chunk has a slot of its own.
template <class Split>
__global__ void __launch_bounds__(Split::threads, 2)
    gemm_split_kernel(const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map, GemmEpilogue epilogue, float* partial,
                      GemmSplitShape shape) {
  using namespace hopper;
  constexpr int chunk_stages = gemm_cuda_chunk / Split::depth;
  extern __shared__ char unaligned[];
  char* ring = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  Barrier* full = reinterpret_cast<Barrier*>(ring + Split::stages * Split::stage_bytes);
  Barrier* empty = full + Split::stages;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0), lane = static_cast<int>(threadIdx.x) % 32;
  const int split = static_cast<int>(blockIdx.x) % shape.splits, tile = static_cast<int>(blockIdx.x) / shape.splits;
  const int row = tile / shape.token_tiles * Split::rows, token = tile % shape.token_tiles * Split::tokens;
  const int first = split * shape.per_block * chunk_stages, end = min(first + shape.per_block * chunk_stages, shape.k_stages);
  if (threadIdx.x == Split::consumers) {
    prefetch_map(w_map), prefetch_map(x_map);
    for (int s = 0; s < Split::stages; ++s) full[s].init(1), empty[s].init(4 * Split::warpgroups);
    publish_barriers();
  }
  __syncthreads();

  if (warp == 4 * Split::warpgroups) {
    if (lane == 0) {
      let_next_start();
      // w comes from outside of the step: it may be read before the kernels before this one are done.
      const int early = min(Split::stages, end - first);
      for (int s = 0; s < early; ++s) {
        full[s].arrive_expecting(Split::stage_bytes);
        load_box(ring + s * Split::stage_bytes, w_map, full[s], (first + s) * Split::depth, row);
      }
      wait_for_previous();
      for (int s = 0; s < early; ++s) load_box(ring + s * Split::stage_bytes + Split::w_bytes, x_map, full[s], (first + s) * Split::depth, token);
      int stage = 0;
      uint32_t parity = 0;
#pragma unroll 1
      for (int k = first + Split::stages; k < end; ++k) {
        empty[stage].wait(parity);
        full[stage].arrive_expecting(Split::stage_bytes);
        char* to = ring + stage * Split::stage_bytes;
        load_box(to, w_map, full[stage], k * Split::depth, row);
        load_box(to + Split::w_bytes, x_map, full[stage], k * Split::depth, token);
        if (++stage == Split::stages) stage = 0, parity ^= 1;
      }
    }
    return;
  }
  const int warpgroup = warp / 4;
  int stage = 0;
  uint32_t parity = 0;
  float total[Split::tokens / 2], sum[Split::tokens / 2];
  const auto multiply = [&](float(&to)[Split::tokens / 2], bool add) {
    full[stage].wait(parity);
    const char* from = ring + stage * Split::stage_bytes;
    const uint64_t a = describe(from + warpgroup * (64 * Split::depth * 2)), b = describe(from + Split::w_bytes);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < Split::depth / 16; ++s) product(to, a + s * 2, b + s * 2, add || s > 0);
    wgmma_commit();
  };
  const auto next = [&] {
    if (++stage == Split::stages) stage = 0, parity ^= 1;
  };
  const auto chunk = [&](float(&to)[Split::tokens / 2], int count) {
    int previous = stage;
    multiply(to, false);
    next();
#pragma unroll 1
    for (int k = 1; k < count; ++k) {
      multiply(to, true);
      wgmma_wait<1>();
      if (lane == 0) empty[previous].arrive();
      previous = stage;
      next();
    }
    wgmma_wait<0>();
    pin(to);
    if (lane == 0) empty[previous].arrive();
  };
  const int thread_row = warp * 16 + lane / 4, thread_token = lane % 4 * 2;
  const auto keep = [&](int slot, const float(&from)[Split::tokens / 2]) {
    float* to = partial + (int64_t{slot} * shape.M + token + thread_token) * shape.N + row + thread_row;
#pragma unroll
    for (int j = 0; j < Split::tokens / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (token + thread_token + 8 * j + e % 2 < shape.M && row + thread_row + e / 2 * 8 < shape.N)
          to[int64_t{8 * j + e % 2} * shape.N + e / 2 * 8] = from[4 * j + e];
  };
  wait_for_previous();
  chunk(total, min(chunk_stages, end - first));
  int slot = split == 0 ? 0 : split * shape.per_block - shape.per_block + 1;
#pragma unroll 1
  for (int k = first + chunk_stages; k < end; k += chunk_stages) {
    chunk(sum, min(chunk_stages, end - k));
    if (split > 0) keep(slot++, total);
#pragma unroll
    for (int e = 0; e < Split::tokens / 2; ++e) total[e] = split > 0 ? sum[e] : total[e] + sum[e];
  }
  if (shape.splits > 1) {
    keep(slot, total);
    return;
  }
  meet(1, Split::consumers);  // all products have read the stages
  float* turned = reinterpret_cast<float*>(ring);
#pragma unroll
  for (int j = 0; j < Split::tokens / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) turned[(thread_token + 8 * j + e % 2) * Split::pitch + thread_row + e / 2 * 8] = total[4 * j + e];
  meet(1, Split::consumers);
  constexpr int lanes = Split::rows / 4;  // threads of a token
  const int n = row + static_cast<int>(threadIdx.x) % lanes * 4;
#pragma unroll 2
  for (int t = static_cast<int>(threadIdx.x) / lanes; t < min(Split::tokens, shape.M - token); t += Split::consumers / lanes) {
    const float4 v = *reinterpret_cast<const float4*>(turned + t * Split::pitch + static_cast<int>(threadIdx.x) % lanes * 4);
    epilogue.store_pair(v.x, v.y, token + t, n, shape.N, shape.pairs);
    epilogue.store_pair(v.z, v.w, token + t, n + 2, shape.N, shape.pairs);
  }
}

// y of the partial sums; a thread has two columns.
static __global__ void __launch_bounds__(128) gemm_join_kernel(const float* partial, int slots, int M, int N, GemmEpilogue epilogue, bool pairs) {
  const int n = (static_cast<int>(blockIdx.x) * 128 + static_cast<int>(threadIdx.x)) * 2, m = static_cast<int>(blockIdx.y);
  hopper::let_next_start();
  hopper::wait_for_previous();
  if (n >= N) return;
  const float* from = partial + int64_t{m} * N + n;
  const int64_t step = int64_t{M} * N;
  const bool both = n + 1 < N, even = N % 2 == 0;
  float first = 0, second = 0;
#pragma unroll 8
  for (int s = 0; s < slots; ++s, from += step) {
    const float2 x = even ? *reinterpret_cast<const float2*>(from) : make_float2(from[0], both ? from[1] : 0);
    first = s == 0 ? x.x : first + x.x, second = s == 0 ? x.y : second + x.y;
  }
  epilogue.store_pair(first, second, m, n, N, pairs);
}

// `splits`: how many blocks share a tile's chunks; at least one chunk each.
template <class Split>
void launch_gemm_split(Context& context, const Tensor& x, const Tensor& w, const GemmEpilogue& epilogue, bool pairs, int splits) {
  const auto pieces = [](int64_t count, int64_t size) { return static_cast<int>((count + size - 1) / size); };
  GemmSplitShape s{};
  s.M = static_cast<int>(x.dim(0)), s.N = static_cast<int>(w.dim(0));
  s.k_stages = pieces(w.dim(1), Split::depth), s.chunks = pieces(w.dim(1), gemm_cuda_chunk);
  s.token_tiles = pieces(s.M, Split::tokens);
  s.pairs = pairs;
  const int tiles = pieces(s.N, Split::rows) * s.token_tiles;
  s.per_block = pieces(s.chunks, splits);
  s.splits = pieces(s.chunks, s.per_block);
  const int slots = 1 + s.chunks - s.per_block;
  const ScratchScope scope(context);
  float* partial = s.splits > 1 ? numbers<float>(context.scratch().take(DType::f32, {slots, s.M, s.N})) : nullptr;
  const auto kernel = gemm_split_kernel<Split>;
  allow_shared_memory(kernel, Split::shared_bytes);
  launch_dependent(cuda_stream(context), kernel, dim3(static_cast<unsigned>(tiles * s.splits)), Split::threads, Split::shared_bytes, 1,
                   map_of(w, Split::rows), map_of(x, Split::tokens), epilogue, partial, s);
  if (s.splits > 1)
    launch_dependent(cuda_stream(context), gemm_join_kernel, dim3(static_cast<unsigned>(pieces(s.N, 256)), static_cast<unsigned>(s.M)), 128, 0, 1,
                     static_cast<const float*>(partial), slots, s.M, s.N, epilogue, pairs);
}

}  // namespace hone
