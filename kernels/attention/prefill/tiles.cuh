#pragma once
// Query tiles of attention with mma.sync and cp.async: the kernel of attention_forward's portable body and of the
// prefill chunks of attention_paged.
//
// Use       tiles.cu, which chooses a plan by the device's shared memory.
// Tile      16 * fragments * warps rows (numbering of call.cuh) by key blocks of 128, in steps of `keys` keys.
//           Grid: row tiles x KV heads, long tiles first.
// Roles     each warp owns 16 * fragments rows and all keys of a block, so that one ldmatrix of K or V feeds
//           2 * fragments MMAs; all threads copy. A step mixes p . v of a block with q . k of the next block and the
//           weights of the next step: tensor cores, exponentials and loads of one warp overlap.
// Pipeline  ring of `stages` smem stages; one holds the values of a step and the keys of the same step of the next
//           block. cp.async fills it stages - 1 steps ahead; one __syncthreads() per step.
// Smem      dynamic: stages * 4 * keys * D bytes; q of 2 * rows * D bytes, which the totals of earlier splits (4 * rows
//           * D) replace if q is held in registers; 8 * rows for m and l of the totals. Static: cache slots, 1.5 KB if
//           the keys are paged.
// Numerics  numerics.cuh.
// PDL       none.
// Limits    head dimension a multiple of 8 up to D; rows of q, k, v and out 16-byte aligned.
#include "kernels/attention/mma.cuh"

namespace hone::attention {

template <int Width, int Keys, int Stages, int Warps, int Fragments, bool HoldsQueries, int Blocks>
struct TilePlan {
  static constexpr int width = Width, keys = Keys, stages = Stages, warps = Warps, fragments = Fragments,
                       blocks = Blocks;                // blocks: thread blocks per SM that the registers allow
  static constexpr bool holds_queries = HoldsQueries;  // q is in registers
  static constexpr int threads = 32 * Warps, rows = 16 * Fragments * Warps, steps = block_keys / Keys,
                       groups = Keys / 16;  // of 16 keys, in a step
  static constexpr uint32_t piece_bytes = 2 * Keys * Width, ring_bytes = Stages * 2 * piece_bytes,
                            q_bytes = 2 * rows * Width, total_bytes = 4 * rows * Width;
  static constexpr uint32_t total_at = ring_bytes + (HoldsQueries ? 0 : q_bytes);
  static constexpr uint32_t stats_at = total_at + total_bytes;  // maxima and sums of the totals
  static constexpr size_t bytes = stats_at + 8 * rows,
                          static_bytes = 3 * block_keys * sizeof(uint32_t);  // cache slots
  static_assert(Width / 16 % groups == 0 && Stages >= 2 && steps % Stages == 0);
};

// Running maximum and sum of a lane's rows; the four lanes of a row have the same values.
template <int F>
struct RowStats {
  float m[F][2], l[F][2];
  __device__ void reset() {
#pragma unroll
    for (int f = 0; f < F; ++f)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        m[f][r] = -INFINITY;
        l[f][r] = 0;
      }
  }
};

// Scores of keys that a row does not see become -inf. last_of(f, r): the last key that row 16 f + lane / 4 + 8 r sees.
template <int F, class LastKey>
__device__ __forceinline__ void mask_scores(float (&s)[F][16][4], int key, int window, const LastKey& last_of) {
#pragma unroll
  for (int f = 0; f < F; ++f)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int last = last_of(f, r) - key, first = first_seen(last_of(f, r), window) - key;
#pragma unroll
      for (int n = 0; n < 16; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (8 * n + i < first || 8 * n + i > last) s[f][n][2 * r + i] = -INFINITY;
    }
}

// New maximum of the lane's rows; alpha is the factor for o and l, shift that of the weights.
template <int F>
__device__ __forceinline__ void raise_maximum(const float (&s)[F][16][4], RowStats<F>& rows, float (&alpha)[F][2],
                                              float (&shift)[F][2], float c) {
#pragma unroll
  for (int f = 0; f < F; ++f)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = s[f][0][2 * r];
#pragma unroll
      for (int n = 0; n < 16; ++n) most = fmaxf(most, fmaxf(s[f][n][2 * r], s[f][n][2 * r + 1]));
      const float before = rows.m[f][r];
      rows.m[f][r] = fmaxf(before, quad_max(most));
      const float base = base_of(rows.m[f][r]);
      shift[f][r] = shift_of(base, c);
      alpha[f][r] = rescaling(before, base, c);
    }
}

// Weights of 16 keys: the scores become p, rounded to bf16, and `sum` adds them in ascending order.
template <int F>
__device__ __forceinline__ void weigh(const float (&s)[F][16][4], int n, uint32_t (&p)[F][4], float (&sum)[F][2],
                                      const float (&shift)[F][2], float c) {
#pragma unroll
  for (int f = 0; f < F; ++f)
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float low = weight(s[f][2 * n + j][2 * r], c, shift[f][r]),
                    high = weight(s[f][2 * n + j][2 * r + 1], c, shift[f][r]);
        sum[f][r] += low;
        sum[f][r] += high;
        p[f][2 * j + r] = pack_bf16(low, high);
      }
}

// What a lane has of the current block.
template <class P>
struct BlockState {
  float s[P::fragments][16][4];                        // scores of this block; after a step, of the next one
  uint32_t p[2][P::groups][P::fragments][4];           // weights of this step and of the next one
  float sum[P::fragments][2], shift[P::fragments][2];  // sums of the weights; shift of their exponent
};
// The lane's row addresses in q and in the two halves of a stage, and the swizzle of its units (layout: mma.cuh).
struct LaneAddresses {
  uint32_t q, k, v, turn, key_turn;
};

// One step: o += p . v of this block's keys (values), scores of the next block's (scores).
template <class P, int step, bool values, bool scores>
__device__ __forceinline__ void run_step(float (&o)[P::fragments][P::width / 8][4], BlockState<P>& state,
                                         const uint32_t (&held)[P::fragments][P::width / 16][4],
                                         const LaneAddresses& at, float c) {
  constexpr int F = P::fragments, columns = P::width / 16, part = columns / P::groups;
  constexpr uint32_t stage = step % P::stages * 2 * P::piece_bytes, row_bytes = 2 * P::width;
#pragma unroll
  for (int g = 0; g < P::groups; ++g) {
    if constexpr (values) {
#pragma unroll
      for (uint32_t d = 0; d < columns; ++d) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, at.v + (at.turn ^ d * 32) + stage + static_cast<uint32_t>(g) * 16 * row_bytes);
#pragma unroll
        for (int f = 0; f < F; ++f) {
          mma_m16n8k16(o[f][2 * d], state.p[step % 2][g][f], b[0], b[1]);
          mma_m16n8k16(o[f][2 * d + 1], state.p[step % 2][g][f], b[2], b[3]);
        }
      }
      if constexpr (step + 1 < P::steps)
        weigh(state.s, (step + 1) * P::groups + g, state.p[(step + 1) % 2][g], state.sum, state.shift, c);
    }
    if constexpr (scores) {
#pragma unroll
      for (int d = g * part; d < (g + 1) * part; ++d) {
        uint32_t a[F][4];
#pragma unroll
        for (int f = 0; f < F; ++f) {
          if constexpr (P::holds_queries) {
#pragma unroll
            for (int i = 0; i < 4; ++i) a[f][i] = held[f][d][i];
          } else {
            ldmatrix_x4(a[f],
                        at.q + (at.turn ^ static_cast<uint32_t>(d) * 32) + static_cast<uint32_t>(f) * 16 * row_bytes);
          }
        }
#pragma unroll
        for (int n = 0; n < P::groups; ++n) {
          uint32_t b[4];
          ldmatrix_x4(b, at.k + (at.key_turn ^ static_cast<uint32_t>(d) * 32) + stage +
                             static_cast<uint32_t>(n) * 16 * row_bytes);
#pragma unroll
          for (int f = 0; f < F; ++f)
#pragma unroll
            for (int j = 0; j < 2; ++j) {
              float(&sum)[4] = state.s[f][2 * (step * P::groups + n) + j];
              if (d == 0) {
#pragma unroll
                for (int i = 0; i < 4; ++i) sum[i] = 0;
              }
              mma_m16n8k16(sum, a[f], b[2 * j], b[2 * j + 1]);
            }
        }
      }
    }
  }
}

// All steps of a block. next_step() returns when the step's stage has landed.
template <class P, bool values, bool scores, int step = 0, class Next>
__device__ __forceinline__ void run_steps(float (&o)[P::fragments][P::width / 8][4], BlockState<P>& state,
                                          const uint32_t (&held)[P::fragments][P::width / 16][4],
                                          const LaneAddresses& at, float c, const Next& next_step) {
  if constexpr (step < P::steps) {
    next_step();
    run_step<P, step, values, scores>(o, state, held, at, c);
    run_steps<P, values, scores, step + 1>(o, state, held, at, c, next_step);
  }
}

template <class P>
using Outputs = float[P::fragments][P::width / 8][4];

template <class P>
__device__ __forceinline__ void clear_outputs(Outputs<P>& o) {
#pragma unroll
  for (int f = 0; f < P::fragments; ++f)
#pragma unroll
    for (int d = 0; d < P::width / 8; ++d)
#pragma unroll
      for (int i = 0; i < 4; ++i) o[f][d][i] = 0;
}

// The merged splits so far, in shared memory: outputs of a thread at i * threads; m and l of row 16 f + 8 r.
template <class P>
struct SplitTotal {
  float* outputs;
  float2* stats;
  bool any = false;

  // Merges the total into (now, o): they become those of all splits so far.
  __device__ __forceinline__ void merge(Outputs<P>& o, RowStats<P::fragments>& now, float c) const {
    if (!any) return;
#pragma unroll
    for (int f = 0; f < P::fragments; ++f)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float2 before = stats[16 * f + 8 * r];
        const MergeFactors factors = merge_factors(before.x, now.m[f][r], c);
        now.m[f][r] = factors.m;
        now.l[f][r] = merged(before.y, now.l[f][r], factors);
#pragma unroll
        for (int d = 0; d < P::width / 8; ++d)
#pragma unroll
          for (int i = 2 * r; i < 2 * r + 2; ++i)
            o[f][d][i] = merged(outputs[((f * P::width / 8 + d) * 4 + i) * P::threads], o[f][d][i], factors);
      }
  }
  // Ends a split: the total has it, and (now, o) are empty.
  __device__ __forceinline__ void end_split(Outputs<P>& o, RowStats<P::fragments>& now, float c, int lane) {
    merge(o, now, c);
    keep(o, now, lane);
    clear_outputs<P>(o);
    now.reset();
  }

 private:
  __device__ __forceinline__ void keep(const Outputs<P>& o, const RowStats<P::fragments>& now, int lane) {
    any = true;
    __syncwarp();  // all lanes have read the stats of the total before
    if (lane % 4 == 0) {
#pragma unroll
      for (int f = 0; f < P::fragments; ++f)
#pragma unroll
        for (int r = 0; r < 2; ++r) stats[16 * f + 8 * r] = make_float2(now.m[f][r], now.l[f][r]);
    }
    __syncwarp();  // the stats of the warp's rows are written
#pragma unroll
    for (int f = 0; f < P::fragments; ++f)
#pragma unroll
      for (int d = 0; d < P::width / 8; ++d)
#pragma unroll
        for (int i = 0; i < 4; ++i) outputs[((f * P::width / 8 + d) * 4 + i) * P::threads] = o[f][d][i];
  }
};

// l of a block: the sums of its weights join the rescaled l before.
template <int F>
__device__ __forceinline__ void add_weights(RowStats<F>& rows, const float (&alpha)[F][2], const float (&sum)[F][2]) {
#pragma unroll
  for (int f = 0; f < F; ++f)
#pragma unroll
    for (int r = 0; r < 2; ++r) rows.l[f][r] = fmaf(rows.l[f][r], alpha[f][r], quad_sum(sum[f][r]));
}

// Multiplies o by alpha unless all factors of the warp are 1.
template <class P>
__device__ __forceinline__ void rescale(Outputs<P>& o, const float (&alpha)[P::fragments][2]) {
  bool rescales = false;
#pragma unroll
  for (int f = 0; f < P::fragments; ++f)
#pragma unroll
    for (int r = 0; r < 2; ++r) rescales = rescales || alpha[f][r] != 1;
  if (!__any_sync(0xffffffffu, rescales)) return;
#pragma unroll
  for (int f = 0; f < P::fragments; ++f)
#pragma unroll
    for (int d = 0; d < P::width / 8; ++d)
#pragma unroll
      for (int i = 0; i < 4; ++i) o[f][d][i] *= alpha[f][i / 2];
}

// Stores out and lse of a warp's rows [first_row, end). The four lanes of a row exchange elements until each has 16
// contiguous bytes.
template <class P>
__device__ __forceinline__ void store_rows(const AttentionCall<Bf16>& call, const Outputs<P>& o,
                                           const RowStats<P::fragments>& rows, int sequence_begin, int first_row,
                                           int end, int kv_head, int lane) {
#pragma unroll
  for (int f = 0; f < P::fragments; ++f)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = first_row + 16 * f + lane / 4 + 8 * r;
      const bool inside = row < end;
      const int64_t token = sequence_begin + row / call.group;
      const int head = kv_head * call.group + row % call.group;
      const RowEnd last = end_of_row(call, head, rows.m[f][r], rows.l[f][r]);
      Bf16* const out = call.out + token * call.out_stride + head * call.dim;
#pragma unroll
      for (int d = 0; d < P::width / 8; d += 4) {
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          x[i] = pack_bf16(o[f][d + i][2 * r] * last.inverse, o[f][d + i][2 * r + 1] * last.inverse);
        exchange_quad(x, lane);
        const int column = 8 * (d + lane % 4);
        if (inside && column < call.dim) *reinterpret_cast<uint4*>(out + column) = make_uint4(x[0], x[1], x[2], x[3]);
      }
      if (inside && call.lse && lane % 4 == 0) call.lse[token * call.lse_stride + head] = last.lse;
    }
}

// Copies the tile's rows of q to shared memory. Rows past the last are replaced by it; columns past the head are zeros.
template <class P>
__device__ __forceinline__ void copy_queries(const AttentionCall<Bf16>& call, uint32_t q_tile, int sequence_begin,
                                             int first_row, int num_rows, int kv_head) {
  constexpr int units = P::width / 8;
  for (int i = static_cast<int>(threadIdx.x); i < P::rows * units; i += P::threads) {
    const int r = i / units, u = i % units, row = min(first_row + r, num_rows - 1), token = row / call.group;
    const bool inside = u * 8 < call.dim;
    cp_async(unit_at<units>(q_tile, r, u),
             call.q + int64_t{sequence_begin + token} * call.q_stride +
                 (kv_head * call.group + row - token * call.group) * call.dim + (inside ? u * 8 : 0),
             inside);
  }
}

template <class P>
__device__ __forceinline__ LaneAddresses lane_addresses(uint32_t ring, uint32_t q_tile, int warp, int lane) {
  constexpr uint32_t row_bytes = 2 * P::width;
  const auto lane_row = static_cast<uint32_t>(lane % 16), key_row = static_cast<uint32_t>(lane % 8 + lane / 16 * 8);
  LaneAddresses at{};
  at.q = q_tile + (static_cast<uint32_t>(warp) * 16 * P::fragments + lane_row) * row_bytes;
  at.v = ring + lane_row * row_bytes;
  at.k = ring + P::piece_bytes + key_row * row_bytes;
  at.turn = static_cast<uint32_t>(lane / 16 ^ lane % 8) * 16;
  at.key_turn = static_cast<uint32_t>(lane / 8 % 2 ^ lane % 8) * 16;
  return at;
}

template <class P>
__device__ __forceinline__ void load_queries(uint32_t (&held)[P::fragments][P::width / 16][4],
                                             const LaneAddresses& at) {
#pragma unroll
  for (int f = 0; f < P::fragments; ++f)
#pragma unroll
    for (int d = 0; d < P::width / 16; ++d)
      ldmatrix_x4(held[f][d],
                  at.q + (at.turn ^ static_cast<uint32_t>(d) * 32) + static_cast<uint32_t>(f * 32 * P::width));
}

// The weights of a block's first step; their sums start from zero.
template <class P>
__device__ __forceinline__ void begin_weights(BlockState<P>& state, float c) {
#pragma unroll
  for (int f = 0; f < P::fragments; ++f)
#pragma unroll
    for (int r = 0; r < 2; ++r) state.sum[f][r] = 0;
#pragma unroll
  for (int g = 0; g < P::groups; ++g) weigh(state.s, g, state.p[0][g], state.sum, state.shift, c);
}

template <class P, bool paged>
__global__ __launch_bounds__(P::threads, P::blocks) void tile_kernel(const __grid_constant__ AttentionCall<Bf16> call) {
  constexpr int D = P::width, F = P::fragments, units = D / 8, rows = P::rows, threads = P::threads,
                row_step = threads / units;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ uint32_t slots[paged ? 3 : 1][paged ? block_keys : 1];
  // The last queries of a sequence have the most keys, so they start first.
  const Tile tile =
      tile_at(call.offsets, call.sequences, call.group, rows, static_cast<int>(gridDim.x - 1 - blockIdx.x));
  const Sequence sequence = sequence_of(call, tile.sequence);
  const int num_rows = sequence.tokens * call.group;
  if (tile.first_row >= num_rows || (paged && decodes(sequence.tokens, call.group))) return;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32,
            kv_head = static_cast<int>(blockIdx.y);
  const uint32_t ring = shared_address(shared), q_tile = ring + P::ring_bytes;
  SplitTotal<P> total{reinterpret_cast<float*>(shared + P::total_at) + thread,
                      reinterpret_cast<float2*>(shared + P::stats_at) + warp * 16 * F + lane / 4};

  const int tile_end = min(tile.first_row + rows, num_rows);
  const auto position = [&](int row) { return sequence.position + row / call.group; };
  const int last_key = position(tile_end - 1);
  const int block_begin = first_seen(position(tile.first_row), call.window) / block_keys,
            block_end = last_key / block_keys + 1;

  // Finds the cache slots of a block's keys. Keys past the last visible one are replaced by it; their weight is zero.
  const auto find_keys = [&](int block) {
    for (int i = thread; i < block_keys; i += threads)
      slots[block % 3][i] =
          static_cast<uint32_t>(slot_of(call, sequence, tile.sequence, min(block * block_keys + i, last_key)));
  };
  // Copies the next stage: a thread copies one unit of every `row_step`-th row. Columns past the head are zeros.
  const int unit = thread % units, unit_row = thread / units;
  const bool real = unit * 8 < call.dim;
  const auto copy_rows = [&](uint32_t to, const Bf16* from, int64_t stride, int block, int first) {
    const char* const column = reinterpret_cast<const char*>(from + kv_head * call.dim + (real ? unit * 8 : 0));
    const uint32_t row_bytes = static_cast<uint32_t>(stride) * 2;
#pragma unroll
    for (int i = 0; i < P::keys; i += row_step) {
      if (P::keys % row_step != 0 && unit_row + i >= P::keys) break;
      const int key = first + unit_row + i;
      const uint32_t row = paged ? slots[block % 3][key]
                                 : static_cast<uint32_t>(sequence.begin + min(block * block_keys + key, last_key));
      cp_async(unit_at<units>(to, unit_row + i, unit), column + uint64_t{row} * row_bytes, real);
    }
  };
  int copied_block = block_begin - 1, copied_step = 0;  // block of the values; the keys are of the next one
  const auto copy_stage = [&] {
    if (copied_block < block_end) {
      const uint32_t to = ring + static_cast<uint32_t>(copied_step % P::stages) * 2 * P::piece_bytes;
      if (paged && copied_step == 0) find_keys(copied_block + 2);
      if (copied_block >= block_begin) copy_rows(to, call.v, call.v_stride, copied_block, copied_step * P::keys);
      if (copied_block + 1 < block_end)
        copy_rows(to + P::piece_bytes, call.k, call.k_stride, copied_block + 1, copied_step * P::keys);
      if (++copied_step == P::steps) {
        copied_step = 0;
        ++copied_block;
      }
    }
    cp_async_commit();
  };
  if constexpr (paged) {
    find_keys(block_begin);
    __syncthreads();  // slots of the first block are found
  }
  // Prologue: q joins the first copy group.
  copy_queries<P>(call, q_tile, sequence.begin, tile.first_row, num_rows, kv_head);
#pragma unroll
  for (int i = 0; i < P::stages - 1; ++i) copy_stage();
  const auto next_step = [&] {
    cp_async_wait<P::stages - 2>();  // this thread's copies of the stage have landed
    __syncthreads();                 // those of all threads have; all warps have read the stage before
    copy_stage();
  };

  // Keys that all rows of the warp see; none if the warp has no row.
  const int warp_row = tile.first_row + warp * 16 * F, warp_end = min(warp_row + 16 * F, tile_end);
  const int all_high = warp_row < warp_end ? position(warp_row) : -1,
            all_low = warp_row < warp_end ? first_seen(position(warp_end - 1), call.window) : 0;

  Outputs<P> o;
  RowStats<F> now;
  clear_outputs<P>(o);
  now.reset();
  const LaneAddresses at = lane_addresses<P>(ring, q_tile, warp, lane);
  uint32_t held[F][D / 16][4];
  if constexpr (P::holds_queries) {
    cp_async_wait<P::stages - 2>();
    __syncthreads();  // q has landed
    load_queries<P>(held, at);
  }
  BlockState<P> state;
  run_steps<P, false, true>(o, state, held, at, call.c, next_step);  // scores of the first block

  // Main loop over key blocks.
#pragma unroll 1
  for (int block = block_begin; block < block_end; ++block) {
    if (block % split_blocks == 0 && block > block_begin) total.end_split(o, now, call.c, lane);
    // The new maximum; o is rescaled.
    float alpha[F][2];
    const int key = block * block_keys;
    if (key < all_low || key + block_keys - 1 > all_high)
      mask_scores(state.s, key + 2 * (lane % 4), call.window, [&](int f, int r) {
        const int row = warp_row + 16 * f + lane / 4 + 8 * r;
        return row < tile_end ? position(row) : -1;
      });
    raise_maximum(state.s, now, alpha, state.shift, call.c);
    rescale<P>(o, alpha);
    begin_weights(state, call.c);
    if (block + 1 < block_end)
      run_steps<P, true, true>(o, state, held, at, call.c, next_step);
    else
      run_steps<P, true, false>(o, state, held, at, call.c, next_step);
    add_weights(now, alpha, state.sum);
  }
  cp_async_wait<0>();
  total.merge(o, now, call.c);
  store_rows<P>(call, o, now, sequence.begin, warp_row, tile_end, kv_head, lane);
}

}  // namespace hone::attention
