#pragma once
// Query tiles of attention with mma.sync and cp.async: the kernel of attention_forward's portable body and of the
// prefill chunks of attention_paged.
//
// Use       tiles.cu, which chooses a plan by the device's shared memory.
// Tile      16 * fragments * warps rows (numbering of call.cuh) by key blocks of 128. A key block of K and of V is
//           copied in pieces of `chunk` columns. Grid: row tiles x KV heads, long tiles first.
// Roles     each warp owns 16 * fragments rows and all 128 keys of a block, so that one ldmatrix of K or V feeds
//           2 * fragments MMAs; all threads copy.
// Pipeline  ring of `stages` pieces (K of a block, then V), filled by cp.async stages - 1 pieces ahead; one
//           __syncthreads() per piece.
// Smem      dynamic: ring of stages * 256 * chunk bytes; q of 2 * rows * D bytes, which the totals of earlier splits
//           (4 * rows * D) replace if q is held in registers. Static: cache slots, 1 KB if the keys are paged.
// Numerics  numerics.cuh.
// PDL       none.
// Limits    head dimension a multiple of 8 up to D; rows of q, k, v and out 16-byte aligned.
#include "kernels/attention/mma.cuh"

namespace hone::attention {

template <int Width, int Chunk, int Stages, int Warps, int Fragments, bool HoldsQueries, int Blocks>
struct TilePlan {
  static constexpr int width = Width, chunk = Chunk, stages = Stages, warps = Warps, fragments = Fragments,
                       blocks = Blocks;  // blocks: thread blocks per SM that the registers allow
  static constexpr bool holds_queries = HoldsQueries;  // q is in registers
  static constexpr int threads = 32 * Warps, rows = 16 * Fragments * Warps, chunks = Width / Chunk;
  static constexpr uint32_t piece_bytes = 2 * block_keys * Chunk, ring_bytes = Stages * piece_bytes,
                            q_bytes = 2 * rows * Width, total_bytes = 4 * rows * Width;
  static constexpr uint32_t total_at = ring_bytes + (HoldsQueries ? 0 : q_bytes);
  static constexpr size_t bytes = total_at + total_bytes;
  static_assert(Width % Chunk == 0 && Chunk % 64 == 0 && Stages >= 2 && Stages <= 2 * chunks + 1);
};

// Rows of one warp and the keys they see. A lane has rows 16 f + lane / 4 + 8 r.
template <int F>
struct View {
  int last[F][2];                    // last key that a row sees; -1 if there is no row
  int low, high, all_low, all_high;  // keys that any row sees; keys that all rows see
  int window;

  __device__ bool any(int key, int count) const { return key <= high && key + count - 1 >= low; }
  __device__ bool all(int key, int count) const { return key >= all_low && key + count - 1 <= all_high; }
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

// s += q . k over the columns of one piece. q_at and k_at are the lane's row addresses in the tiles (layout: mma.cuh).
template <class P, bool masked>
__device__ __forceinline__ void add_scores(float (&s)[P::fragments][16][4],
                                           const uint32_t (&held)[P::fragments][P::width / 16][4], uint32_t q_at,
                                           uint32_t q_turn, uint32_t k_at, uint32_t k_turn, int chunk, int key,
                                           const View<P::fragments>& view) {
#pragma unroll
  for (int d = 0; d < P::chunk / 16; ++d) {
    const int column = chunk * (P::chunk / 16) + d;  // of 16 elements of the head
    uint32_t a[P::fragments][4];
#pragma unroll
    for (int f = 0; f < P::fragments; ++f) {
      if constexpr (P::holds_queries) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[f][i] = held[f][column][i];
      } else {
        ldmatrix_x4(a[f], q_at + (q_turn ^ static_cast<uint32_t>(column) * 32) +
                              static_cast<uint32_t>(f * 16 * 2 * P::width));
      }
    }
#pragma unroll
    for (int n = 0; n < 8; ++n)
      if (!masked || view.any(key + 16 * n, 16)) {
        uint32_t b[4];
        ldmatrix_x4(b, k_at + (k_turn ^ static_cast<uint32_t>(d) * 32) + static_cast<uint32_t>(n * 16 * 2 * P::chunk));
#pragma unroll
        for (int f = 0; f < P::fragments; ++f) {
          mma_m16n8k16(s[f][2 * n], a[f], b[0], b[1]);
          mma_m16n8k16(s[f][2 * n + 1], a[f], b[2], b[3]);
        }
      }
  }
}

template <int F>
__device__ __forceinline__ void mask_scores(float (&s)[F][16][4], int key, const View<F>& view, int lane) {
  const int column = key + 2 * (lane % 4);
#pragma unroll
  for (int f = 0; f < F; ++f)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int last = view.last[f][r] - column, first = first_seen(view.last[f][r], view.window) - column;
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

// o += p . v over the columns of one piece. In the first piece the scores become p, rounded to bf16, and `sum` adds
// them in ascending order.
template <class P, bool masked, bool first>
__device__ __forceinline__ void add_values(float (&o)[P::fragments][P::width / 8][4],
                                           const float (&s)[P::fragments][16][4], uint32_t (&p)[P::fragments][8][4],
                                           float (&sum)[P::fragments][2], const float (&shift)[P::fragments][2],
                                           float c, uint32_t v_at, uint32_t v_turn, int chunk, int key,
                                           const View<P::fragments>& view) {
#pragma unroll
  for (int n = 0; n < 8; ++n)
    if (!masked || view.any(key + 16 * n, 16)) {
      if constexpr (first) {
#pragma unroll
        for (int f = 0; f < P::fragments; ++f)
#pragma unroll
          for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
              const float low = weight(s[f][2 * n + j][2 * r], c, shift[f][r]),
                          high = weight(s[f][2 * n + j][2 * r + 1], c, shift[f][r]);
              sum[f][r] += low;
              sum[f][r] += high;
              p[f][n][2 * j + r] = pack_bf16(low, high);
            }
      }
#pragma unroll
      for (int d = 0; d < P::chunk / 16; ++d) {
        uint32_t b[4];
        ldmatrix_x4_trans(
            b, v_at + (v_turn ^ static_cast<uint32_t>(d) * 32) + static_cast<uint32_t>(n * 16 * 2 * P::chunk));
        const int column = 2 * (chunk * (P::chunk / 16) + d);
#pragma unroll
        for (int f = 0; f < P::fragments; ++f) {
          mma_m16n8k16(o[f][column], p[f][n], b[0], b[1]);
          mma_m16n8k16(o[f][column + 1], p[f][n], b[2], b[3]);
        }
      }
    }
}

template <class P, bool paged>
__global__ __launch_bounds__(P::threads, P::blocks) void tile_kernel(const __grid_constant__ AttentionCall<Bf16> call) {
  constexpr int D = P::width, F = P::fragments, units = P::chunk / 8, q_units = D / 8, rows = P::rows,
                threads = P::threads, step = threads / units;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ uint32_t slots[paged ? 2 : 1][paged ? block_keys : 1];
  // The last queries of a sequence have the most keys, so they start first.
  const Tile tile =
      tile_at(call.offsets, call.sequences, call.group, rows, static_cast<int>(gridDim.x - 1 - blockIdx.x));
  const Sequence sequence = sequence_of(call, tile.sequence);
  const int num_rows = sequence.tokens * call.group;
  if (tile.first_row >= num_rows || (paged && decodes(sequence.tokens, call.group))) return;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32,
            kv_head = static_cast<int>(blockIdx.y);
  const uint32_t ring = shared_address(shared), q_tile = ring + P::ring_bytes;
  float* const total = reinterpret_cast<float*>(shared + P::total_at) + thread;  // element i at i * threads

  const int tile_end = min(tile.first_row + rows, num_rows);
  const auto position = [&](int row) { return sequence.position + row / call.group; };
  const int last_key = position(tile_end - 1);
  const int block_begin = first_seen(position(tile.first_row), call.window) / block_keys,
            block_end = last_key / block_keys + 1;

  // Finds the cache slots of a block's keys. Keys past the last visible one are replaced by it; their weight is zero.
  const auto find_keys = [&](int block) {
    for (int i = thread; i < block_keys; i += threads)
      slots[block % 2][i] =
          static_cast<uint32_t>(slot_of(call, sequence, tile.sequence, min(block * block_keys + i, last_key)));
  };
  // Copies the next piece into the ring: a thread copies one unit of every `step`-th row. Columns past the head are
  // zeros.
  const int unit = thread % units, unit_row = thread / units;
  int copied_block = block_begin, copied_piece = 0, copied_stage = 0;
  const auto copy_piece = [&] {
    if (copied_block < block_end) {
      const bool values = copied_piece >= P::chunks;
      const int column = (values ? copied_piece - P::chunks : copied_piece) * P::chunk + unit * 8;
      const bool real = column < call.dim;
      const char* const from =
          reinterpret_cast<const char*>((values ? call.v : call.k) + kv_head * call.dim + (real ? column : 0));
      const auto row_bytes = static_cast<uint32_t>(values ? call.v_stride : call.k_stride) * 2;
      const uint32_t to = ring + static_cast<uint32_t>(copied_stage) * P::piece_bytes;
      if (paged && copied_piece == 0) find_keys(copied_block + 1);
      const int key = copied_block * block_keys;
#pragma unroll
      for (int i = 0; i < block_keys; i += step) {
        const uint32_t row = paged ? slots[copied_block % 2][unit_row + i]
                                   : static_cast<uint32_t>(sequence.begin + min(key + unit_row + i, last_key));
        cp_async(unit_at<units>(to, unit_row + i, unit), from + uint64_t{row} * row_bytes, real);
      }
      if (++copied_piece == 2 * P::chunks) {
        copied_piece = 0;
        ++copied_block;
      }
      copied_stage = copied_stage + 1 == P::stages ? 0 : copied_stage + 1;
    }
    cp_async_commit();
  };
  if constexpr (paged) {
    find_keys(block_begin);
    __syncthreads();  // slots of the first block are found
  }
  // Prologue: q joins the first copy group.
  for (int i = thread; i < rows * q_units; i += threads) {
    const int r = i / q_units, u = i % q_units, row = min(tile.first_row + r, num_rows - 1), token = row / call.group;
    const bool real = u * 8 < call.dim;
    cp_async(unit_at<q_units>(q_tile, r, u),
             call.q + int64_t{sequence.begin + token} * call.q_stride +
                 (kv_head * call.group + row - token * call.group) * call.dim + (real ? u * 8 : 0),
             real);
  }
#pragma unroll
  for (int i = 0; i < P::stages - 1; ++i) copy_piece();
  // Waits for the next piece, starts the copy of the one that takes the freed stage, and returns the piece's address.
  int stage = 0;
  const auto next_piece = [&] {
    cp_async_wait<P::stages - 2>();  // this thread's copies of the piece have landed
    __syncthreads();                 // those of all threads have; all warps have read the piece before
    copy_piece();
    const uint32_t at = ring + static_cast<uint32_t>(stage) * P::piece_bytes;
    stage = stage + 1 == P::stages ? 0 : stage + 1;
    return at;
  };

  // The keys that the lane's rows and the warp's rows see.
  View<F> view{};
  view.window = call.window;
  const int warp_row = tile.first_row + warp * 16 * F, warp_end = min(warp_row + 16 * F, tile_end);
#pragma unroll
  for (int f = 0; f < F; ++f)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = warp_row + 16 * f + lane / 4 + 8 * r;
      view.last[f][r] = row < tile_end ? position(row) : -1;
    }
  view.high = -1;
  if (warp_row < warp_end) {
    view.all_high = position(warp_row);
    view.high = position(warp_end - 1);
    view.low = first_seen(view.all_high, call.window);
    view.all_low = first_seen(view.high, call.window);
  }

  float o[F][D / 8][4];
  RowStats<F> now, before;  // `before`: the merged splits before this one
  bool merges = false;      // `before` and `total` hold splits
  const auto clear = [&] {
    now.reset();
#pragma unroll
    for (int f = 0; f < F; ++f)
#pragma unroll
      for (int d = 0; d < D / 8; ++d)
#pragma unroll
        for (int i = 0; i < 4; ++i) o[f][d][i] = 0;
  };
  const auto close_split = [&] {
    if (!merges) return;
#pragma unroll
    for (int f = 0; f < F; ++f)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const MergeFactors factors = merge_factors(before.m[f][r], now.m[f][r], call.c);
        now.m[f][r] = factors.m;
        now.l[f][r] = merged(before.l[f][r], now.l[f][r], factors);
#pragma unroll
        for (int d = 0; d < D / 8; ++d)
#pragma unroll
          for (int i = 2 * r; i < 2 * r + 2; ++i)
            o[f][d][i] = merged(total[((f * D / 8 + d) * 4 + i) * threads], o[f][d][i], factors);
      }
  };
  clear();
  // The lane's row addresses in the tiles (layout: mma.cuh).
  const auto lane_row = static_cast<uint32_t>(lane % 16), key_row = static_cast<uint32_t>(lane % 8 + lane / 16 * 8);
  const uint32_t turn = static_cast<uint32_t>(lane / 16 ^ lane % 8) * 16,
                 key_turn = static_cast<uint32_t>(lane / 8 % 2 ^ lane % 8) * 16;
  const uint32_t q_at = q_tile + (static_cast<uint32_t>(warp) * 16 * F + lane_row) * 2 * D,
                 k_at = key_row * 2 * P::chunk, v_at = lane_row * 2 * P::chunk;
  uint32_t held[F][D / 16][4];
  if constexpr (P::holds_queries) {
    cp_async_wait<P::stages - 2>();
    __syncthreads();  // q has landed
#pragma unroll
    for (int f = 0; f < F; ++f)
#pragma unroll
      for (int d = 0; d < D / 16; ++d)
        ldmatrix_x4(held[f][d], q_at + (turn ^ static_cast<uint32_t>(d) * 32) + static_cast<uint32_t>(f * 32 * D));
  }

  // Main loop over key blocks.
  for (int block = block_begin; block < block_end; ++block) {
    const int key = block * block_keys;
    // A new split: merge the one before and save the total.
    if (block % split_blocks == 0 && block > block_begin) {
      close_split();
      merges = true;
      before = now;
#pragma unroll
      for (int f = 0; f < F; ++f)
#pragma unroll
        for (int d = 0; d < D / 8; ++d)
#pragma unroll
          for (int i = 0; i < 4; ++i) total[((f * D / 8 + d) * 4 + i) * threads] = o[f][d][i];
      clear();
    }
    const bool sees = view.any(key, block_keys), sees_all = view.all(key, block_keys);
    // Scores of the block.
    float s[F][16][4];
#pragma unroll
    for (int f = 0; f < F; ++f)
#pragma unroll
      for (int n = 0; n < 16; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) s[f][n][i] = 0;
#pragma unroll
    for (int chunk = 0; chunk < P::chunks; ++chunk) {
      const uint32_t k_tile = next_piece();
      if (sees_all)
        add_scores<P, false>(s, held, q_at, turn, k_tile + k_at, key_turn, chunk, key, view);
      else if (sees)
        add_scores<P, true>(s, held, q_at, turn, k_tile + k_at, key_turn, chunk, key, view);
    }
    // The new maximum; rescale o unless all factors are 1.
    uint32_t v_tile = next_piece();
    float alpha[F][2], shift[F][2], sum[F][2];
    uint32_t p[F][8][4];
    if (sees) {
      if (!sees_all) mask_scores(s, key, view, lane);
      raise_maximum(s, now, alpha, shift, call.c);
      bool rescales = false;
#pragma unroll
      for (int f = 0; f < F; ++f)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          sum[f][r] = 0;
          rescales = rescales || alpha[f][r] != 1;
        }
      if (__any_sync(0xffffffffu, rescales)) {
#pragma unroll
        for (int f = 0; f < F; ++f)
#pragma unroll
          for (int d = 0; d < D / 8; ++d)
#pragma unroll
            for (int i = 0; i < 4; ++i) o[f][d][i] *= alpha[f][i / 2];
      }
    }
    // Weights and p . v of the block.
    if (sees_all)
      add_values<P, false, true>(o, s, p, sum, shift, call.c, v_tile + v_at, turn, 0, key, view);
    else if (sees)
      add_values<P, true, true>(o, s, p, sum, shift, call.c, v_tile + v_at, turn, 0, key, view);
#pragma unroll
    for (int chunk = 1; chunk < P::chunks; ++chunk) {
      v_tile = next_piece();
      if (sees_all)
        add_values<P, false, false>(o, s, p, sum, shift, call.c, v_tile + v_at, turn, chunk, key, view);
      else if (sees)
        add_values<P, true, false>(o, s, p, sum, shift, call.c, v_tile + v_at, turn, chunk, key, view);
    }
    if (sees) {
#pragma unroll
      for (int f = 0; f < F; ++f)
#pragma unroll
        for (int r = 0; r < 2; ++r) now.l[f][r] = fmaf(now.l[f][r], alpha[f][r], quad_sum(sum[f][r]));
    }
  }
  cp_async_wait<0>();
  close_split();

  // Epilogue: out and lse. The four lanes of a row exchange elements until each has 16 contiguous bytes.
#pragma unroll
  for (int f = 0; f < F; ++f)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = warp_row + 16 * f + lane / 4 + 8 * r;
      const bool inside = row < tile_end;
      const int64_t token = sequence.begin + row / call.group;
      const int head = kv_head * call.group + row % call.group;
      const float inverse = reciprocal(now.l[f][r]);
      Bf16* const out = call.out + token * call.out_stride + head * call.dim;
#pragma unroll
      for (int d = 0; d < D / 8; d += 4) {
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          x[i] = pack_bf16(o[f][d + i][2 * r] * inverse, o[f][d + i][2 * r + 1] * inverse);
        exchange_quad(x, lane);
        const int column = 8 * (d + lane % 4);
        if (inside && column < call.dim) *reinterpret_cast<uint4*>(out + column) = make_uint4(x[0], x[1], x[2], x[3]);
      }
      if (inside && call.lse && lane % 4 == 0)
        call.lse[token * call.lse_stride + head] = log_sum(now.m[f][r], now.l[f][r], call.scale);
    }
}

}  // namespace hone::attention
