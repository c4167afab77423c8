#pragma once
// Quantized GEMM on Hopper for any number of rows: y = (x . values^T) * scales, bf16 x, int8 or e4m3 values. Only .cu
// and .cuh files include it.
//
// Use       more than 8 rows of x, or K too long for gemm_quantized_small_m.cu.
// Tile      64 or 128 rows of w by 16, 32, 64 or 128 rows of x, K step 128. w is the M operand of wgmma, x the N
//           operand. With splits > 1 a block computes some K chunks of a tile, and join_kernel adds them.
// Roles     one or two consumer warpgroups of 64 rows of w: they decode w from shared memory to the registers of the A
//           operand, half a stage ahead of wgmma. Last warpgroup: its first thread is the producer (TMA). join_kernel:
//           128 threads, two columns each.
// Pipeline  4 to 8 smem stages of w (8 KB per warpgroup) and x (256 bytes per row), one full and one empty mbarrier
//           each.
// Smem      1 KB alignment + stages + mbarriers: 97 or 101 KB (2 blocks per SM), or 193 KB (128 rows of w by 64 or more
//           rows of x, 1 block). The epilogue reuses the stages for a transpose. join_kernel: none.
// Numerics  K chunks of gemm_cuda_chunk, each one f32 accumulator from zero, added in ascending order, then scaled: the
//           bits of the other bodies.
// PDL       triggers dependents at the start; prefetches w into all stages before griddep_wait(). join_kernel triggers,
//           then waits, at the start.
// Limits    sm_90a; rows of x and w 16-byte aligned.
#include "kernels/cuda/hopper_registers.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/gemm.h"
#include "kernels/quant/quant_format.cuh"

namespace hone::quantized {

constexpr int chunk_size = static_cast<int>(gemm_cuda_chunk);

struct TileShape {
  const float* scales;
  int M, N;
  int k_stages, chunks;
  int token_tiles;
  int splits;     // thread blocks that share a tile's chunks
  int per_block;  // chunks of each but the last block
  bool pairs;     // y can be written two elements at a time
};

template <int Warpgroups, int Tokens, int Stages>
struct Tile {
  static constexpr int warpgroups = Warpgroups, rows = 64 * Warpgroups, tokens = Tokens, stages = Stages, depth = 128;
  static constexpr int consumers = 128 * Warpgroups, threads = consumers + 128;
  static constexpr int w_bytes = rows * depth, x_bytes = Tokens * depth * 2, stage_bytes = w_bytes + x_bytes;
  static constexpr int pitch = rows + 4;  // floats per token in the transpose; avoids bank conflicts
  static_assert(Tokens * pitch * 4 <= Stages * stage_bytes && w_bytes % 1024 == 0 && x_bytes % 1024 == 0);
  static constexpr int shared_bytes = 1024 + Stages * stage_bytes + 2 * Stages * 8;
  // Blocks per SM, and registers per thread of the producer warpgroup and of the consumer warpgroups.
  static constexpr int blocks = Warpgroups * Tokens > 64 ? 1 : 2, copier_registers = blocks * Warpgroups > 2 ? 24 : 40,
                       registers = Warpgroups == 1 ? 216
                                   : blocks == 1   ? 232
                                                   : 104;
};

// Partial sums: [slots, M, N] f32. Slot 0 holds the total of the first block's chunks; each later chunk has its own
// slot.
template <class Format, class T>
__global__ void __launch_bounds__(T::threads, T::blocks)
    tile_kernel(const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map,
                GemmEpilogue epilogue, float* partial, TileShape shape) {
  using namespace hopper;
  constexpr int tile_chunk = chunk_size / T::depth;  // stages per chunk
  extern __shared__ char unaligned[];
  char* ring = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  Barrier* full = reinterpret_cast<Barrier*>(ring + T::stages * T::stage_bytes);
  Barrier* empty = full + T::stages;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0),
            lane = static_cast<int>(threadIdx.x) % 32;
  const int split = static_cast<int>(blockIdx.x) % shape.splits, tile = static_cast<int>(blockIdx.x) / shape.splits;
  const int row = tile / shape.token_tiles * T::rows, token = tile % shape.token_tiles * T::tokens;
  const int first = split * shape.per_block * tile_chunk,
            end = min(first + shape.per_block * tile_chunk, shape.k_stages);
  if (threadIdx.x == T::consumers) {
    prefetch_tensor_map(w_map);
    prefetch_tensor_map(x_map);
    for (int s = 0; s < T::stages; ++s) {
      full[s].init(1);
      empty[s].init(4 * T::warpgroups);
    }
    fence_mbarrier_init();
  }
  __syncthreads();  // mbarriers are initialized

  // Producer.
  if (warp >= 4 * T::warpgroups) {
    setmaxnreg_dec<T::copier_registers>();
    if (threadIdx.x == T::consumers) {
      // Two TMA boxes of 64 columns each.
      const auto load_w = [&](int s, int k) {
        char* const to = ring + s * T::stage_bytes;
        for (int half = 0; half < 2; ++half)
          tma_load(to + half * (T::w_bytes / 2), w_map, full[s], k * T::depth + 64 * half, row);
      };
      const auto load_x = [&](int s, int k) {
        char* const to = ring + s * T::stage_bytes + T::w_bytes;
        for (int half = 0; half < 2; ++half)
          tma_load(to + half * (T::x_bytes / 2), x_map, full[s], k * T::depth + 64 * half, token);
      };
      griddep_launch_dependents();
      // w is constant during a pass, so it may be read before the kernels before have ended.
      const int early = min(T::stages, end - first);
      for (int s = 0; s < early; ++s) {
        full[s].arrive_expect_tx(T::stage_bytes);
        load_w(s, first + s);
      }
      griddep_wait();  // x is written
      for (int s = 0; s < early; ++s) load_x(s, first + s);
      int stage = 0;
      uint32_t parity = 0;
#pragma unroll 1
      for (int k = first + T::stages; k < end; ++k) {
        empty[stage].wait(parity);  // all consumer warps have read the stage
        full[stage].arrive_expect_tx(T::stage_bytes);
        load_w(stage, k);
        load_x(stage, k);
        if (++stage == T::stages) {
          stage = 0;
          parity ^= 1;
        }
      }
    }
    return;
  }
  // Consumers.
  setmaxnreg_inc<T::registers>();
  int stage = 0;
  uint32_t parity = 0;
  float total[T::tokens / 2], sum[T::tokens / 2];
  // Swizzle of half a stage's w: rows of four 16-byte units (64 bytes); unit u of row r at u ^ r / 2 % 4.
  const uint32_t own_row = static_cast<uint32_t>(warp * 16 + lane / 4), turn = own_row / 2 % 4;
  const auto multiply = [&](float(&to)[T::tokens / 2], uint32_t(&left)[16], int half, bool add) {
    const char* const from = ring + stage * T::stage_bytes;
    const uint32_t w_row = shared_address(from) + static_cast<uint32_t>(half * T::w_bytes / 2) + own_row * 64;
    const uint64_t b = smem_descriptor(from + T::w_bytes + half * (T::x_bytes / 2));
#pragma unroll
    for (uint32_t s = 0; s < 4; ++s)
      load_left<Format>(left + 4 * s, w_row + ((s ^ turn) << 4), 8 * 64, static_cast<uint32_t>(lane));
    wgmma_fence_registers(left);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s) wgmma_rs(to, left + 4 * s, b + s * 2, add || s > 0);
    wgmma_commit();
  };
  // One chunk: `count` stages into `to`, from zero. The wgmmas of one half run while the A operand of the next half is
  // decoded into other registers.
  const auto chunk = [&](float(&to)[T::tokens / 2], int count) {
    uint32_t even[16], odd[16] = {};
    int previous = stage;
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      full[stage].wait(parity);  // w and x of the stage have landed
      multiply(to, even, 0, k > 0);
      wgmma_wait<1>();
      wgmma_fence_registers(odd);
      if (k > 0 && lane == 0) empty[previous].arrive();
      multiply(to, odd, 1, true);
      wgmma_wait<1>();  // the wgmmas of the half before are complete
      wgmma_fence_registers(even);
      previous = stage;
      if (++stage == T::stages) {
        stage = 0;
        parity ^= 1;
      }
    }
    wgmma_wait<0>();  // the chunk's sums are complete
    wgmma_fence_registers(to);
    if (lane == 0) empty[previous].arrive();
  };
  const int thread_row = warp * 16 + lane / 4, thread_token = lane % 4 * 2;
  // Stores a thread's sums to a slot of the partial sums.
  const auto keep = [&](int slot, const float(&from)[T::tokens / 2]) {
    float* to = partial + (int64_t{slot} * shape.M + token + thread_token) * shape.N + row + thread_row;
#pragma unroll
    for (int j = 0; j < T::tokens / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (token + thread_token + 8 * j + e % 2 < shape.M && row + thread_row + e / 2 * 8 < shape.N)
          to[int64_t{8 * j + e % 2} * shape.N + e / 2 * 8] = from[4 * j + e];
  };
  // The scratch memory of the partial sums may be in use by the kernel before.
  griddep_wait();
  chunk(total, min(tile_chunk, end - first));
  int slot = split == 0 ? 0 : split * shape.per_block - shape.per_block + 1;
#pragma unroll 1
  for (int k = first + tile_chunk; k < end; k += tile_chunk) {
    chunk(sum, min(tile_chunk, end - k));
    if (split > 0) keep(slot++, total);
#pragma unroll
    for (int e = 0; e < T::tokens / 2; ++e) total[e] = split > 0 ? sum[e] : total[e] + sum[e];
  }
  // Epilogue: the last slot of the partial sums or, with one split, y through a transpose in shared memory.
  if (shape.splits > 1) {
    keep(slot, total);
    return;
  }
  named_barrier_sync(1, T::consumers);  // all consumer warps have read the stages
  float* transposed = reinterpret_cast<float*>(ring);
#pragma unroll
  for (int j = 0; j < T::tokens / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      transposed[(thread_token + 8 * j + e % 2) * T::pitch + thread_row + e / 2 * 8] = total[4 * j + e];
  named_barrier_sync(1, T::consumers);  // the transpose is complete
  constexpr int lanes = T::rows / 4;    // threads per token
  const int own = static_cast<int>(threadIdx.x) % lanes * 4, n = row + own;
  float scale[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) scale[i] = n + i < shape.N ? shape.scales[n + i] : 0;
#pragma unroll 2
  for (int t = static_cast<int>(threadIdx.x) / lanes; t < min(T::tokens, shape.M - token); t += T::consumers / lanes) {
    const float4 v = *reinterpret_cast<const float4*>(transposed + t * T::pitch + own);
    epilogue.store_pair(v.x * scale[0], v.y * scale[1], token + t, n, shape.N, shape.pairs);
    epilogue.store_pair(v.z * scale[2], v.w * scale[3], token + t, n + 2, shape.N, shape.pairs);
  }
}

// Adds the partial sums and writes y; two columns per thread.
static __global__ void __launch_bounds__(128)
    join_kernel(const float* partial, int slots, int M, int N, const float* scales, GemmEpilogue epilogue, bool pairs) {
  const int n = (static_cast<int>(blockIdx.x) * 128 + static_cast<int>(threadIdx.x)) * 2,
            m = static_cast<int>(blockIdx.y);
  hopper::griddep_launch_dependents();
  hopper::griddep_wait();  // the partial sums are written
  if (n >= N) return;
  const float* from = partial + int64_t{m} * N + n;
  const int64_t step = int64_t{M} * N;
  const bool both = n + 1 < N, even = N % 2 == 0;
  float first = 0, second = 0;
#pragma unroll 8
  for (int s = 0; s < slots; ++s, from += step) {
    const float2 x = even ? *reinterpret_cast<const float2*>(from) : make_float2(from[0], both ? from[1] : 0);
    first = s == 0 ? x.x : first + x.x;
    second = s == 0 ? x.y : second + x.y;
  }
  epilogue.store_pair(first * scales[n], both ? second * scales[n + 1] : 0, m, n, N, pairs);
}

// `splits`: the number of thread blocks that share a tile's chunks; each gets at least one chunk.
template <class Format, class T>
void launch_tiles(Context& context, const Tensor& x, const QuantizedMatrix& w, const GemmEpilogue& epilogue, bool pairs,
                  int splits) {
  const auto pieces = [](int64_t count, int64_t size) { return static_cast<int>((count + size - 1) / size); };
  TileShape s{};
  s.scales = numbers<const float>(w.scales);
  s.M = static_cast<int>(x.dim(0));
  s.N = static_cast<int>(w.values.dim(0));
  s.k_stages = pieces(x.dim(1), T::depth);
  s.chunks = pieces(x.dim(1), gemm_cuda_chunk);
  s.token_tiles = pieces(s.M, T::tokens);
  s.pairs = pairs;
  const int tiles = pieces(s.N, T::rows) * s.token_tiles;
  s.per_block = pieces(s.chunks, splits);
  s.splits = pieces(s.chunks, s.per_block);
  const int slots = 1 + s.chunks - s.per_block;
  const ScratchScope scope(context);
  float* partial = s.splits > 1 ? numbers<float>(context.scratch().take(DType::f32, {slots, s.M, s.N})) : nullptr;
  const auto kernel = tile_kernel<Format, T>;
  allow_shared_memory(kernel, T::shared_bytes);
  launch_pdl(cuda_stream(context), kernel, dim3(static_cast<unsigned>(tiles * s.splits)), T::threads, T::shared_bytes,
             1, make_tensor_map(w.values, T::rows), make_tensor_map(x, T::tokens), epilogue, partial, s);
  if (s.splits > 1)
    launch_pdl(cuda_stream(context), join_kernel,
               dim3(static_cast<unsigned>(pieces(s.N, 256)), static_cast<unsigned>(s.M)), 128, 0, 1,
               static_cast<const float*>(partial), slots, s.M, s.N, s.scales, epilogue, pairs);
}

}  // namespace hone::quantized
