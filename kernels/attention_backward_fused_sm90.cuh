#pragma once
// dq, dk and dv in one walk: a block owns 128 keys of one kv head and walks over the queries that see them, the last ones first, of every head of the
// group in turn. Scores are computed with keys as rows, so that weights and their gradients stay in registers on their way to dv and dk. What a step
// adds to dq leaves through shared memory, one step later, for sums in device memory: blocks add to the same queries in turn, the first keys first.
#include "kernels/attention_backward_sm90.cuh"

namespace hone::attention_gradients {

template <int dim>
struct FusedMemory {
  static constexpr int queries = dim == 64 ? 128 : 64, stages = dim == 64 ? 2 : 3;
  struct Stage {
    unsigned char q[queries * dim * 2], dout[queries * dim * 2];
  };
  unsigned char k[tile_rows * dim * 2], v[tile_rows * dim * 2];
  Stage stage[stages];
  unsigned char score_gradients[2][queries * tile_rows * 2];  // blocks of 64 queries, [128 keys, 64 queries] each
  float dq[queries * dim];                                    // as in Call::dq_sums
  float lse[stages][queries], delta[stages][queries];
  Barrier keys, full[stages], empty[stages], gradients_full[2], gradients_empty[2], dq_full, dq_empty;
  int place;
};

// A step: one tile of queries of one head, in the order of the walk.
struct Step {
  int head, query_tile;
};
struct Walk {
  int first, count, head, steps;  // of query tiles, first is the earliest
  __device__ Walk(const Tile& tile, int key, int kv_head, int queries, const Call& call) {
    const int end = call.window > 0 ? min(tile.length, key + tile_rows - 1 + call.window) : tile.length;
    first = key / queries, count = (end + queries - 1) / queries - first;
    head = kv_head * call.group, steps = count * call.group;
  }
  __device__ Step begin() const { return {head, first + count - 1}; }
  __device__ void advance(Step& step) const {
    if (step.query_tile-- == first) step = {step.head + 1, first + count - 1};
  }
};

template <int dim>
__device__ inline void load_steps(FusedMemory<dim>& memory, const CUtensorMap& q, const CUtensorMap& k, const CUtensorMap& v, const CUtensorMap& dout,
                                  const Call& call, const Tile& tile, int key, int kv_head, const Walk& walk) {
  using Memory = FusedMemory<dim>;
  constexpr int queries = Memory::queries;
  memory.keys.arrive_expecting(2 * sizeof memory.k);
  load_tile<tile_rows, dim>(memory.k, k, memory.keys, kv_head, tile.begin + key);
  load_tile<tile_rows, dim>(memory.v, v, memory.keys, kv_head, tile.begin + key);
  RingPlace<Memory::stages> at;
  Step step = walk.begin();
  for (int i = 0; i < walk.steps; ++i, at.next(), walk.advance(step)) {
    auto& stage = memory.stage[at.stage];
    Barrier& full = memory.full[at.stage];
    const int query = step.query_tile * queries;
    const int64_t row = step.head * call.padded + tile.row + query;
    memory.empty[at.stage].wait(at.parity ^ 1);
    full.arrive_expecting(sizeof stage + 2 * queries * sizeof(float));
    load_tile<queries, dim>(stage.q, q, full, step.head, tile.begin + query);
    load_bytes(memory.lse[at.stage], call.lse + row, queries * sizeof(float), full);
    load_tile<queries, dim>(stage.dout, dout, full, step.head, tile.begin + query);
    load_bytes(memory.delta[at.stage], call.delta + row, queries * sizeof(float), full);
  }
}

// One thread adds what steps leave in memory.dq to the sums, when it is this block's turn.
template <int dim>
__device__ inline void add_steps(FusedMemory<dim>& memory, const Call& call, const Tile& tile, int key, const Walk& walk) {
  constexpr int queries = FusedMemory<dim>::queries;
  Step step = walk.begin();
  for (int i = 0; i < walk.steps; ++i, walk.advance(step)) {
    const int first_query = step.query_tile * queries;
    const int first_key = call.window > 0 ? max(0, first_query - call.window + 1) / tile_rows * tile_rows : 0;
    const int turn = (key - first_key) / tile_rows;
    const int64_t place = (step.head * call.padded + tile.row + first_query) / queries;
    int* const turns = call.turns + place;
    float* const sums = call.dq_sums + place * (queries * dim);
    if (turn > 0) await_turn(turns, turn);
    memory.dq_full.wait(i & 1);
    if (turn > 0)
      add_bytes(sums, memory.dq, sizeof memory.dq);
    else
      store_bytes(sums, memory.dq, sizeof memory.dq);
    await_reads();
    memory.dq_empty.arrive();
    await_writes();
    pass_turn(turns, turn + 1);
  }
}

// Four 8 x 8 blocks of an operand in registers to shared memory; each lane gives the address of one row.
__device__ inline void store_blocks(uint32_t to, const uint32_t* from) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}

template <int dim>
__device__ inline void compute_steps(FusedMemory<dim>& memory, const Call& call, const Tile& tile, int key, int kv_head, const Walk& walk) {
  using Memory = FusedMemory<dim>;
  constexpr int queries = Memory::queries;
  const int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, lane = thread % 32;
  const int first_key = key + group * 64, own_key = first_key + thread / 32 * 16 + lane / 4, column = lane % 4 * 2;
  uint32_t own_rows = shared_address(memory.k + group * 64 * column_bytes);
  // Which part of a step's dq is the warpgroup's: 64 queries of all columns, or all queries of 64 columns.
  const uint32_t query_block = dim == 64 ? group * tile_rows * column_bytes : 0, column_block = dim == 64 ? 0 : group * tile_rows * column_bytes;
  // The row of score_gradients that the lane gives, and what swizzles it.
  const int own_row = group * 64 + thread / 32 * 16 + lane % 16;

  float dk[dim / 2] = {}, dv[dim / 2] = {}, dq[32];
  uint32_t weights[queries / 4] = {}, score_gradients[queries / 4] = {};
  RingPlace<Memory::stages> at;
  RingPlace<2> gradients;
  Barrier* used = nullptr;  // of the stage that the products of the step before read
  Step step = walk.begin();
  uint32_t dq_parity = 1;

  const auto queue_dq = [&] {
    const int before = gradients.stage ^ 1;
    memory.gradients_full[before].wait(gradients.parity ^ (before == 1));
    const uint64_t a = describe(memory.score_gradients[before] + query_block), b = describe(memory.k + column_block);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < tile_rows / 16; ++k) product_of_columns(dq, further(a, k * 16 * column_bytes), further(b, k * 16 * column_bytes), k > 0);
  };
  const auto put_dq = [&] {
    if (lane == 0) memory.gradients_empty[gradients.stage ^ 1].arrive();
    memory.dq_empty.wait(dq_parity);
    dq_parity ^= 1;
    float4* const to = reinterpret_cast<float4*>(memory.dq) + group * 1024 + thread;
#pragma unroll
    for (int j = 0; j < 8; ++j) to[j * 128] = make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
    fence_async_proxy();
    __syncwarp();
    if (lane == 0) memory.dq_full.arrive();
  };

  memory.keys.wait(0);
#pragma unroll 1
  for (int i = 0; i < walk.steps; ++i, at.next(), gradients.next(), walk.advance(step)) {
    const auto& stage = memory.stage[at.stage];
    const int first_query = step.query_tile * queries;
    memory.full[at.stage].wait(at.parity);

    float s[queries / 2], ds[queries / 2];
    keep_computing(own_rows);
    wgmma_fence();
    multiply_rows<dim, tile_rows, queries>(s, describe(own_rows), describe(stage.q));
    wgmma_commit();

    wgmma_wait<1>();
    pin(score_gradients), pin(dk);
    if (used && lane == 0) used->arrive();
    used = &memory.empty[at.stage];
    wgmma_fence();
    multiply_rows<dim, tile_rows, queries>(ds, describe(own_rows + sizeof memory.k), describe(stage.dout));
    wgmma_commit();

    wgmma_wait<1>();
    pin(s);
#pragma unroll
    for (int j = 0; j < queries / 8; ++j) {
      const float2 lse = *reinterpret_cast<const float2*>(&memory.lse[at.stage][8 * j + column]);
#pragma unroll
      for (int e = 0; e < 4; ++e) s[4 * j + e] = exp2_approx(fmaf(s[4 * j + e], call.exponent_scale, -(e % 2 ? lse.y : lse.x)));
    }
    if (first_query < first_key + 63 || (call.window > 0 && first_query + queries - first_key > call.window)) {
#pragma unroll
      for (int j = 0; j < queries / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int distance = first_query + 8 * j + column + e % 2 - own_key - e / 2 * 8;
          if (distance < 0 || (call.window > 0 && distance >= call.window)) s[4 * j + e] = 0;
        }
    }
    pack(weights, s);
    wgmma_fence();
    multiply_add(dv, weights, describe(stage.dout, queries * column_bytes));
    wgmma_commit();
    if (i > 0) queue_dq();
    wgmma_commit();

    wgmma_wait<2>();
    pin(ds);
#pragma unroll
    for (int j = 0; j < queries / 8; ++j) {
      const float2 delta = *reinterpret_cast<const float2*>(&memory.delta[at.stage][8 * j + column]);
#pragma unroll
      for (int e = 0; e < 4; ++e)  // there are no registers for the weights before they were rounded
        ds[4 * j + e] = unpack_bf16(weights[2 * j + e / 2], e % 2) * (ds[4 * j + e] - (e % 2 ? delta.y : delta.x));
    }
    wgmma_wait<1>();
    pin(weights), pin(dv);
    pack(score_gradients, ds);
    memory.gradients_empty[gradients.stage].wait(gradients.parity ^ 1);
    const uint32_t row = shared_address(memory.score_gradients[gradients.stage]) + own_row * column_bytes;
#pragma unroll
    for (int j = 0; j < queries / 8; j += 2)
      store_blocks(row + j / 8 * tile_rows * column_bytes + (((j % 8 + lane / 16) ^ (own_row % 8)) * 16), score_gradients + 2 * j);
    fence_async_proxy();
    __syncwarp();
    if (lane == 0) memory.gradients_full[gradients.stage].arrive();
    wgmma_fence();
    multiply_add(dk, score_gradients, describe(stage.q, queries * column_bytes));
    wgmma_commit();
    wgmma_wait<1>();
    pin(dq);
    if (i > 0) put_dq();
  }
  queue_dq();
  wgmma_commit();
  wgmma_wait<0>();
  pin(dq), pin(dk);
  put_dq();
  named_sync(3, 256);  // k is read by both warpgroups
  const int rows = tile.length - first_key;
  const int64_t token = tile.begin + first_key, at_column = int64_t{kv_head} * dim;
  store_rows<dim>(call.dv + token * call.dv_stride + at_column, call.dv_stride, rows, dv, 1.0f, memory.v, group);
  store_rows<dim>(call.dk + token * call.dk_stride + at_column, call.dk_stride, rows, dk, call.scale, memory.k, group);
}

template <int dim>
__global__ void __launch_bounds__(threads, 1)
    fused_gradients(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
                    const __grid_constant__ CUtensorMap dout, const __grid_constant__ Call call) {
  using Memory = FusedMemory<dim>;
  extern __shared__ __align__(1024) unsigned char bytes[];
  Memory& memory = *reinterpret_cast<Memory*>(bytes);
  // Blocks take places in the order in which they start, so that whoever waits for a turn waits for a block that runs.
  if (threadIdx.x == 0) {
    memory.place = atomicAdd(call.next, 1);
    memory.keys.init(1), memory.dq_full.init(8), memory.dq_empty.init(1);
    for (int i = 0; i < Memory::stages; ++i) memory.full[i].init(1), memory.empty[i].init(8);
    for (int i = 0; i < 2; ++i) memory.gradients_full[i].init(8), memory.gradients_empty[i].init(8);
    publish_barriers();
  }
  __syncthreads();
  const int together = call.heads_together * static_cast<int>(call.num_tiles), first_head = memory.place / together * call.heads_together;
  const int heads = min(call.heads_together, call.kv_heads - first_head), rest = memory.place % together;
  const Tile tile = call.tiles[rest / heads];
  if (tile.length == 0) return;
  const int kv_head = first_head + rest % heads, key = ((tile.length + tile_rows - 1) / tile_rows - tile.rank) * tile_rows;
  const Walk walk(tile, key, kv_head, Memory::queries, call);
  if (threadIdx.x < 128) {
    fewer_registers<24>();
    if (threadIdx.x == 0) load_steps<dim>(memory, q, k, v, dout, call, tile, key, kv_head, walk);
    if (threadIdx.x == 32) add_steps<dim>(memory, call, tile, key, walk);
  } else {
    more_registers<240>();
    compute_steps<dim>(memory, call, tile, key, kv_head, walk);
  }
}

// dq from its sums: a block has a tile of queries of one head.
template <int dim>
__global__ void __launch_bounds__(256) finish_queries(const __grid_constant__ Call call) {
  constexpr int queries = FusedMemory<dim>::queries, parts = tile_rows * dim / 4096;  // of 64 x 64 numbers
  const Tile tile = call.tiles[blockIdx.y];
  if (tile.length == 0) return;
  const int head = static_cast<int>(blockIdx.x), query = (tile.rank - 1) * tile_rows, thread = threadIdx.x % 128, lane = thread % 4;
  const float4* from = reinterpret_cast<const float4*>(call.dq_sums) + (head * call.padded + tile.row + query) * (dim / 4) + thread;
#pragma unroll
  for (int part = threadIdx.x / 128; part < parts; part += 2) {
    const int row = query + (dim == 64 ? part * 64 : part / 2 * queries) + thread / 32 * 16 + thread % 32 / 4;
    const int column = head * dim + (dim == 64 ? 0 : part % 2 * 64);
    float4 x[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) x[j] = from[part * 1024 + j * 128];
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int j = 0; j < 8; j += 4) {
        // The four lanes of a row trade numbers until each has 16 bytes of it.
        uint32_t y[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float4 z = x[j + i];
          y[i] = r ? pack_bf16(z.z * call.scale, z.w * call.scale) : pack_bf16(z.x * call.scale, z.y * call.scale);
        }
#pragma unroll
        for (int bit = 1; bit < 4; bit *= 2)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (!(i & bit)) {
              const bool high = lane & bit;
              const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? y[i] : y[i | bit], bit);
              (high ? y[i] : y[i | bit]) = got;
            }
        if (row + 8 * r < tile.length)
          *reinterpret_cast<uint4*>(call.dq + int64_t{tile.begin + row + 8 * r} * call.dq_stride + column + (j + lane) * 8) =
              make_uint4(y[0], y[1], y[2], y[3]);
      }
  }
}

}  // namespace hone::attention_gradients
