#pragma once
// dq of 128 queries of one head: a walk over the keys that they see.
#include "kernels/attention_backward_sm90.cuh"

namespace hone::attention_gradients {

template <int dim>
struct QueryMemory {
  static constexpr int keys = 128, stages = dim == 64 ? 3 : 2;
  struct Stage {
    unsigned char k[keys * dim * 2], v[keys * dim * 2];
  };
  unsigned char q[tile_rows * dim * 2], dout[tile_rows * dim * 2];
  Stage stage[stages];
  Barrier queries, full[stages], empty[stages];
};

// The keys that a tile of queries sees: tiles [first, end).
struct KeyWalk {
  int first, end;
  __device__ KeyWalk(int query, int keys, int window)
      : first(window > 0 ? max(0, query - window + 1) / keys : 0), end((query + tile_rows + keys - 1) / keys) {}
};

template <int dim>
__device__ inline void load_keys(QueryMemory<dim>& memory, const CUtensorMap& q, const CUtensorMap& k, const CUtensorMap& v, const CUtensorMap& dout,
                                 const Call& call, const Tile& tile, int query, int head, KeyWalk walk) {
  using Memory = QueryMemory<dim>;
  const int kv_head = head / call.group;
  memory.queries.arrive_expecting(2 * sizeof memory.q);
  load_tile<tile_rows, dim>(memory.q, q, memory.queries, head, tile.begin + query);
  load_tile<tile_rows, dim>(memory.dout, dout, memory.queries, head, tile.begin + query);
  RingPlace<Memory::stages> at;
  for (int i = walk.first; i < walk.end; ++i, at.next()) {
    auto& stage = memory.stage[at.stage];
    Barrier& full = memory.full[at.stage];
    memory.empty[at.stage].wait(at.parity ^ 1);
    full.arrive_expecting(sizeof stage);
    load_tile<Memory::keys, dim>(stage.k, k, full, kv_head, tile.begin + i * Memory::keys);
    load_tile<Memory::keys, dim>(stage.v, v, full, kv_head, tile.begin + i * Memory::keys);
  }
}

template <int dim>
__device__ inline void sum_query_gradients(QueryMemory<dim>& memory, const Call& call, const Tile& tile, int query, int head, KeyWalk walk) {
  using Memory = QueryMemory<dim>;
  constexpr int keys = Memory::keys;
  const int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, lane = thread % 32;
  const int first_query = query + group * 64, own_query = first_query + thread / 32 * 16 + lane / 4, column = lane % 4 * 2;
  uint32_t own_rows = shared_address(memory.q + group * 64 * column_bytes);
  const int64_t row = head * call.padded + tile.row + own_query;
  const float lse[2] = {call.lse[row], call.lse[row + 8]}, delta[2] = {call.delta[row], call.delta[row + 8]};

  float dq[dim / 2] = {};
  uint32_t score_gradients[keys / 4] = {};
  RingPlace<Memory::stages> at;
  Barrier* used = nullptr;  // of the stage that the products of the step before read
  memory.queries.wait(0);
#pragma unroll 1
  for (int i = walk.first; i < walk.end; ++i, at.next()) {
    const auto& stage = memory.stage[at.stage];
    const int first_key = i * keys;
    memory.full[at.stage].wait(at.parity);

    float s[keys / 2], ds[keys / 2];
    keep_computing(own_rows);
    wgmma_fence();
    multiply_rows<dim, tile_rows, keys>(s, describe(own_rows), describe(stage.k));
    wgmma_commit();
    wgmma_wait<1>();
    pin(score_gradients), pin(dq);
    if (used && lane == 0) used->arrive();
    used = &memory.empty[at.stage];
    wgmma_fence();
    multiply_rows<dim, tile_rows, keys>(ds, describe(own_rows + sizeof memory.q), describe(stage.v));
    wgmma_commit();

    wgmma_wait<1>();
    pin(s);
#pragma unroll
    for (int j = 0; j < keys / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[4 * j + e] = exp2_approx(fmaf(s[4 * j + e], call.exponent_scale, -lse[e / 2]));
    if (first_key + keys - 1 > first_query || (call.window > 0 && first_query + 64 - first_key > call.window)) {
#pragma unroll
      for (int j = 0; j < keys / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int distance = own_query + e / 2 * 8 - (first_key + 8 * j + column + e % 2);
          if (distance < 0 || (call.window > 0 && distance >= call.window)) s[4 * j + e] = 0;
        }
    }
    wgmma_wait<0>();
    pin(ds);
#pragma unroll
    for (int j = 0; j < keys / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) ds[4 * j + e] = s[4 * j + e] * (ds[4 * j + e] - delta[e / 2]);
    pack(score_gradients, ds);
    wgmma_fence();
    multiply_add(dq, score_gradients, describe(stage.k, keys * column_bytes));
    wgmma_commit();
  }
  wgmma_wait<0>();
  pin(dq);
  const int64_t token = tile.begin + first_query;
  store_rows<dim>(call.dq + token * call.dq_stride + int64_t{head} * dim, call.dq_stride, tile.length - first_query, dq, call.scale, memory.q, group);
}

template <int dim>
__global__ void __launch_bounds__(threads, 1)
    query_gradients(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
                    const __grid_constant__ CUtensorMap dout, const __grid_constant__ Call call) {
  using Memory = QueryMemory<dim>;
  extern __shared__ __align__(1024) unsigned char bytes[];
  Memory& memory = *reinterpret_cast<Memory*>(bytes);
  const Tile tile = call.tiles[blockIdx.y];
  if (tile.length == 0) return;
  const int head = static_cast<int>(blockIdx.x), query = (tile.rank - 1) * tile_rows;
  const KeyWalk walk(query, Memory::keys, call.window);
  if (threadIdx.x == 0) {
    memory.queries.init(1);
    for (int i = 0; i < Memory::stages; ++i) memory.full[i].init(1), memory.empty[i].init(2 * 4);
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    fewer_registers<24>();
    if (threadIdx.x == 0) load_keys<dim>(memory, q, k, v, dout, call, tile, query, head, walk);
  } else {
    more_registers<240>();
    sum_query_gradients<dim>(memory, call, tile, query, head, walk);
  }
}

}  // namespace hone::attention_gradients
