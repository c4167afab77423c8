#pragma once
// The kernel of attention's backward on Hopper: a block owns 128 keys of one kv head and walks over the queries that see them, the last ones first,
// of every head of the group. Scores are computed with keys as rows, so that weights and their gradients stay in registers on their way to dv and
// dk. What a step adds to dq leaves by way of shared memory, one step later, for sums in device memory: blocks add to the same queries in turn, the
// first keys first. These have the longest walk and start first; a block that follows finds its turn come, but for the first steps of a call.
#include "kernels/attention_backward_sm90.cuh"

namespace hone::attention_gradients {

template <int dim>
struct Memory {
  static constexpr int queries = dim == 64 ? 128 : 64, stages = dim == 64 ? 2 : 3, writers = 3;
  struct Stage {
    unsigned char q[queries * dim * 2], dout[queries * dim * 2];
  };
  unsigned char k[tile_rows * dim * 2], v[tile_rows * dim * 2];
  Stage stage[stages];
  unsigned char score_gradients[2][queries * tile_rows * 2];  // blocks of 64 queries, [128 keys, 64 queries] each
  float dq[queries * dim];                                    // as in Call::dq_sums
  float lse[stages][queries], delta[stages][queries];
  Barrier keys, full[stages], empty[stages], gradients_full[2], gradients_empty[2], dq_full[writers], dq_empty;
  Tile tile;
  int kv_head, key;  // the block's keys are the 128 from `key` on, within the sequence
};

// Sums in device memory as the copy engine writes them, and whose turn it is to add to them.
__device__ inline void await_turn(const int* turns, int turn) {
  for (int now = -1; now != turn;) asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(now) : "l"(turns) : "memory");
}
__device__ inline void pass_turn(int* turns, int turn) { asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(turns), "r"(turn) : "memory"); }
__device__ inline void add_bytes(float* to, const float* from, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ inline void store_bytes(float* to, const float* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ inline void await_reads() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ inline void await_writes() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

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
  __device__ void advance(Step& step, int group) const {
    if (++step.head == head + group) step = {head, step.query_tile - 1};
  }
};

template <int dim>
__device__ inline void load_steps(Memory<dim>& memory, const CUtensorMap& q, const CUtensorMap& k, const CUtensorMap& v, const CUtensorMap& dout,
                                  const Call& call, const Tile& tile, int key, int kv_head, const Walk& walk) {
  constexpr int queries = Memory<dim>::queries;
  memory.keys.arrive_expecting(2 * sizeof memory.k);
  load_tile<tile_rows, dim>(memory.k, k, memory.keys, kv_head, tile.begin + key);
  load_tile<tile_rows, dim>(memory.v, v, memory.keys, kv_head, tile.begin + key);
  RingPlace<Memory<dim>::stages> at;
  Step step = walk.begin();
  for (int i = 0; i < walk.steps; ++i, at.next(), walk.advance(step, call.group)) {
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

// One thread of `writers` adds every writers-th of what steps leave in memory.dq to the sums, when it is this block's turn. An addition takes longer
// than a step, so several are under way.
template <int dim>
__device__ inline void add_steps(Memory<dim>& memory, const Call& call, const Tile& tile, int key, const Walk& walk, int writer) {
  constexpr int queries = Memory<dim>::queries;
  Step step = walk.begin();
  uint32_t parity = 0;
  for (int i = 0; i < walk.steps; ++i, walk.advance(step, call.group)) {
    if (i % Memory<dim>::writers != writer) continue;
    const int first_query = step.query_tile * queries;
    const int first_key = call.window > 0 ? max(0, first_query - call.window + 1) / tile_rows * tile_rows : 0;
    const int turn = (key - first_key) / tile_rows;
    const int64_t place = (step.head * call.padded + tile.row + first_query) / queries;
    int* const turns = call.turns + place;
    float* const sums = call.dq_sums + place * (queries * dim);
    if (turn > 0) await_turn(turns, turn);
    memory.dq_full[writer].wait(parity);
    parity ^= 1;
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

// Asked again wherever it is needed, to save registers.
__device__ inline int thread_now() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

template <int dim>
__device__ inline void compute_steps(Memory<dim>& memory, const Call& call, const Walk& walk) {
  constexpr int queries = Memory<dim>::queries;
  const auto group = [] { return thread_now() / 128 - 1; };
  const auto lane = [] { return thread_now() % 32; };

  float dk[dim / 2] = {}, dv[dim / 2] = {}, dq[32];
  uint32_t weights[queries / 4] = {}, score_gradients[queries / 4] = {};
  RingPlace<Memory<dim>::stages> at;
  int query_tile = walk.first + walk.count - 1, heads_done = 0;

  // dq of the step before i. A warpgroup's part is 64 queries of all columns, or all queries of 64 columns.
  const auto queue_dq = [&](int i) {
    const int before = (i + 1) & 1;
    const uint32_t part = group() * tile_rows * column_bytes;
    const uint64_t a = describe(shared_address(memory.score_gradients[before]) + (dim == 64 ? part : 0)),
                   b = describe(shared_address(memory.k) + (dim == 64 ? 0 : part));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < tile_rows / 16; ++k) product_of_columns(dq, further(a, k * 16 * column_bytes), further(b, k * 16 * column_bytes), k > 0);
    wgmma_commit();
  };
  // dq of step i leaves.
  const auto put_dq = [&](int i) {
    if (lane() == 0) memory.gradients_empty[i & 1].arrive();
    memory.dq_empty.wait((i & 1) ^ 1);
    float4* const to = reinterpret_cast<float4*>(memory.dq) + group() * 1024 + thread_now() % 128;
#pragma unroll
    for (int j = 0; j < 8; ++j) to[j * 128] = make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
    fence_async_proxy();
    __syncwarp();
    if (lane() == 0) memory.dq_full[i % Memory<dim>::writers].arrive();
  };

  memory.keys.wait(0);
#pragma unroll 1
  for (int i = 0; i < walk.steps; ++i, at.next()) {
    const auto& stage = memory.stage[at.stage];
    const int first_query = query_tile * queries;
    if (++heads_done == call.group) heads_done = 0, --query_tile;
    memory.full[at.stage].wait(at.parity);

    float s[queries / 2], ds[queries / 2];
    const uint32_t own_rows = shared_address(memory.k) + group() * 64 * column_bytes;
    wgmma_fence();
    multiply_rows<dim, tile_rows, queries>(s, describe(own_rows), describe(stage.q));
    wgmma_commit();

    wgmma_wait<1>();
    pin(score_gradients), pin(dk);
    if (i > 0 && lane() == 0) memory.empty[(at.stage > 0 ? at.stage : Memory<dim>::stages) - 1].arrive();
    wgmma_fence();
    multiply_rows<dim, tile_rows, queries>(ds, describe(shared_address(memory.v) + group() * 64 * column_bytes), describe(stage.dout));
    wgmma_commit();

    wgmma_wait<1>();
    pin(s);
    const int column = lane() % 4 * 2;
#pragma unroll
    for (int j = 0; j < queries / 8; ++j) {
      const float2 lse = *reinterpret_cast<const float2*>(&memory.lse[at.stage][8 * j + column]);
#pragma unroll
      for (int e = 0; e < 4; ++e) s[4 * j + e] = exp2_approx(fmaf(s[4 * j + e], call.exponent_scale, -(e % 2 ? lse.y : lse.x)));
    }
    const int first_key = memory.key + group() * 64;
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
    pack(weights, s);
    wgmma_fence();
    multiply_add(dv, weights, describe(stage.dout, queries * column_bytes));
    wgmma_commit();

    wgmma_wait<1>();
    pin(ds);
    const int delta_column = lane() % 4 * 2;
#pragma unroll
    for (int j = 0; j < queries / 8; ++j) {
      const float2 delta = *reinterpret_cast<const float2*>(&memory.delta[at.stage][8 * j + delta_column]);
#pragma unroll
      for (int e = 0; e < 4; ++e)  // there are no registers for the weights before they were rounded
        ds[4 * j + e] = unpack_bf16(weights[2 * j + e / 2], e % 2) * (ds[4 * j + e] - (e % 2 ? delta.y : delta.x));
    }
    wgmma_wait<0>();
    pin(weights), pin(dv);
    pack(score_gradients, ds);
    memory.gradients_empty[i & 1].wait((i >> 1 & 1) ^ 1);
    const int own_row = thread_now() / 32 * 16 - 64 + lane() % 16;  // of score_gradients, whose address the lane gives
    const uint32_t row = shared_address(memory.score_gradients[i & 1]) + own_row * column_bytes, half = lane() / 16;
#pragma unroll
    for (int j = 0; j < queries / 8; j += 2)
      store_blocks(row + j / 8 * tile_rows * column_bytes + (((j % 8 + half) ^ (own_row % 8)) * 16), score_gradients + 2 * j);
    fence_async_proxy();
    __syncwarp();
    if (lane() == 0) memory.gradients_full[i & 1].arrive();
    if (i > 0) memory.gradients_full[(i + 1) & 1].wait((i - 1) >> 1 & 1);
    queue_dq(i);  // in the first step of nothing, for nobody
    wgmma_fence();
    multiply_add(dk, score_gradients, describe(stage.q, queries * column_bytes));
    wgmma_commit();
    wgmma_wait<1>();
    pin(dq);
    if (i > 0) put_dq(i - 1);
  }
  wgmma_wait<0>();
  pin(dq), pin(dk);
  memory.gradients_full[(walk.steps + 1) & 1].wait((walk.steps - 1) >> 1 & 1);
  queue_dq(walk.steps);
  wgmma_wait<0>();
  pin(dq);
  put_dq(walk.steps - 1);
  named_sync(3, 256);  // k is read by both warpgroups
  const Tile tile = memory.tile;
  const int first_key = memory.key + group() * 64, rows = tile.length - first_key;
  const int64_t token = tile.begin + first_key, at_column = int64_t{memory.kv_head} * dim;
  store_rows<dim>(call.dv + token * call.dv_stride + at_column, call.dv_stride, rows, dv, 1.0f, memory.v, group());
  store_rows<dim>(call.dk + token * call.dk_stride + at_column, call.dk_stride, rows, dk, call.scale, memory.k, group());
}

template <int dim>
__global__ void __launch_bounds__(threads, 1)
    gradients(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
              const __grid_constant__ CUtensorMap dout, const __grid_constant__ Call call) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  Memory<dim>& memory = *reinterpret_cast<Memory<dim>*>(bytes);
  if (threadIdx.x == 0) {
    // Blocks take places in the order in which they start, so that whoever waits for a turn waits for a block that runs.
    const int place = atomicAdd(call.next, 1);
    const Tile tile = call.tiles[place / call.kv_heads];
    memory.tile = tile, memory.kv_head = place % call.kv_heads;
    memory.key = ((tile.length + tile_rows - 1) / tile_rows - tile.rank) * tile_rows;
    memory.keys.init(1), memory.dq_empty.init(1);
    for (Barrier& full : memory.full) full.init(1);
    for (Barrier& empty : memory.empty) empty.init(8);
    for (Barrier& full : memory.gradients_full) full.init(8);
    for (Barrier& empty : memory.gradients_empty) empty.init(8);
    for (Barrier& full : memory.dq_full) full.init(8);
    publish_barriers();
  }
  __syncthreads();
  const Tile tile = memory.tile;
  if (tile.length == 0) return;
  const int kv_head = memory.kv_head, key = memory.key;
  const Walk walk(tile, key, kv_head, Memory<dim>::queries, call);
  if (threadIdx.x < 128) {
    fewer_registers<24>();
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 > 0) return;
    if (warp == 0)
      load_steps<dim>(memory, q, k, v, dout, call, tile, key, kv_head, walk);
    else if (warp <= Memory<dim>::writers)
      add_steps<dim>(memory, call, tile, key, walk, warp - 1);
  } else {
    more_registers<240>();
    compute_steps<dim>(memory, call, walk);
  }
}

}  // namespace hone::attention_gradients
