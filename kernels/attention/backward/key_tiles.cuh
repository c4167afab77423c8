#pragma once
// Main kernel of attention's backward with mma.sync and cp.async: dk and dv of a tile of keys in registers, dq added to
// f32 sums in global memory. Formulas: backward.cuh.
//
// Use       mma.cu, which chooses a plan by the device's shared memory.
// Tile      16 * fragments * warps keys of one KV head by `queries` queries of one head per step. D = 256 has two parts
//           of 128 gradient columns, which are separate work items.
// Roles     each warp owns 16 * fragments keys. It computes s and dout . v transposed (keys as rows), so p and ds stay
//           in registers as operands for dv and dk. ds also goes to shared memory, from where all warps compute dq one
//           step later, each a part of its rows and columns. All threads copy.
// Pipeline  `stages` smem stages of q and dout with lse and delta, filled by cp.async; 2 buffers of ds. Each has a full
//           and an empty mbarrier, at which all lanes arrive, so that warps may be half a step apart. Sums of dq are
//           read before the GEMMs of dv and dk and written after them.
// Smem      K and V 4 * keys * D bytes + stages * queries * (4 D + 8) + ds 4 * keys * queries.
// Numerics  f32 accumulators. p = exp2(scale * log2(e) * s - log2(e) * lse); ds = p * (dp - delta); both rounded to
// bf16
//           as operands. dk, dv: one sum over query tiles from last to first, heads ascending within each tile (and
//           splits ascending). dq: one sum over keys in ascending order. Turn counters enforce the order of key tiles.
// PDL       none.
// Limits    head dimension a multiple of 8 up to D; rows 16-byte aligned.
#include "kernels/attention/backward/backward.cuh"
#include "kernels/attention/mma.cuh"
#include "kernels/attention/prefill/tile_list.cuh"

namespace hone::attention {

template <int Width, int Warps, int Fragments, int Queries, int Stages, int Blocks>
struct KeyTilePlan {
  static constexpr int width = Width, warps = Warps, fragments = Fragments, queries = Queries, stages = Stages,
                       blocks = Blocks;  // blocks: thread blocks per SM that the registers allow
  static constexpr int threads = 32 * Warps, keys = 16 * Fragments * Warps, parts = Width > 128 ? 2 : 1,
                       columns = Width / parts;
  // dq: a warp computes dq_fragments groups of 16 rows and dq_columns columns.
  static constexpr int dq_fragments = Queries >= 32 && columns * (Queries / 32) >= 16 * Warps ? 2 : 1,
                       dq_row_warps = Queries / 16 / dq_fragments, dq_columns = columns / (Warps / dq_row_warps);
  static constexpr uint32_t key_bytes = 2 * keys * Width, query_bytes = 2 * Queries * Width,
                            stage_bytes = 2 * query_bytes + 8 * Queries, ds_bytes = 2 * keys * Queries;
  static constexpr size_t bytes = 2 * key_bytes + Stages * stage_bytes + 2 * ds_bytes,
                          static_bytes = 8 * (2 * Stages + 4) + 64;  // barriers; the work item
  static_assert(Warps % dq_row_warps == 0 && dq_columns % 16 == 0 && keys % Queries == 0 && Stages >= 2);
};

struct KeyTileCall {
  BackwardCall<Bf16> tensors;
  TileList list;
  float* dq_sums;   // [H, query_tiles, parts] blocks of queries * columns, each in the accumulator layout
  int* turns;       // [H, query_tiles, parts, warps]: number of key tiles that have been added
  float* key_sums;  // if splits > 1: [splits, dk and dv, T, Hk, width]
  int query_tiles;  // over all sequences; sequence s starts at tile offsets[s] / queries + s
  int splits;       // work items that share the heads of a group
};

// Swizzle of rows of U units (mma.cuh), also for fewer than eight units: the bits that move unit u of row r.
template <int U>
__device__ inline uint32_t row_turn(int row) {
  return static_cast<uint32_t>(U >= 8 ? row & 7 : row / (8 / U) & (U - 1)) * 16;
}

__device__ inline void copy_number_async(uint32_t to, const float* from, bool real) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(real ? 4 : 0) : "memory");
}
__device__ inline void store_word(uint32_t to, uint32_t x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}
// Sums of dq pass from SM to SM through the L2 cache.
__device__ inline void load_sums(float (&to)[4], const float* from) {
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "l"(from)
               : "memory");
}
__device__ inline void store_sums(float* to, const float (&x)[4]) {
  asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
               : "memory");
}
// A warp waits until its part of a query tile has the sums of `turn` key tiles, or tells the next key tile's warp.
__device__ inline void await_turn(const int* turns, int turn, int lane) {
  if (lane == 0)
    for (int now = -1; now != turn;)
      asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(now) : "l"(turns) : "memory");
  __syncwarp();  // lane 0 has seen the turn
}
__device__ inline void pass_turn(int* turns, int turn, int lane) {
  __syncwarp();  // all lanes have stored their sums
  if (lane == 0) asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(turns), "r"(turn) : "memory");
}

// sum = own . other^T: 16 F own rows by `queries` rows of the other side.
template <class P>
__device__ __forceinline__ void multiply_rows(float (&sum)[P::fragments][P::queries / 8][4], uint32_t own_at,
                                              uint32_t own_turn, uint32_t other_at, uint32_t other_turn) {
#pragma unroll
  for (int f = 0; f < P::fragments; ++f)
#pragma unroll
    for (int n = 0; n < P::queries / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[f][n][i] = 0;
#pragma unroll
  for (uint32_t d = 0; d < P::width / 16; ++d) {
    uint32_t a[P::fragments][4];
#pragma unroll
    for (uint32_t f = 0; f < P::fragments; ++f) ldmatrix_x4(a[f], own_at + (own_turn ^ d * 32) + f * 32 * P::width);
#pragma unroll
    for (uint32_t n = 0; n < P::queries / 16; ++n) {
      uint32_t b[4];
      ldmatrix_x4(b, other_at + (other_turn ^ d * 32) + n * 32 * P::width);
#pragma unroll
      for (int f = 0; f < P::fragments; ++f) {
        mma_m16n8k16(sum[f][2 * n], a[f], b[0], b[1]);
        mma_m16n8k16(sum[f][2 * n + 1], a[f], b[2], b[3]);
      }
    }
  }
}

// sum += weights . tile, with the queries as the reduction dimension; `turn` includes the first column.
template <class P>
__device__ __forceinline__ void add_weighted(float (&sum)[P::fragments][P::columns / 8][4],
                                             const uint32_t (&weights)[P::fragments][P::queries / 16][4], uint32_t at,
                                             uint32_t turn) {
#pragma unroll
  for (uint32_t n = 0; n < P::queries / 16; ++n)
#pragma unroll
    for (uint32_t d = 0; d < P::columns / 16; ++d) {
      uint32_t b[4];
      ldmatrix_x4_trans(b, at + (turn ^ d * 32) + n * 32 * P::width);
#pragma unroll
      for (int f = 0; f < P::fragments; ++f) {
        mma_m16n8k16(sum[f][2 * d], weights[f][n], b[0], b[1]);
        mma_m16n8k16(sum[f][2 * d + 1], weights[f][n], b[2], b[3]);
      }
    }
}

// Turns transposed scores of 16 F keys (from first_key) and the step's queries (from first_query) into p: elements
// outside the mask are zero. lse: of the queries, in shared memory.
template <class P>
__device__ __forceinline__ void weigh_queries(float (&s)[P::fragments][P::queries / 8][4], const float* lse, float c,
                                              int first_key, int first_query, int window, int lane) {
  constexpr int F = P::fragments, Q = P::queries;
#pragma unroll
  for (int n = 0; n < Q / 8; ++n) {
    const float2 two = *reinterpret_cast<const float2*>(lse + 8 * n + 2 * (lane % 4));
    const float shift[2] = {-log2e * two.x, -log2e * two.y};
#pragma unroll
    for (int f = 0; f < F; ++f)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[f][n][e] = weight(s[f][n][e], c, shift[e % 2]);
  }
  const int seen = window > 0 ? window : 1 << 30;
  if (first_query >= first_key + 16 * F - 1 && first_query + Q - first_key <= seen) return;
#pragma unroll
  for (int f = 0; f < F; ++f)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int distance = first_query + 2 * (lane % 4) - (first_key + 16 * f + lane / 4 + 8 * r);
#pragma unroll
      for (int n = 0; n < Q / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (distance + 8 * n + e < 0 || distance + 8 * n + e >= seen) s[f][n][2 * r + e] = 0;
    }
}

// ds = p * (dp - delta). Rounds p (in s) and ds to operands and stores ds for dq. delta: of the queries, in shared
// memory.
template <class P>
__device__ __forceinline__ void score_gradients(uint32_t (&p)[P::fragments][P::queries / 16][4],
                                                uint32_t (&ds)[P::fragments][P::queries / 16][4],
                                                const float (&s)[P::fragments][P::queries / 8][4],
                                                const float (&dp)[P::fragments][P::queries / 8][4], const float* delta,
                                                uint32_t ds_tile, int first_row, int lane) {
  constexpr int Q = P::queries;
#pragma unroll
  for (int n = 0; n < Q / 8; ++n) {
    const float2 two = *reinterpret_cast<const float2*>(delta + 8 * n + 2 * (lane % 4));
#pragma unroll
    for (int f = 0; f < P::fragments; ++f)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float low = s[f][n][2 * r], high = s[f][n][2 * r + 1];
        p[f][n / 2][n % 2 * 2 + r] = pack_bf16(low, high);
        const uint32_t word = pack_bf16(low * (dp[f][n][2 * r] - two.x), high * (dp[f][n][2 * r + 1] - two.y));
        ds[f][n / 2][n % 2 * 2 + r] = word;
        const int row = first_row + 16 * f + lane / 4 + 8 * r;
        store_word(ds_tile + static_cast<uint32_t>(row * 2 * Q + lane % 4 * 4) +
                       (static_cast<uint32_t>(n) * 16 ^ row_turn<Q / 8>(lane / 4)),
                   word);
      }
  }
}

// A step: one query tile of one head, in the order of the loop.
struct KeyTileStep {
  int head, query_tile;
};

// The work item that a thread block has claimed. length 0: none is left.
struct KeyTileWork {
  int begin, length, sequence, key, kv_head, split, part;
};
template <class P>
__device__ KeyTileWork claim_work(const KeyTileCall& call) {
  __shared__ KeyTileWork claimed;
  if (threadIdx.x == 0) {
    // Items are claimed in list order: a block that waits for a turn waits for an item that was claimed before its
    // own, so there is no deadlock.
    const int place = atomicAdd(call.list.claimed, 1), walks = call.tensors.forward.kv_heads * call.splits * P::parts;
    KeyTileWork work{};
    if (place < *call.list.count * walks) {
      const int4 tile = call.list.tiles[place / walks];
      const int walk = place % walks;
      work.begin = tile.y;
      work.length = tile.z;
      work.sequence = tile.w;
      work.key = ((tile.z + P::keys - 1) / P::keys - 1) * P::keys - tile.x;  // the first keys have the most queries
      work.part = walk % P::parts;
      work.split = walk / P::parts % call.splits;
      work.kv_head = walk / P::parts / call.splits;
    }
    claimed = work;
  }
  __syncthreads();  // the work item is claimed; the barriers are initialized
  return claimed;
}

// Stores 16 F rows of gradients: as results, or as partial sums if several work items share the heads.
template <class P>
__device__ __forceinline__ void store_keys(const KeyTileCall& call, const KeyTileWork& work, bool values,
                                           const float (&sum)[P::fragments][P::columns / 8][4], int first_row, int lane,
                                           float scale) {
  const BackwardCall<Bf16>& tensors = call.tensors;
  const int dim = tensors.forward.dim, kv_heads = tensors.forward.kv_heads, first_column = work.part * P::columns;
#pragma unroll
  for (int f = 0; f < P::fragments; ++f)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int key = work.key + first_row + 16 * f + lane / 4 + 8 * r;
      const bool inside = key < work.length;
      const int64_t token = work.begin + key;
      if (call.splits > 1) {
        const int64_t row =
            (int64_t{work.split * 2 + values} * tensors.forward.tokens + token) * kv_heads + work.kv_head;
        float* const to = call.key_sums + row * P::width + first_column + 2 * (lane % 4);
#pragma unroll
        for (int d = 0; d < P::columns / 8; ++d)
          if (inside) *reinterpret_cast<float2*>(to + 8 * d) = make_float2(sum[f][d][2 * r], sum[f][d][2 * r + 1]);
        continue;
      }
      Bf16* const to = (values ? tensors.dv + token * tensors.dv_stride : tensors.dk + token * tensors.dk_stride) +
                       work.kv_head * dim;
#pragma unroll
      for (int d = 0; d < P::columns / 8; d += 4) {
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = pack_bf16(sum[f][d + i][2 * r] * scale, sum[f][d + i][2 * r + 1] * scale);
        exchange_quad(x, lane);
        const int column = first_column + 8 * (d + lane % 4);
        if (inside && column < dim) *reinterpret_cast<uint4*>(to + column) = make_uint4(x[0], x[1], x[2], x[3]);
      }
    }
}

// One function, since all of its registers are in use: with dq in a class of its own, some plans spill more of them
// (sm_90a, CUDA 13.0).
template <class P>
__global__ __launch_bounds__(P::threads, P::blocks) void key_tile_kernel(const __grid_constant__ KeyTileCall call) {
  constexpr int D = P::width, F = P::fragments, Q = P::queries, units = D / 8, ds_units = Q / 8;
  extern __shared__ __align__(128) unsigned char shared[];
  // full, empty: a stage has landed, has been read. ds_full, ds_empty: a buffer of ds is stored, has been read.
  __shared__ uint64_t barriers[2 * P::stages + 4];
  const uint32_t full = shared_address(barriers), empty = full + 8 * P::stages, ds_full = empty + 8 * P::stages,
                 ds_empty = ds_full + 16;
  if (threadIdx.x < 2 * P::stages + 4) init_barrier(full + 8 * threadIdx.x, P::threads);
  const KeyTileWork work = claim_work<P>(call);
  if (work.length == 0) return;
  const BackwardCall<Bf16>& tensors = call.tensors;
  const AttentionCall<Bf16>& forward = tensors.forward;
  const int dim = forward.dim, group = forward.group, num_heads = forward.kv_heads * group;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const uint32_t k_tile = shared_address(shared), v_tile = k_tile + P::key_bytes, stages = v_tile + P::key_bytes,
                 ds_tiles = stages + P::stages * P::stage_bytes;

  // The loop: query tiles from last to first, and the item's heads within each.
  const int before = work.split * group / call.splits, heads = (work.split + 1) * group / call.splits - before;
  const int first_head = work.kv_head * group + before;
  const int last_query =
      (forward.window > 0 ? min(work.length, work.key + P::keys - 1 + forward.window) : work.length) - 1;
  const int first_tile = work.key / Q, last_tile = last_query / Q, num_steps = (last_tile - first_tile + 1) * heads;
  const auto advance = [&](KeyTileStep& step) {
    if (++step.head == first_head + heads) step = {first_head, step.query_tile - 1};
  };

  // Copies rows of two matrices into two tiles of `num_rows` rows; rows and columns outside are zeros.
  const auto copy_rows = [&](uint32_t to, uint32_t second, const Bf16* a, const Bf16* b, int64_t a_stride,
                             int64_t b_stride, int head, int first, int num_rows) {
    const int64_t column = int64_t{head} * dim;
#pragma unroll 4
    for (int i = thread; i < num_rows * units; i += P::threads) {
      const int row = i / units, unit = i % units;
      const bool real = first + row < work.length && unit * 8 < dim;
      const int64_t token = work.begin + (real ? first + row : 0), offset = column + (real ? unit * 8 : 0);
      cp_async(unit_at<units>(to, row, unit), a + token * a_stride + offset, real);
      cp_async(unit_at<units>(second, row, unit), b + token * b_stride + offset, real);
    }
  };
  KeyTileStep copied{first_head, last_tile};
  int copied_stage = 0;
  const auto copy_step = [&] {
    if (copied.query_tile >= first_tile) {
      const uint32_t to = stages + static_cast<uint32_t>(copied_stage) * P::stage_bytes;
      const int first = copied.query_tile * Q;
      copy_rows(to, to + P::query_bytes, forward.q, tensors.dout, forward.q_stride, tensors.dout_stride, copied.head,
                first, Q);
      for (int i = thread; i < Q; i += P::threads) {
        const bool real = first + i < work.length;
        const int64_t token = work.begin + (real ? first + i : 0);
        const uint32_t at = to + 2 * P::query_bytes + 4 * static_cast<uint32_t>(i);
        copy_number_async(at, tensors.lse + token * tensors.lse_stride + copied.head, real);
        copy_number_async(at + 4 * Q, tensors.delta + token * num_heads + copied.head, real);
      }
      advance(copied);
      arrive_with_copies(full + 8 * static_cast<uint32_t>(copied_stage));
      copied_stage = copied_stage + 1 == P::stages ? 0 : copied_stage + 1;
    }
  };
  // Prologue: K and V join the copies of the first stage.
  copy_rows(k_tile, v_tile, forward.k, forward.v, forward.k_stride, forward.v_stride, work.kv_head, work.key, P::keys);
#pragma unroll
  for (int i = 0; i < P::stages - 1; ++i) copy_step();

  // The lane's row addresses in the tiles (layout: mma.cuh).
  const auto left_row = static_cast<uint32_t>(lane % 16), right_row = static_cast<uint32_t>(lane % 8 + lane / 16 * 8);
  const uint32_t left_turn = static_cast<uint32_t>(lane / 16 ^ lane % 8) * 16,
                 right_turn = static_cast<uint32_t>(lane / 8 % 2 ^ lane % 8) * 16,
                 part_turn = left_turn ^ static_cast<uint32_t>(work.part * P::columns * 2);
  const int first_row = warp * 16 * F;
  const uint32_t own_at = (static_cast<uint32_t>(first_row) + left_row) * 2 * D;
  // dq: rows of this warp are queries, ds is read transposed.
  constexpr int dq_fragments = P::dq_fragments, dq_columns = P::dq_columns;
  const int dq_row = warp % P::dq_row_warps * 16 * dq_fragments, dq_column = warp / P::dq_row_warps * dq_columns;
  const uint32_t dq_keys_at = k_tile + left_row * 2 * D, dq_turn = part_turn ^ static_cast<uint32_t>(dq_column * 2),
                 dq_ds_turn = (static_cast<uint32_t>(lane / 8 % 2 + dq_row / 8) * 16) ^ row_turn<ds_units>(lane % 8);

  float dk[F][P::columns / 8][4], dv[F][P::columns / 8][4], dq[dq_fragments][dq_columns / 8][4];
#pragma unroll
  for (int f = 0; f < F; ++f)
#pragma unroll
    for (int d = 0; d < P::columns / 8; ++d)
#pragma unroll
      for (int i = 0; i < 4; ++i) dk[f][d][i] = dv[f][d][i] = 0;

  // dq of a step: begin_dq() waits for the key tiles before and reads their sums, multiply_dq() adds this tile's
  // part, finish_dq() writes the sums or, for the last key tile, the results. The turn passes later, when the writes
  // have arrived.
  int* passed = nullptr;  // turn counter that pass() sets to `passed_turn`
  int passed_turn = 0;
  const auto pass = [&] {
    if (!passed) return;
    pass_turn(passed, passed_turn, lane);
    passed = nullptr;
  };
  const auto place_of = [&](const KeyTileStep& step) {
    return (int64_t{step.head} * call.query_tiles + work.begin / Q + work.sequence + step.query_tile) * P::parts +
           work.part;
  };
  const auto turn_of = [&](const KeyTileStep& step) {
    return work.key / P::keys - first_seen(step.query_tile * Q, forward.window) / P::keys;
  };
  const auto begin_dq = [&](const KeyTileStep& step) {
    const int turn = turn_of(step);
    const int64_t place = place_of(step);
    if (turn > 0) await_turn(call.turns + place * P::warps + warp, turn, lane);
    const float* const from = call.dq_sums + place * (Q * P::columns) + thread * 4;
#pragma unroll
    for (int f = 0; f < dq_fragments; ++f)
#pragma unroll
      for (int d = 0; d < dq_columns / 8; ++d) {
        if (turn > 0) {
          load_sums(dq[f][d], from + (f * (dq_columns / 8) + d) * P::threads * 4);
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i) dq[f][d][i] = 0;
        }
      }
  };
  const auto multiply_dq = [&](uint32_t ds_tile) {
#pragma unroll
    for (uint32_t k = 0; k < P::keys / 16; ++k) {
      uint32_t a[dq_fragments][4];
#pragma unroll
      for (uint32_t f = 0; f < dq_fragments; ++f)
        ldmatrix_x4_trans(a[f], ds_tile + (right_row + k * 16) * 2 * Q + (dq_ds_turn ^ f * 32));
#pragma unroll
      for (uint32_t d = 0; d < dq_columns / 16; ++d) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, dq_keys_at + (dq_turn ^ d * 32) + k * 32 * D);
#pragma unroll
        for (int f = 0; f < dq_fragments; ++f) {
          mma_m16n8k16(dq[f][2 * d], a[f], b[0], b[1]);
          mma_m16n8k16(dq[f][2 * d + 1], a[f], b[2], b[3]);
        }
      }
    }
  };
  const auto finish_dq = [&](const KeyTileStep& step) {
    if (step.query_tile * Q / P::keys != work.key / P::keys) {
      const int64_t place = place_of(step);
      float* const to = call.dq_sums + place * (Q * P::columns) + thread * 4;
#pragma unroll
      for (int f = 0; f < dq_fragments; ++f)
#pragma unroll
        for (int d = 0; d < dq_columns / 8; ++d) store_sums(to + (f * (dq_columns / 8) + d) * P::threads * 4, dq[f][d]);
      passed = call.turns + place * P::warps + warp;
      passed_turn = turn_of(step) + 1;
      return;
    }
#pragma unroll
    for (int f = 0; f < dq_fragments; ++f)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int query = step.query_tile * Q + dq_row + 16 * f + lane / 4 + 8 * r;
        Bf16* const to = tensors.dq + int64_t{work.begin + query} * tensors.dq_stride + step.head * dim;
#pragma unroll
        for (int d = 0; d < dq_columns / 8; ++d) {
          const int column = work.part * P::columns + dq_column + 8 * d + 2 * (lane % 4);
          if (query < work.length && column < dim)
            *reinterpret_cast<uint32_t*>(to + column) =
                pack_bf16(dq[f][d][2 * r] * forward.scale, dq[f][d][2 * r + 1] * forward.scale);
        }
      }
  };

  // Main loop.
  KeyTileStep step{first_head, last_tile}, last_step{};
  int stage = 0;
#pragma unroll 1
  for (int i = 0; i < num_steps; ++i) {
    await_phase(full + 8 * static_cast<uint32_t>(stage),
                static_cast<uint32_t>(i / P::stages) & 1);  // the stage has landed
    const uint32_t q_tile = stages + static_cast<uint32_t>(stage) * P::stage_bytes, dout_tile = q_tile + P::query_bytes;
    const auto* const stats = reinterpret_cast<const float*>(shared + (q_tile - k_tile) + 2 * P::query_bytes);
    const uint32_t ds_tile = ds_tiles + static_cast<uint32_t>(i % 2) * P::ds_bytes,
                   last_ds_tile = ds_tiles + static_cast<uint32_t>((i + 1) % 2) * P::ds_bytes;
    const uint32_t ds_place = static_cast<uint32_t>(i % 2) * 8, last_ds_place = 8 - ds_place;

    // p of the step; elements outside the mask are zero.
    float s[F][Q / 8][4], dp[F][Q / 8][4];
    uint32_t p[F][Q / 16][4], ds[F][Q / 16][4];
    multiply_rows<P>(s, k_tile + own_at, left_turn, q_tile + right_row * 2 * D, right_turn);
    const int first_query = step.query_tile * Q, first_key = work.key + first_row;
    weigh_queries<P>(s, stats, forward.c, first_key, first_query, forward.window, lane);
    // ds = p * (dp - delta), stored for dq.
    multiply_rows<P>(dp, v_tile + own_at, left_turn, dout_tile + right_row * 2 * D, right_turn);
    if (i >= 2)
      await_phase(ds_empty + ds_place, static_cast<uint32_t>(i / 2 - 1) & 1);  // all warps have read the ds before
    score_gradients<P>(p, ds, s, dp, stats + Q, ds_tile, first_row, lane);
    arrive_at(ds_full + ds_place);
    // The turn of the step before passes here: its writes and the copies of this step have arrived, so the release does
    // not wait. The copies of the next stage start here, where slower warps have read the stage of the step before.
    pass();
    if (i > 0 && copied.query_tile >= first_tile)
      await_phase(empty + 8 * static_cast<uint32_t>((i - 1) % P::stages),
                  static_cast<uint32_t>((i - 1) / P::stages) & 1);
    copy_step();
    // dv and dk, then dq of the step before.
    if (i > 0) begin_dq(last_step);
    add_weighted<P>(dv, p, dout_tile + left_row * 2 * D, part_turn);
    add_weighted<P>(dk, ds, q_tile + left_row * 2 * D, part_turn);
    arrive_at(empty + 8 * static_cast<uint32_t>(stage));
    if (i > 0) {
      await_phase(ds_full + last_ds_place, static_cast<uint32_t>((i - 1) / 2) & 1);  // all warps have stored ds
      multiply_dq(last_ds_tile);
      arrive_at(ds_empty + last_ds_place);
      finish_dq(last_step);
    }
    stage = stage + 1 == P::stages ? 0 : stage + 1;
    last_step = step;
    advance(step);
  }
  // dq of the last step, then the results of the keys.
  const int last = num_steps - 1;
  pass();
  begin_dq(last_step);
  await_phase(ds_full + static_cast<uint32_t>(last % 2) * 8,
              static_cast<uint32_t>(last / 2) & 1);  // all warps have stored ds
  multiply_dq(ds_tiles + static_cast<uint32_t>(last % 2) * P::ds_bytes);
  finish_dq(last_step);
  pass();
  store_keys<P>(call, work, false, dk, first_row, lane, forward.scale);
  store_keys<P>(call, work, true, dv, first_row, lane, 1.0f);
}

}  // namespace hone::attention
