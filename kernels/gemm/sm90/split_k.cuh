#pragma once
// Split-K GEMM for tens to hundreds of rows on Hopper: y = x . w^T with an epilogue (output.cuh), bf16 operands. Only
// .cu and .cuh files include it.
//
// Use       up to 512 rows that small_m.cuh does not support, where the tiles of wgmma.cuh would not occupy the SMs
//           (tuning.cuh chooses).
// Tile      64 or 128 rows of w (one or two output tiles of two ranges of 32) by 16, 32, 64 or 128 rows of x,
//           K step 64. w is the M operand of wgmma, x the N operand: this changes no bit. With splits > 1 a block
//           computes some K chunks of a tile, and a join kernel adds them.
// Roles     one or two consumer warpgroups of 64 rows of w each; the last warp's lane 0 is the producer (TMA). Join
//           kernels: 128 threads, all alike, two columns or four pairs per thread.
// Pipeline  4 to 8 smem stages of w (8 KB per warpgroup) and x (128 bytes per row), one full and one empty mbarrier
//           each.
// Smem      1 KB alignment + stages + mbarriers: 61, 65, 81, 97 KB (2 blocks per SM) or 193 KB (128 rows of x, 1
//           block). The epilogue reuses the stages for a transpose. Join kernels: none.
// Numerics  K chunks of gemm_cuda_chunk, each from zero, added in ascending order, across blocks too: bits equal
//           wgmma.cuh.
// PDL       triggers dependents at the start; prefetches w into all stages before griddep_wait(). Join kernels trigger,
//           then wait, at the start.
// Limits    sm_90a; rows of x and w 16-byte aligned.
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/pdl.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/gemm/internal.h"
#include "kernels/gemm/mma/split_k_join.cuh"

namespace hone {

struct GemmSplitKShape {
  int M;
  int columns;  // columns of the partial sums: 64 per output tile, or N if the ranges are adjacent
  int k_stages, chunks;
  int token_tiles;
  int splits;     // thread blocks that share a tile's chunks
  int per_block;  // chunks of each but the last block
};

template <int Warpgroups, int Tokens, int Stages>
struct GemmSplitK {
  static constexpr int warpgroups = Warpgroups, rows = 64 * Warpgroups, tokens = Tokens, stages = Stages, depth = 64;
  static constexpr int consumers = 128 * Warpgroups, threads = consumers + 32;
  static constexpr int w_bytes = rows * depth * 2, x_bytes = Tokens * depth * 2, stage_bytes = w_bytes + x_bytes;
  // Rows of x per TMA box if x has M rows: filling rows outside the matrix with zeros takes longer than leaving them
  // out.
  __host__ __device__ static constexpr int rows_read(int M) { return M < Tokens ? (M + 7) / 8 * 8 : Tokens; }
  __host__ __device__ static constexpr int bytes_read(int M) {
    return w_bytes + rows_read(M) * depth * 2;
  }                                       // bytes per stage
  static constexpr int pitch = rows + 4;  // floats per token in the transpose; avoids bank conflicts
  static_assert(Tokens * pitch * 4 <= Stages * stage_bytes);
  static constexpr int shared_bytes = 1024 + Stages * stage_bytes + 2 * Stages * 8,
                       blocks = Tokens > 64 ? 1 : 2;  // per SM
};

// partial: the sums of SplitKPartials.
template <class Split, class Output>
__global__ void __launch_bounds__(Split::threads, Split::blocks)
    gemm_split_kernel(const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map,
                      Output output, float* partial, GemmSplitKShape shape) {
  using namespace hopper;
  constexpr int chunk_stages = gemm_cuda_chunk / Split::depth;
  extern __shared__ char unaligned[];
  char* ring = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  Barrier* full = reinterpret_cast<Barrier*>(ring + Split::stages * Split::stage_bytes);
  Barrier* empty = full + Split::stages;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0),
            lane = static_cast<int>(threadIdx.x) % 32;
  const int split = static_cast<int>(blockIdx.x) % shape.splits, tile = static_cast<int>(blockIdx.x) / shape.splits;
  const int unit = tile / shape.token_tiles * Split::warpgroups, token = tile % shape.token_tiles * Split::tokens;
  const int first = split * shape.per_block * chunk_stages,
            end = min(first + shape.per_block * chunk_stages, shape.k_stages);
  if (threadIdx.x == Split::consumers) {
    prefetch_tensor_map(w_map);
    prefetch_tensor_map(x_map);
    for (int s = 0; s < Split::stages; ++s) {
      full[s].init(1);
      empty[s].init(4 * Split::warpgroups);
    }
    fence_mbarrier_init();
  }
  __syncthreads();  // mbarriers are initialized

  // Producer.
  if (warp == 4 * Split::warpgroups) {
    if (lane == 0) {
      griddep_launch_dependents();
      const auto bytes = static_cast<uint32_t>(Split::bytes_read(shape.M));
      int2 row_ranges[Split::warpgroups];
#pragma unroll
      for (int g = 0; g < Split::warpgroups; ++g) row_ranges[g] = output.template row_ranges<32>(unit + g);
      const auto load_w = [&](char* to, Barrier& barrier, int k) {
        if constexpr (Output::adjacent_ranges) {
          tma_load(to, w_map, barrier, k * Split::depth, row_ranges[0].x);
        } else {
#pragma unroll
          for (int g = 0; g < Split::warpgroups; ++g) {
            tma_load(to + g * 8192, w_map, barrier, k * Split::depth, row_ranges[g].x);
            tma_load(to + g * 8192 + 4096, w_map, barrier, k * Split::depth, row_ranges[g].y);
          }
        }
      };
      // w is constant during a pass, so it may be read before the kernels before have ended.
      const int early = min(Split::stages, end - first);
      for (int s = 0; s < early; ++s) {
        full[s].arrive_expect_tx(bytes);
        load_w(ring + s * Split::stage_bytes, full[s], first + s);
      }
      griddep_wait();  // x is written
      for (int s = 0; s < early; ++s)
        tma_load(ring + s * Split::stage_bytes + Split::w_bytes, x_map, full[s], (first + s) * Split::depth, token);
      int stage = 0;
      uint32_t parity = 0;
#pragma unroll 1
      for (int k = first + Split::stages; k < end; ++k) {
        empty[stage].wait(parity);  // all consumer warps have read the stage
        full[stage].arrive_expect_tx(bytes);
        char* to = ring + stage * Split::stage_bytes;
        load_w(to, full[stage], k);
        tma_load(to + Split::w_bytes, x_map, full[stage], k * Split::depth, token);
        if (++stage == Split::stages) {
          stage = 0;
          parity ^= 1;
        }
      }
    }
    return;
  }
  // Consumers.
  const int warpgroup = warp / 4;
  int stage = 0;
  uint32_t parity = 0;
  float total[Split::tokens / 2], sum[Split::tokens / 2];
  const auto multiply = [&](float(&to)[Split::tokens / 2], bool add) {
    full[stage].wait(parity);  // w and x of the stage have landed
    const char* from = ring + stage * Split::stage_bytes;
    const uint64_t a = smem_descriptor(from + warpgroup * (64 * Split::depth * 2)),
                   b = smem_descriptor(from + Split::w_bytes);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < Split::depth / 16; ++s) wgmma_ss(to, a + s * 2, b + s * 2, add || s > 0);
    wgmma_commit();
  };
  const auto next = [&] {
    if (++stage == Split::stages) {
      stage = 0;
      parity ^= 1;
    }
  };
  // One chunk: `count` stages into `to`, from zero. A stage is released when the next one's wgmmas have been issued.
  const auto chunk = [&](float(&to)[Split::tokens / 2], int count) {
    int previous = stage;
    multiply(to, false);
    next();
#pragma unroll 1
    for (int k = 1; k < count; ++k) {
      multiply(to, true);
      wgmma_wait<1>();  // the stage before has been read
      if (lane == 0) empty[previous].arrive();
      previous = stage;
      next();
    }
    wgmma_wait<0>();  // the chunk's sums are complete
    wgmma_fence_registers(to);
    if (lane == 0) empty[previous].arrive();
  };
  const int thread_row = warp * 16 + lane / 4, thread_token = lane % 4 * 2, row = unit * 64;
  // Stores a thread's sums to a slot of the partial sums.
  const auto keep = [&](int slot, const float(&from)[Split::tokens / 2]) {
    float* to = partial + (int64_t{slot} * shape.M + token + thread_token) * shape.columns + row + thread_row;
#pragma unroll
    for (int j = 0; j < Split::tokens / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (token + thread_token + 8 * j + e % 2 < shape.M && row + thread_row + e / 2 * 8 < shape.columns)
          to[int64_t{8 * j + e % 2} * shape.columns + e / 2 * 8] = from[4 * j + e];
  };
  // The scratch memory of the partial sums may be in use by the kernel before.
  griddep_wait();
  chunk(total, min(chunk_stages, end - first));
  int slot = split == 0 ? 0 : split * shape.per_block - shape.per_block + 1;
#pragma unroll 1
  for (int k = first + chunk_stages; k < end; k += chunk_stages) {
    chunk(sum, min(chunk_stages, end - k));
    if (split > 0) keep(slot++, total);
#pragma unroll
    for (int e = 0; e < Split::tokens / 2; ++e) total[e] = split > 0 ? sum[e] : total[e] + sum[e];
  }
  // Epilogue: the last slot of the partial sums or, with one split, y through a transpose in shared memory.
  if (shape.splits > 1) {
    keep(slot, total);
    return;
  }
  named_barrier_sync(1, Split::consumers);  // all consumer warps have read the stages
  float* transposed = reinterpret_cast<float*>(ring);
#pragma unroll
  for (int j = 0; j < Split::tokens / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      transposed[(thread_token + 8 * j + e % 2) * Split::pitch + thread_row + e / 2 * 8] = total[4 * j + e];
  named_barrier_sync(1, Split::consumers);  // the transpose is complete
  if constexpr (Output::adjacent_ranges) {
    constexpr int lanes = Split::rows / 4;  // threads per token
    const int n = row + static_cast<int>(threadIdx.x) % lanes * 4;
#pragma unroll 2
    for (int t = static_cast<int>(threadIdx.x) / lanes; t < min(Split::tokens, shape.M - token);
         t += Split::consumers / lanes) {
      const float4 v =
          *reinterpret_cast<const float4*>(transposed + t * Split::pitch + static_cast<int>(threadIdx.x) % lanes * 4);
      output.to.store_pair(v.x, v.y, token + t, n, output.N, output.pairs);
      output.to.store_pair(v.z, v.w, token + t, n + 2, output.N, output.pairs);
    }
  } else {
    constexpr int lanes = Split::rows / 8;
    const int at = static_cast<int>(threadIdx.x) % lanes, g = at / 8, r = at % 8 * 4;
#pragma unroll 2
    for (int t = static_cast<int>(threadIdx.x) / lanes; t < min(Split::tokens, shape.M - token);
         t += Split::consumers / lanes) {
      const auto extra = output.template fetch<32, 4>(token + t, unit + g, r);
      float one[4], other[4];
      load_vec(one, transposed + t * Split::pitch + g * 64 + r);
      load_vec(other, transposed + t * Split::pitch + g * 64 + r + 32);
      output.template store<32, 4>(one, other, extra, token + t, unit + g, r);
    }
  }
}

// `splits`: the number of thread blocks that share a tile's chunks; each gets at least one chunk. With more than one,
// join(stream, partials) writes the output.
template <class Split, class Output, class Join>
void launch_gemm_split_k(Context& context, const Tensor& x, const Tensor& w, const Output& output, int splits,
                         Join join) {
  const auto pieces = [](int64_t count, int64_t size) { return static_cast<int>((count + size - 1) / size); };
  GemmSplitKShape s{};
  const int units = output.template tiles<32>();
  s.M = static_cast<int>(x.dim(0));
  s.columns = Output::adjacent_ranges ? static_cast<int>(w.dim(0)) : units * 64;
  s.k_stages = pieces(w.dim(1), Split::depth);
  s.chunks = pieces(w.dim(1), gemm_cuda_chunk);
  s.token_tiles = pieces(s.M, Split::tokens);
  const int tiles = pieces(units, Split::warpgroups) * s.token_tiles;
  s.per_block = pieces(s.chunks, splits);
  s.splits = pieces(s.chunks, s.per_block);
  const int slots = 1 + s.chunks - s.per_block;
  const ScratchScope scope(context);
  float* partial = s.splits > 1 ? numbers<float>(context.scratch().take(DType::f32, {slots, s.M, s.columns})) : nullptr;
  const auto kernel = gemm_split_kernel<Split, Output>;
  allow_shared_memory(kernel, Split::shared_bytes);
  launch_pdl(cuda_stream(context), kernel, dim3(static_cast<unsigned>(tiles * s.splits)), Split::threads,
             Split::shared_bytes, 1, make_tensor_map(w, Output::adjacent_ranges ? Split::rows : 32),
             make_tensor_map(x, Split::rows_read(s.M)), output, partial, s);
  if (s.splits > 1) join(cuda_stream(context), SplitKPartials{partial, slots, s.M, s.columns});
}

}  // namespace hone
