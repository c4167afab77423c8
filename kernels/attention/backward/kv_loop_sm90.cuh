#pragma once
// Attention's backward on Hopper is a walk over queries for 128 keys of one kv head: those that see the keys, the last
// ones first, each time of every head of the walk. Here is who walks, what is copied for it, and how dq leaves: what a
// step adds goes by way of shared memory to sums in device memory, where blocks add to the same queries in turn, the
// first keys first. These have the longest walks and start first; a block that follows finds its turn come, but for the
// first steps of a call.
#include "kernels/attention/backward/backward_sm90.cuh"

namespace hone::attention_gradients {

struct Work {
  Tile tile;  // no tile: all is done
  int key;    // the first of 128, within the sequence
  int kv_head, split;
};

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
  Barrier work_full[2], work_empty[2], keys_full, k_empty, v_empty, full[stages], empty[stages], gradients_full[2],
      gradients_empty[2], dq_full[writers], dq_empty;
  Work work[2];

  __device__ void init_barriers() {
    keys_full.init(2), k_empty.init(compute_warps), v_empty.init(compute_warps), dq_empty.init(1);
    // Where all lanes read what is overwritten then (work, lse, delta), each of them arrives: racecheck of
    // compute-sanitizer follows no lane that arrives for its warp.
    for (int i = 0; i < 2; ++i) {
      work_full[i].init(1), work_empty[i].init(32 * compute_warps + writers);
      gradients_full[i].init(compute_warps), gradients_empty[i].init(compute_warps);
    }
    for (int i = 0; i < stages; ++i) full[i].init(1), empty[i].init(32 * compute_warps);
    for (int i = 0; i < writers; ++i) dq_full[i].init(compute_warps);
    fence_mbarrier_init();
  }
};

// Sums in device memory as the copy engine writes them, and whose turn it is to add to them.
__device__ inline void await_turn(const int* turns, int turn) {
  for (int now = -1; now != turn;)
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(now) : "l"(turns) : "memory");
}
__device__ inline void pass_turn(int* turns, int turn) {
  asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(turns), "r"(turn) : "memory");
}
__device__ inline void add_bytes(float* to, const float* from, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ inline void store_bytes(float* to, const float* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
               "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ inline void await_reads() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ inline void await_writes() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// A step: one tile of queries of one head, in the order of the walk.
struct Step {
  int head, query_tile;
};
struct KvLoop {
  int first, count, first_head, heads, steps;  // of query tiles, first is the earliest
  __device__ KvLoop(const Work& work, int queries, const GradientCall& call) {
    const int end = call.window > 0 ? min(work.tile.length, work.key + tile_rows - 1 + call.window) : work.tile.length;
    first = work.key / queries, count = (end + queries - 1) / queries - first;
    const int before = work.split * call.group / call.splits;
    heads = (work.split + 1) * call.group / call.splits - before, first_head = work.kv_head * call.group + before;
    steps = count * heads;
  }
  __device__ Step begin() const { return {first_head, first + count - 1}; }
  __device__ void advance(Step& step) const {
    if (++step.head == first_head + heads) step = {first_head, step.query_tile - 1};
  }
};

// Blocks take places in the order in which they come, so that whoever waits for a turn waits for a walk that has begun,
// or whose block has only earlier ones before it.
__device__ inline Work next_work(const GradientCall& call) {
  const int place = atomicAdd(call.next, 1), walks = call.kv_heads * call.splits;
  if (place >= call.num_tiles * walks) return {};
  const Tile tile = call.tiles[place / walks];
  return {.tile = tile,
          .key = ((tile.length + tile_rows - 1) / tile_rows - tile.rank) * tile_rows,
          .kv_head = place % walks / call.splits,
          .split = place % call.splits};
}

// One thread hands out work and copies what it needs.
template <int dim>
__device__ inline void load_walks(Memory<dim>& memory, const CUtensorMap& q, const CUtensorMap& k, const CUtensorMap& v,
                                  const CUtensorMap& dout, const GradientCall& call) {
  constexpr int queries = Memory<dim>::queries, stages = Memory<dim>::stages;
  RingPlace<stages> at;
  RingPlace<2> slot;
  for (uint32_t parity = 1;; parity ^= 1, slot.next()) {
    const Work work = next_work(call);
    memory.work_empty[slot.stage].wait(slot.parity ^ 1);
    memory.work[slot.stage] = work;
    memory.work_full[slot.stage].arrive();
    if (work.tile.length == 0) return;
    const KvLoop walk(work, queries, call);
    Step step = walk.begin();
    for (int i = 0; i < walk.steps; ++i, at.next(), walk.advance(step)) {
      if (i == min(stages, walk.steps) - 1) {  // the stages before are free sooner than the keys
        memory.v_empty.wait(parity);
        memory.keys_full.arrive_expect_tx(sizeof memory.v);
        load_tile<tile_rows, dim>(memory.v, v, memory.keys_full, work.kv_head, work.tile.begin + work.key);
        memory.k_empty.wait(parity);
        memory.keys_full.arrive_expect_tx(sizeof memory.k);
        load_tile<tile_rows, dim>(memory.k, k, memory.keys_full, work.kv_head, work.tile.begin + work.key);
      }
      auto& stage = memory.stage[at.stage];
      Barrier& full = memory.full[at.stage];
      const int query = step.query_tile * queries;
      const int64_t row = step.head * call.padded + work.tile.row + query;
      memory.empty[at.stage].wait(at.parity ^ 1);
      full.arrive_expect_tx(sizeof stage + 2 * queries * sizeof(float));
      load_tile<queries, dim>(stage.q, q, full, step.head, work.tile.begin + query);
      load_bytes(memory.lse[at.stage], call.lse + row, queries * sizeof(float), full);
      load_tile<queries, dim>(stage.dout, dout, full, step.head, work.tile.begin + query);
      load_bytes(memory.delta[at.stage], call.delta + row, queries * sizeof(float), full);
    }
  }
}

// The first tile of keys that a query sees.
__device__ inline int first_tile(int query, int window) {
  return window > 0 ? max(0, query - window + 1) / tile_rows : 0;
}

// One thread of `writers` adds every writers-th of what steps leave in memory.dq to the sums, when it is this block's
// turn. An addition takes longer than a step, so several are under way.
template <int dim>
__device__ inline void add_steps(Memory<dim>& memory, const GradientCall& call, int writer) {
  constexpr int queries = Memory<dim>::queries, writers = Memory<dim>::writers;
  RingPlace<2> slot;
  uint32_t parity = 0;
  int steps_before = writer;  // until this writer's next one
  for (;; slot.next()) {
    memory.work_full[slot.stage].wait(slot.parity);
    const Work work = memory.work[slot.stage];
    memory.work_empty[slot.stage].arrive();
    if (work.tile.length == 0) return;
    const KvLoop walk(work, queries, call);
    Step step = walk.begin();
    for (int i = 0; i < walk.steps; ++i, walk.advance(step)) {
      if (steps_before-- > 0) continue;
      steps_before = writers - 1;
      const int first_query = step.query_tile * queries;
      const int turn = work.key / tile_rows - first_tile(first_query, call.window);
      const int64_t place = (step.head * call.padded + work.tile.row + first_query) / queries;
      float* const sums = call.dq_sums + place * (queries * dim);
      if (turn > 0) await_turn(call.turns + place, turn);
      memory.dq_full[writer].wait(parity);
      parity ^= 1;
      if (turn > 0)
        add_bytes(sums, memory.dq, sizeof memory.dq);
      else
        store_bytes(sums, memory.dq, sizeof memory.dq);
      await_reads();
      memory.dq_empty.arrive();
      await_writes();
      pass_turn(call.turns + place, turn + 1);
    }
  }
}

}  // namespace hone::attention_gradients
