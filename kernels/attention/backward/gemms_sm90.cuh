#pragma once
// Main kernel of attention's backward on Hopper: dk and dv of 128 keys in registers, dq added to f32 sums in global
// memory. Formulas: backward.cuh; work items, producer and dq writers: kv_loop_sm90.cuh.
//
// Use       bf16, head dimension 64 or 128 (backward_sm90.cu).
// Tile      128 keys of one KV head by 128 (dim 64) or 64 (dim 128) queries per step. Persistent: one block per SM.
// Roles     384 threads. Warpgroup 0: warp 0 lane 0 claims work and issues TMA loads, warps 1-3 lane 0 write dq.
//           Warpgroups 1 and 2: consumers of 64 keys each. They compute s transposed (keys as rows), so p and ds stay
//           in registers as operands for dv and dk. ds also goes to shared memory, from where both compute dq one step
//           later.
// Pipeline  2 (dim 64) or 3 (dim 128) smem stages of 32 KB (q, dout) with lse and delta; 1 buffer of K and V; 2 of ds;
//           1 of dq; 2 of work items.
// Smem      dim 64: K, V 32 KB + 2 * 32 KB + ds 64 KB + dq 32 KB + lse, delta 2 KB = 194 KB. dim 128: 64 + 3 * 32 + 32
//           + 32 + 1.5 = 225.5 KB. Plus mbarriers.
// Numerics  f32 accumulators. p = exp2(scale * log2(e) * s - log2(e) * lse), rounded to bf16; ds = bf16(p) * (dp -
//           delta), rounded to bf16. dk, dv: one sum over query tiles from last to first, heads ascending within each
//           tile (and splits ascending). dq: key tiles in ascending order, enforced by turn counters.
// PDL       initializes the mbarriers before griddep_wait(); triggers dependents right after it.
// Limits    sm_90a; rows 16-byte aligned.
#include "kernels/attention/backward/kv_loop_sm90.cuh"

namespace hone::attention_gradients {

// Reads the thread index again where it is needed; this saves registers.
__device__ inline int thread_now() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// Stores dk and dv of a warpgroup's 64 keys: as results, or as partial sums if several blocks share the heads.
template <int dim>
__device__ inline void store_keys(const GradientCall& call, const Work& work, const float (&dk)[dim / 2],
                                  const float (&dv)[dim / 2], int group) {
  if (call.splits > 1) {
    const int64_t tile = (work.tile.row + work.key) / tile_rows;
    float4* const dk_parts =
        call.key_parts(work.split, 0, work.kv_head, tile, dim) + group * (dim * 16) + thread_now() % 128;
    float4* const dv_parts =
        call.key_parts(work.split, 1, work.kv_head, tile, dim) + group * (dim * 16) + thread_now() % 128;
#pragma unroll
    for (int j = 0; j < dim / 8; ++j) {
      store_four(dk_parts + j * 128, dk + 4 * j);
      store_four(dv_parts + j * 128, dv + 4 * j);
    }
    return;
  }
  const int key = work.key + group * 64, rows = work.tile.length - key;
  const int64_t token = work.tile.begin + key, column = int64_t{work.kv_head} * dim;
#pragma unroll
  for (int part = 0; part < dim / 64; ++part) {
    store_part(call.dk + token * call.dk_stride + column + part * 64, call.dk_stride, rows, &dk[part * 32], call.scale);
    store_part(call.dv + token * call.dv_stride + column + part * 64, call.dv_stride, rows, &dv[part * 32], 1.0f);
  }
}

template <int dim>
__device__ inline void compute_walks(Memory<dim>& memory, const GradientCall& call) {
  constexpr int queries = Memory<dim>::queries;
  const auto group = [] { return thread_now() / 128 - 1; };
  const auto lane = [] { return thread_now() % 32; };

  float dk[dim / 2], dv[dim / 2], dq[32];
  uint32_t weights[queries / 4] = {}, score_gradients[queries / 4] = {};
  RingPlace<Memory<dim>::stages> at;
  RingPlace<2> slot;
  uint32_t keys_parity = 0;
  int i = 0;  // step index over all work items

  // Queues dq of the step before i. A warpgroup computes 64 queries of all columns (dim 64) or all queries of 64
  // columns.
  const auto queue_dq = [&](int i) {
    const int before = (i + 1) & 1;
    const uint32_t part = group() * tile_rows * column_bytes;
    const uint64_t a = smem_descriptor(shared_address(memory.score_gradients[before]) + (dim == 64 ? part : 0)),
                   b = smem_descriptor(shared_address(memory.k) + (dim == 64 ? 0 : part));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < tile_rows / 16; ++k)
      wgmma_k_major(dq, further(a, k * 16 * column_bytes), further(b, k * 16 * column_bytes), k > 0);
    wgmma_commit();
  };
  // Hands dq of step i to its writer. dq_empty: the writer of step i - 1 has read the buffer. dq_full: 8 warps arrive.
  const auto put_dq = [&](int i) {
    if (lane() == 0) memory.gradients_empty[i & 1].arrive();
    memory.dq_empty.wait((i & 1) ^ 1);  // the writer of step i - 1 has read the buffer
    const uint32_t to = shared_address(memory.dq) + (group() * 1024 + thread_now() % 128) * 16;
#pragma unroll
    for (int j = 0; j < 8; ++j) store_four(to + j * 128 * 16, dq + 4 * j);
    fence_async_proxy();
    __syncwarp();  // all lanes have stored; lane 0 arrives for the warp
    if (lane() == 0) memory.dq_full[i % Memory<dim>::writers].arrive();
  };

#pragma unroll 1
  for (;; slot.next(), keys_parity ^= 1) {
    // work_full: the producer has published the next work item.
    memory.work_full[slot.stage].wait(slot.parity);
    if (memory.work[slot.stage].tile.length == 0) return;
    const KvLoop walk(memory.work[slot.stage], queries, call);
    int query_tile = walk.first + walk.count - 1, heads_left = walk.heads, steps_left = walk.steps;
#pragma unroll
    for (int j = 0; j < dim / 2; ++j) dk[j] = dv[j] = 0;
    memory.keys_full.wait(keys_parity);  // K and V have landed
    bool first_step = true;
#pragma unroll 1
    for (; steps_left > 0; --steps_left, ++i, at.next(), first_step = false) {
      const auto& stage = memory.stage[at.stage];
      const int first_query = query_tile * queries;
      if (--heads_left == 0) {
        heads_left = walk.heads;
        --query_tile;
      }
      memory.full[at.stage].wait(at.parity);  // q, dout, lse and delta of the step have landed

      // s = K . q^T.
      float s[queries / 2], ds[queries / 2];
      const uint32_t own_rows = shared_address(memory.k) + group() * 64 * column_bytes;
      wgmma_fence();
      multiply_rows<dim, tile_rows, queries>(s, smem_descriptor(own_rows), smem_descriptor(stage.q));
      wgmma_commit();
      // The stage before has been read by dk: release it. Then queue dp = V . dout^T.

      wgmma_wait<1>();
      wgmma_fence_registers(score_gradients);
      wgmma_fence_registers(dk);
      if (!first_step) memory.empty[(at.stage > 0 ? at.stage : Memory<dim>::stages) - 1].arrive();
      wgmma_fence();
      multiply_rows<dim, tile_rows, queries>(
          ds, smem_descriptor(shared_address(memory.v) + group() * 64 * column_bytes), smem_descriptor(stage.dout));
      wgmma_commit();
      // p = exp2(s - lse); elements outside the mask become 0.

      wgmma_wait<1>();
      wgmma_fence_registers(s);
      const int column = lane() % 4 * 2;
#pragma unroll
      for (int j = 0; j < queries / 8; ++j) {
        const float2 lse = *reinterpret_cast<const float2*>(&memory.lse[at.stage][8 * j + column]);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          s[4 * j + e] = exp2_approx(fmaf(s[4 * j + e], call.exponent_scale, -(e % 2 ? lse.y : lse.x)));
      }
      const int first_key = memory.work[slot.stage].key + group() * 64;
      if (first_query < first_key + 63 || (call.window > 0 && first_query + queries - first_key > call.window)) {
        const int first_distance = first_query - first_key - thread_now() % 128 / 32 * 16 - lane() / 4 + lane() % 4 * 2;
#pragma unroll
        for (int j = 0; j < queries / 8; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int distance = first_distance + 8 * j + e % 2 - e / 2 * 8;
            if (distance < 0 || (call.window > 0 && distance >= call.window)) s[4 * j + e] = 0;
          }
      }
      // dv += p . dout.
      pack(weights, s);
      wgmma_fence();
      mma_m16n8k16(dv, weights, smem_descriptor(stage.dout, queries * column_bytes));
      wgmma_commit();

      // ds = p * (dp - delta).
      wgmma_wait<1>();
      wgmma_fence_registers(ds);
      if (steps_left == 1 && lane() == 0) memory.v_empty.arrive();  // the producer may load the next V
      const int delta_column = lane() % 4 * 2;
#pragma unroll
      for (int j = 0; j < queries / 8; ++j) {
        const float2 delta = *reinterpret_cast<const float2*>(&memory.delta[at.stage][8 * j + delta_column]);
#pragma unroll
        for (int e = 0; e < 4; ++e)  // registers hold only the rounded weights
          ds[4 * j + e] =
              (e % 2 ? high_bf16 : low_bf16)(weights[2 * j + e / 2]) * (ds[4 * j + e] - (e % 2 ? delta.y : delta.x));
      }
      wgmma_wait<0>();  // dv is complete: its operands may be overwritten
      wgmma_fence_registers(weights);
      wgmma_fence_registers(dv);
      pack(score_gradients, ds);
      // gradients_empty: 8 warps have read the ds buffer of step i - 2.
      memory.gradients_empty[i & 1].wait((i >> 1 & 1) ^ 1);
      const int own_row = thread_now() / 32 * 16 - 64 + lane() % 16;  // row of score_gradients that this lane addresses
      const uint32_t row = shared_address(memory.score_gradients[i & 1]) + own_row * column_bytes, half = lane() / 16;
#pragma unroll
      for (int j = 0; j < queries / 8; j += 2)
        stmatrix_x4(row + j / 8 * tile_rows * column_bytes + (((j % 8 + half) ^ (own_row % 8)) * 16),
                    score_gradients[2 * j], score_gradients[2 * j + 1], score_gradients[2 * j + 2],
                    score_gradients[2 * j + 3]);
      fence_async_proxy();
      __syncwarp();  // all lanes have stored; lane 0 arrives for the warp
      // gradients_full: all 8 warps have stored ds. This step queues dq of the step before. In the first step
      // the result is not used.
      if (lane() == 0) memory.gradients_full[i & 1].arrive();
      if (!first_step) memory.gradients_full[(i + 1) & 1].wait((i - 1) >> 1 & 1);
      queue_dq(i);
      // dk += ds . q.
      wgmma_fence();
      mma_m16n8k16(dk, score_gradients, smem_descriptor(stage.q, queries * column_bytes));
      wgmma_commit();
      wgmma_wait<1>();  // dq of the step before is complete
      wgmma_fence_registers(dq);
      if (!first_step) put_dq(i - 1);
    }
    // End of the work item: release the last stage, compute the last dq, release K, store dk and dv.
    wgmma_wait<0>();
    wgmma_fence_registers(dq);
    wgmma_fence_registers(dk);
    memory.empty[(at.stage > 0 ? at.stage : Memory<dim>::stages) - 1].arrive();
    memory.gradients_full[(i + 1) & 1].wait((i - 1) >> 1 & 1);  // 8 warps have stored the last ds
    queue_dq(i);
    wgmma_wait<0>();  // the last dq is complete
    wgmma_fence_registers(dq);
    if (lane() == 0) memory.k_empty.arrive();
    put_dq(i - 1);
    store_keys<dim>(call, memory.work[slot.stage], dk, dv, group());
    memory.work_empty[slot.stage].arrive();
  }
}

template <int dim>
__global__ void __launch_bounds__(threads, 1)
    gradients(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
              const __grid_constant__ CUtensorMap v, const __grid_constant__ CUtensorMap dout,
              const __grid_constant__ GradientCall call) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  Memory<dim>& memory = *reinterpret_cast<Memory<dim>*>(bytes);
  if (threadIdx.x == 0) memory.init_barriers();
  __syncthreads();  // mbarriers are initialized
  griddep_wait();   // `prepare` has written the tile list, lse and delta
  griddep_launch_dependents();
  if (threadIdx.x < 128) {
    setmaxnreg_dec<24>();
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 > 0) return;
    if (warp == 0)
      load_walks<dim>(memory, q, k, v, dout, call);
    else if (warp <= Memory<dim>::writers)
      add_steps<dim>(memory, call, warp - 1);
  } else {
    setmaxnreg_inc<240>();
    compute_walks<dim>(memory, call);
  }
}

}  // namespace hone::attention_gradients
