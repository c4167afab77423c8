#pragma once
// GEMM for M <= 64 rows on Hopper: y = x . w^T with an epilogue (output.cuh), bf16 operands, f32 accumulation. Only .cu
// and .cuh files include it.
//
// Use       long K and few columns, where split-K partial sums (split_k.cuh) cost more than reading x once per column
//           tile. tuning.cuh chooses.
// Tile      64 rows of x by 64 rows of w (two row ranges of 32), K step 64; a cluster of 2 thread blocks shares one
//           tile.
// Roles     warps 0-3: consumer warpgroup (wgmma, reduction, epilogue). Warp 4, lane 0: producer (TMA).
// Pipeline  12 or 5 smem stages of 16 KB (x 8 KB, w 8 KB), one full and one empty mbarrier each. 2 slots of 8 KB for
//           the partial sums of the other block, sent through distributed shared memory (st.async).
// Smem      1 KB alignment + stages * 16 KB + 2 * 8 KB + mbarriers: 209 KB (1 block per SM) or 97 KB (2 blocks).
// Numerics  K chunks of 512, each from zero, added in ascending order. Chunk 2i is block 0's, 2i + 1 block 1's; each
//           block owns half of the columns and receives the other's sums. Bits equal wgmma.cuh (tests/gpu/gemm_test).
// PDL       triggers dependents at the start; prefetches w into all stages before griddep_wait().
// Limits    sm_90a; rows of x and w 16-byte aligned.
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/pdl.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/gemm/internal.h"
#include "kernels/gemm/mma/output.cuh"

namespace hone {

template <int Stages>
struct GemmM64 {
  static constexpr int rows = 64, columns = 64, stages = Stages, depth = 64, cluster = 2;
  static constexpr int chunk_stages = static_cast<int>(gemm_cuda_chunk) / depth;
  static constexpr int consumers = 128, threads = consumers + 32, blocks = Stages > 5 ? 1 : 2;  // blocks per SM
  static constexpr int own = rows * columns / consumers / cluster;                              // sums per thread
  static constexpr int x_bytes = rows * depth * 2, w_bytes = columns * depth * 2, stage_bytes = x_bytes + w_bytes;
  static constexpr int slots = 2, slot_bytes = consumers * own * 4;  // slots for the other block's partial sums
  // As in GemmSplitK.
  __host__ __device__ static constexpr int rows_read(int M) { return (M + 7) / 8 * 8; }
  __host__ __device__ static constexpr int bytes_read(int M) { return rows_read(M) * depth * 2 + w_bytes; }
  static constexpr int shared_bytes = 1024 + Stages * stage_bytes + slots * slot_bytes + 2 * (Stages + slots) * 8;
};

// The chunks and stages of one thread block of the cluster.
template <class Narrow>
struct GemmM64Share {
  int rank, chunks, stages;
  __device__ GemmM64Share(int rank_, int k_stages) : rank(rank_) {
    const int all = (k_stages + Narrow::chunk_stages - 1) / Narrow::chunk_stages;
    chunks = (all - rank + 1) / 2;
    stages = chunks * Narrow::chunk_stages - ((all - 1) % 2 == rank ? all * Narrow::chunk_stages - k_stages : 0);
  }
  // The index of the block's stage among all K stages.
  __device__ int place(int stage) const { return stage + (stage / Narrow::chunk_stages + rank) * Narrow::chunk_stages; }
};

template <class Narrow, class Output>
__global__ void __launch_bounds__(Narrow::threads, Narrow::blocks)
    gemm_narrow_kernel(const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map,
                       Output output, int M, int k_stages) {
  using namespace hopper;
  constexpr int half = Narrow::columns / 2, own = Narrow::own, size = Narrow::columns / 2;
  extern __shared__ char unaligned[];
  char* const ring = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  char* const received = ring + Narrow::stages * Narrow::stage_bytes;
  Barrier* const full = reinterpret_cast<Barrier*>(received + Narrow::slots * Narrow::slot_bytes);
  Barrier *const empty = full + Narrow::stages, *const there = empty + Narrow::stages,
                 *const read = there + Narrow::slots;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0),
            lane = static_cast<int>(threadIdx.x % 32);
  const int tile = static_cast<int>(blockIdx.x) / Narrow::cluster, rank = static_cast<int>(block_rank_in_cluster());
  const GemmM64Share<Narrow> share(rank, k_stages), others(rank ^ 1, k_stages);
  if (threadIdx.x == Narrow::consumers) {
    prefetch_tensor_map(w_map);
    prefetch_tensor_map(x_map);
    for (int s = 0; s < Narrow::stages; ++s) {
      full[s].init(1);
      empty[s].init(4);
    }
    for (int s = 0; s < Narrow::slots; ++s) {
      there[s].init(1);
      read[s].init(Narrow::consumers);
    }
    fence_mbarrier_init();
    for (int s = 0; s < Narrow::slots; ++s) there[s].arrive_expect_tx(Narrow::slot_bytes);
  }
  cluster_sync();  // the mbarriers of both blocks are initialized

  // Producer: w of the first stages, then x after griddep_wait(), then the ring.
  if (warp == 4) {
    if (lane == 0) {
      griddep_launch_dependents();
      const int2 row_ranges = output.template row_ranges<half>(tile);
      const auto bytes = static_cast<uint32_t>(Narrow::bytes_read(M));
      const auto load_w = [&](int stage, int k) {
        char* const to = ring + stage * Narrow::stage_bytes + Narrow::x_bytes;
        full[stage].arrive_expect_tx(bytes);
        tma_load(to, w_map, full[stage], k * Narrow::depth, row_ranges.x);
        if constexpr (!Output::adjacent_ranges)
          tma_load(to + Narrow::w_bytes / 2, w_map, full[stage], k * Narrow::depth, row_ranges.y);
      };
      const auto load_x = [&](int stage, int k) {
        tma_load(ring + stage * Narrow::stage_bytes, x_map, full[stage], k * Narrow::depth, 0);
      };
      const int early = min(Narrow::stages, share.stages);
      for (int s = 0; s < early; ++s) load_w(s, share.place(s));
      griddep_wait();  // x is written
      for (int s = 0; s < early; ++s) load_x(s, share.place(s));
      int stage = 0;
      uint32_t parity = 0;
#pragma unroll 1
      for (int s = Narrow::stages; s < share.stages; ++s) {
        empty[stage].wait(parity);  // 4 consumer warps have read the stage
        load_w(stage, share.place(s));
        load_x(stage, share.place(s));
        if (++stage == Narrow::stages) {
          stage = 0;
          parity ^= 1;
        }
      }
    }
  } else {
    // Consumers.
    int stage = 0;
    uint32_t parity = 0;
    const auto multiply = [&](float(&to)[size], bool add) {
      full[stage].wait(parity);  // x and w of the stage have landed
      const char* const from = ring + stage * Narrow::stage_bytes;
      const uint64_t a = smem_descriptor(from), b = smem_descriptor(from + Narrow::x_bytes);
      wgmma_fence();
#pragma unroll
      for (int s = 0; s < Narrow::depth / 16; ++s) wgmma_ss(to, a + s * 2, b + s * 2, add || s > 0);
      wgmma_commit();
    };
    const auto release = [&](int done) {
      if (lane == 0) empty[done].arrive();
    };
    const auto next = [&] {
      if (++stage == Narrow::stages) {
        stage = 0;
        parity ^= 1;
      }
    };
    // One chunk: `count` stages into `to`, from zero. A stage is released when the next one's wgmmas have been issued.
    const auto chunk = [&](float(&to)[size], int count) {
      int previous = stage;
      multiply(to, false);
      next();
#pragma unroll 1
      for (int k = 1; k < count; ++k) {
        multiply(to, true);
        wgmma_wait<1>();  // the stage before has been read
        release(previous);
        previous = stage;
        next();
      }
      wgmma_wait<0>();  // the chunk's sums are complete
      wgmma_fence_registers(to);
      release(previous);
    };

    // Elements of the columns that `block` owns. Octets 0, 1 and 4, 5 belong to block 0: the first half of each row
    // range.
    const auto part = [](const float(&of)[size], int block, int e) {
      return block == 0 ? of[e + e / 8 * 8] : of[e + e / 8 * 8 + 8];
    };
    float total[own], held[own], sum[size];
#pragma unroll
    for (int e = 0; e < own; ++e) total[e] = -0.0f;  // -0 + x is x, for x = -0 too
    const auto place = [&](int slot, int piece) {
      return shared_address(received + slot * Narrow::slot_bytes) +
             static_cast<uint32_t>(piece * Narrow::consumers + static_cast<int>(threadIdx.x)) * 16;
    };
    const auto send_part = [&](int i) {
      const int slot = i % Narrow::slots;
      const uint32_t other = static_cast<uint32_t>(rank ^ 1);
      // read: the other block's 128 consumers have read the slot that is sent again.
      if (i >= Narrow::slots) read[slot].wait((i / Narrow::slots - 1) & 1);
#pragma unroll
      for (int e = 0; e < own; e += 4) {
        const auto bits = [&](int j) { return __float_as_uint(part(sum, rank ^ 1, e + j)); };
        send(map_to_cluster_block(other, place(slot, e / 4)), make_uint4(bits(0), bits(1), bits(2), bits(3)),
             map_to_cluster_block(other, shared_address(&there[slot].word)));
      }
    };
    const auto add_received = [&](int i) {
      if (i >= others.chunks) return;
      const int slot = i % Narrow::slots;
      // If the sender reuses the slot it waits for our arrival. Without reuse no one arrives: the other block may have
      // ended.
      const bool again = i + Narrow::slots < others.chunks;
      there[slot].wait(i / Narrow::slots & 1);  // the other block's partial sums have arrived
      if (again && threadIdx.x == 0) there[slot].arrive_expect_tx(Narrow::slot_bytes);
#pragma unroll
      for (int e = 0; e < own; e += 4) {
        float4 four;
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
                     : "r"(place(slot, e / 4))
                     : "memory");
        total[e] += four.x;
        total[e + 1] += four.y;
        total[e + 2] += four.z;
        total[e + 3] += four.w;
      }
      wgmma_fence_registers(total);
      if (again) read[slot].arrive_at(static_cast<uint32_t>(rank ^ 1));
    };
    // Adds chunks 2 i and 2 i + 1 in this order: one is this block's (`held`), the other is received.
    const auto add_both = [&](int i) {
      if (rank == 1) add_received(i);
#pragma unroll
      for (int e = 0; e < own; ++e) total[e] += held[e];
      if (rank == 0) add_received(i);
    };
#pragma unroll 1
    for (int i = 0; i < share.chunks; ++i) {
      chunk(sum, min(Narrow::chunk_stages, share.stages - i * Narrow::chunk_stages));
      send_part(i);
      if (i > 0) add_both(i - 1);  // the received part has usually arrived by now
#pragma unroll
      for (int e = 0; e < own; ++e) held[e] = part(sum, rank, e);
    }
    if (share.chunks > 0) add_both(share.chunks - 1);
    if (rank == 1) add_received(share.chunks);  // if block 0 has one chunk more

    // Epilogue. The kernels before may have written the residual or may still read y's memory.
    griddep_wait();
    const int row = warp * 16 + lane / 4, column = rank * half / 2 + lane % 4 * 2;  // column within a row range
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int m = row + 8 * h;
      if (m >= M) continue;
#pragma unroll
      for (int j = 0; j < half / 16; ++j) {
        const int r = column + 8 * j, e = 4 * j + 2 * h;
        const float first[2] = {total[e], total[e + 1]}, second[2] = {total[e + own / 2], total[e + own / 2 + 1]};
        if constexpr (Output::adjacent_ranges) {
          const int n = tile * Narrow::columns + r;
          output.to.store_pair(first[0], first[1], m, n, output.N, output.pairs);
          output.to.store_pair(second[0], second[1], m, n + half, output.N, output.pairs);
        } else {
          output.template store<half, 2>(first, second, output.template fetch<half, 2>(m, tile, r), m, tile, r);
        }
      }
    }
  }
}

// x has at most 64 rows; x and w are tma_compatible().
template <class Narrow, class Output>
void launch_gemm_m64(cudaStream_t stream, const Tensor& x, const Tensor& w, const Output& output) {
  const int blocks = output.template tiles<Narrow::columns / 2>() * Narrow::cluster;
  const auto kernel = gemm_narrow_kernel<Narrow, Output>;
  allow_shared_memory(kernel, Narrow::shared_bytes);
  launch_pdl(stream, kernel, dim3(static_cast<unsigned>(blocks)), Narrow::threads, Narrow::shared_bytes,
             Narrow::cluster, make_tensor_map(w, Output::adjacent_ranges ? Narrow::columns : Narrow::columns / 2),
             make_tensor_map(x, Narrow::rows_read(static_cast<int>(x.dim(0)))), output, static_cast<int>(x.dim(0)),
             static_cast<int>((w.dim(1) + Narrow::depth - 1) / Narrow::depth));
}

}  // namespace hone
