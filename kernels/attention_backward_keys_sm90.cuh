#pragma once
// dk and dv of 128 keys of one kv head: a walk over the queries that see them, of every head of the group in turn. Scores are computed with keys as
// rows, so that weights and their gradients stay in registers on their way to the next product.
#include "kernels/attention_backward_sm90.cuh"

namespace hone::attention_gradients {

template <int dim>
struct KeyMemory {
  static constexpr int queries = dim == 64 ? 128 : 64, stages = 3;
  struct Stage {
    unsigned char q[queries * dim * 2], dout[queries * dim * 2];
  };
  unsigned char k[tile_rows * dim * 2], v[tile_rows * dim * 2];
  Stage stage[stages];
  float lse[stages][queries], delta[stages][queries];
  Barrier keys, full[stages], empty[stages];
};

// The queries that see a tile of keys: tiles [first, first + count) of every head.
struct QueryWalk {
  int first, count;
  __device__ QueryWalk(const Tile& tile, int key, int queries, int window) {
    const int end = window > 0 ? min(tile.length, key + tile_rows - 1 + window) : tile.length;
    first = key / queries, count = (end + queries - 1) / queries - first;
  }
};

template <int dim>
__device__ inline void load_queries(KeyMemory<dim>& memory, const CUtensorMap& q, const CUtensorMap& k, const CUtensorMap& v, const CUtensorMap& dout,
                                    const Call& call, const Tile& tile, int key, int kv_head, QueryWalk walk) {
  using Memory = KeyMemory<dim>;
  constexpr int queries = Memory::queries;
  memory.keys.arrive_expecting(2 * sizeof memory.k);
  load_tile<tile_rows, dim>(memory.k, k, memory.keys, kv_head, tile.begin + key);
  load_tile<tile_rows, dim>(memory.v, v, memory.keys, kv_head, tile.begin + key);
  RingPlace<Memory::stages> at;
  for (int head = kv_head * call.group; head < (kv_head + 1) * call.group; ++head)
    for (int i = walk.first; i < walk.first + walk.count; ++i, at.next()) {
      auto& stage = memory.stage[at.stage];
      Barrier& full = memory.full[at.stage];
      const int64_t row = head * call.padded + tile.row + i * queries;
      memory.empty[at.stage].wait(at.parity ^ 1);
      full.arrive_expecting(sizeof stage + 2 * queries * sizeof(float));
      load_tile<queries, dim>(stage.q, q, full, head, tile.begin + i * queries);
      load_bytes(memory.lse[at.stage], call.lse + row, queries * sizeof(float), full);
      load_tile<queries, dim>(stage.dout, dout, full, head, tile.begin + i * queries);
      load_bytes(memory.delta[at.stage], call.delta + row, queries * sizeof(float), full);
    }
}

template <int dim>
__device__ inline void sum_key_gradients(KeyMemory<dim>& memory, const Call& call, const Tile& tile, int key, int kv_head, QueryWalk walk) {
  using Memory = KeyMemory<dim>;
  constexpr int queries = Memory::queries;
  const int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, lane = thread % 32;
  const int first_key = key + group * 64, own_key = first_key + thread / 32 * 16 + lane / 4, column = lane % 4 * 2;
  uint32_t own_rows = shared_address(memory.k + group * 64 * column_bytes);

  float dk[dim / 2] = {}, dv[dim / 2] = {};
  uint32_t weights[queries / 4] = {}, score_gradients[queries / 4] = {};
  RingPlace<Memory::stages> at;
  Barrier* used = nullptr;  // of the stage that the products of the step before read
  memory.keys.wait(0);
  int tile_index = walk.first;
#pragma unroll 1
  for (int step = walk.count * call.group; step > 0; --step, at.next()) {
    const auto& stage = memory.stage[at.stage];
    const int first_query = tile_index * queries;
    if (++tile_index == walk.first + walk.count) tile_index = walk.first;
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

    wgmma_wait<1>();
    pin(ds);
#pragma unroll
    for (int j = 0; j < queries / 8; ++j) {
      const float2 delta = *reinterpret_cast<const float2*>(&memory.delta[at.stage][8 * j + column]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        // The wide tiles of heads of 64 leave no registers for both forms of the weights.
        const float weight = dim == 64 ? unpack_bf16(weights[2 * j + e / 2], e % 2) : s[4 * j + e];
        ds[4 * j + e] = weight * (ds[4 * j + e] - (e % 2 ? delta.y : delta.x));
      }
    }
    wgmma_wait<0>();
    pin(weights), pin(dv);
    pack(score_gradients, ds);
    wgmma_fence();
    multiply_add(dk, score_gradients, describe(stage.q, queries * column_bytes));
    wgmma_commit();
  }
  wgmma_wait<0>();
  pin(dk);
  const int rows = tile.length - first_key;
  const int64_t token = tile.begin + first_key, at_column = int64_t{kv_head} * dim;
  store_rows<dim>(call.dv + token * call.dv_stride + at_column, call.dv_stride, rows, dv, 1.0f, memory.v, group);
  store_rows<dim>(call.dk + token * call.dk_stride + at_column, call.dk_stride, rows, dk, call.scale, memory.k, group);
}

template <int dim>
__global__ void __launch_bounds__(threads, 1)
    key_gradients(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
                  const __grid_constant__ CUtensorMap dout, const __grid_constant__ Call call) {
  using Memory = KeyMemory<dim>;
  extern __shared__ __align__(1024) unsigned char bytes[];
  Memory& memory = *reinterpret_cast<Memory*>(bytes);
  const Tile tile = call.tiles[blockIdx.y];
  if (tile.length == 0) return;
  const int kv_head = static_cast<int>(blockIdx.x), key = ((tile.length + tile_rows - 1) / tile_rows - tile.rank) * tile_rows;
  const QueryWalk walk(tile, key, Memory::queries, call.window);
  if (threadIdx.x == 0) {
    memory.keys.init(1);
    for (int i = 0; i < Memory::stages; ++i) memory.full[i].init(1), memory.empty[i].init(2 * 4);
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    fewer_registers<24>();
    if (threadIdx.x == 0) load_queries<dim>(memory, q, k, v, dout, call, tile, key, kv_head, walk);
  } else {
    more_registers<240>();
    sum_key_gradients<dim>(memory, call, tile, key, kv_head, walk);
  }
}

}  // namespace hone::attention_gradients
