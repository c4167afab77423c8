#pragma once
// Work items, producer and dq writers of attention's backward on Hopper (kernel: gemms_sm90.cuh).
//
// A work item is a tile of 128 keys of one KV head. It loops over the queries that see these keys, the last ones first,
// and over all its heads for each query tile. Each step adds to dq: it goes through shared memory to f32 sums in global
// memory. Thread blocks add to the same queries in turn, the first keys first, so that the sums have one order. The
// first keys have the longest loops and start first, so later blocks rarely wait except in the first steps of a call.
#include "kernels/attention/backward/backward_sm90.cuh"

namespace hone::attention_gradients {

struct Work {
  Tile tile;  // length 0: no work is left
  int key;    // first of 128 keys, within the sequence
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
  float dq[queries * dim];                                    // layout of Call::dq_sums
  float lse[stages][queries], delta[stages][queries];
  Barrier work_full[2], work_empty[2], keys_full, k_empty, v_empty, full[stages], empty[stages], gradients_full[2],
      gradients_empty[2], dq_full[writers], dq_empty;
  Work work[2];

  __device__ void init_barriers() {
    keys_full.init(2);
    k_empty.init(compute_warps);
    v_empty.init(compute_warps);
    dq_empty.init(1);
    // For buffers that all lanes read (work, lse, delta) every lane arrives on release, not one per warp: racecheck of
    // compute-sanitizer does not follow a lane that arrives for its warp.
    for (int i = 0; i < 2; ++i) {
      work_full[i].init(1);
      work_empty[i].init(32 * compute_warps + writers);
      gradients_full[i].init(compute_warps);
      gradients_empty[i].init(compute_warps);
    }
    for (int i = 0; i < stages; ++i) {
      full[i].init(1);
      empty[i].init(32 * compute_warps);
    }
    for (int i = 0; i < writers; ++i) dq_full[i].init(compute_warps);
    fence_mbarrier_init();
  }
};

// Turn counters and bulk stores of the dq sums. A turn passes when the bulk store or add has completed.
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

// A step: one query tile of one head, in the order of the loop.
struct Step {
  int head, query_tile;
};
struct KvLoop {
  int first, count, first_head, heads, steps;  // first: earliest query tile
  __device__ KvLoop(const Work& work, int queries, const GradientCall& call) {
    const int end = call.window > 0 ? min(work.tile.length, work.key + tile_rows - 1 + call.window) : work.tile.length;
    first = work.key / queries;
    count = (end + queries - 1) / queries - first;
    const int before = work.split * call.group / call.splits;
    heads = (work.split + 1) * call.group / call.splits - before;
    first_head = work.kv_head * call.group + before;
    steps = count * heads;
  }
  __device__ Step begin() const { return {first_head, first + count - 1}; }
  __device__ void advance(Step& step) const {
    if (++step.head == first_head + heads) step = {first_head, step.query_tile - 1};
  }
};

// Claims the next work item. Items are claimed in list order. A block that waits for a turn therefore waits for an item
// that was claimed before its own, so there is no deadlock.
__device__ inline Work next_work(const GradientCall& call) {
  const int place = atomicAdd(call.next, 1), walks = call.kv_heads * call.splits;
  if (place >= call.num_tiles * walks) return {};
  const Tile tile = call.tiles[place / walks];
  return {.tile = tile,
          .key = ((tile.length + tile_rows - 1) / tile_rows - tile.rank) * tile_rows,
          .kv_head = place % walks / call.splits,
          .split = place % call.splits};
}

// Producer, one thread: publishes work items and issues their loads.
template <int dim>
__device__ inline void load_walks(Memory<dim>& memory, const CUtensorMap& q, const CUtensorMap& k, const CUtensorMap& v,
                                  const CUtensorMap& dout, const GradientCall& call) {
  constexpr int queries = Memory<dim>::queries, stages = Memory<dim>::stages;
  RingPlace<stages> at;
  RingPlace<2> slot;
  for (uint32_t parity = 1;; parity ^= 1, slot.next()) {
    const Work work = next_work(call);
    memory.work_empty[slot.stage].wait(slot.parity ^ 1);  // all consumers and writers have read the item before last
    memory.work[slot.stage] = work;
    memory.work_full[slot.stage].arrive();
    if (work.tile.length == 0) return;
    const KvLoop walk(work, queries, call);
    Step step = walk.begin();
    for (int i = 0; i < walk.steps; ++i, at.next(), walk.advance(step)) {
      if (i == min(stages, walk.steps) - 1) {  // K and V are released later than the stages before this one
        memory.v_empty.wait(parity);
        memory.keys_full.arrive_expect_tx(sizeof memory.v);
        load_tile<tile_rows, dim>(memory.v, v, memory.keys_full, work.kv_head, work.tile.begin + work.key);
        memory.k_empty.wait(parity);  // 8 consumer warps have read K of the item before
        memory.keys_full.arrive_expect_tx(sizeof memory.k);
        load_tile<tile_rows, dim>(memory.k, k, memory.keys_full, work.kv_head, work.tile.begin + work.key);
      }
      auto& stage = memory.stage[at.stage];
      Barrier& full = memory.full[at.stage];
      const int query = step.query_tile * queries;
      const int64_t row = step.head * call.padded + work.tile.row + query;
      memory.empty[at.stage].wait(at.parity ^ 1);  // all consumer lanes have read the stage
      full.arrive_expect_tx(sizeof stage + 2 * queries * sizeof(float));
      load_tile<queries, dim>(stage.q, q, full, step.head, work.tile.begin + query);
      load_bytes(memory.lse[at.stage], call.lse + row, queries * sizeof(float), full);
      load_tile<queries, dim>(stage.dout, dout, full, step.head, work.tile.begin + query);
      load_bytes(memory.delta[at.stage], call.delta + row, queries * sizeof(float), full);
    }
  }
}

// The first key tile that a query sees.
__device__ inline int first_tile(int query, int window) {
  return window > 0 ? max(0, query - window + 1) / tile_rows : 0;
}

// One dq writer thread of `writers`: adds every writers-th step's dq to the sums when it is this block's turn. An
// addition takes longer than a step, so several writers overlap.
template <int dim>
__device__ inline void add_steps(Memory<dim>& memory, const GradientCall& call, int writer) {
  constexpr int queries = Memory<dim>::queries, writers = Memory<dim>::writers;
  RingPlace<2> slot;
  uint32_t parity = 0;
  int steps_before = writer;  // steps until this writer's next one
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
      if (turn > 0) await_turn(call.turns + place, turn);  // earlier key tiles have been added
      memory.dq_full[writer].wait(parity);                 // 8 consumer warps have stored dq
      parity ^= 1;
      if (turn > 0)
        add_bytes(sums, memory.dq, sizeof memory.dq);
      else
        store_bytes(sums, memory.dq, sizeof memory.dq);
      await_reads();
      memory.dq_empty.arrive();  // the consumers may overwrite the buffer
      await_writes();
      pass_turn(call.turns + place, turn + 1);
    }
  }
}

}  // namespace hone::attention_gradients
