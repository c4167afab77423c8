#pragma once
// Latent attention with mma.sync and cp.async: the one kernel of training, prefill and decoding, and the sum of splits.
//
// Use       mma.cu, which chooses a plan by the device's shared memory and the rows of the call. tiles_sm90.cu has a
//           kernel of its own with the same work items and the same sum of splits.
// Tile      16 * fragments query rows (numbering of call.cuh: the heads of a token are rows) by key blocks of 64, so a
//           block of latent rows is read once for up to 64 heads. A work item is a row tile, or one of its splits.
// Roles     8 warps. Scores: a warp has 16 rows and its share of the 64 keys. p . v: a warp has all rows and 64 of the
//           512 columns. All threads copy. Sum of splits: a thread has two rows and two columns.
// Pipeline  1 or 2 smem stages of 64 latent rows (cp.async). A stage is key and value: the value is its first columns.
//           Three __syncthreads() per block: stage landed, maxima complete, weights complete; with one stage a fourth,
//           before it is filled again.
// Smem      dynamic: q 1152 * rows, stages of 72 KB, p 128 * rows, statistics: LatentPlan::bytes.
// Numerics  splits of 1024 keys and blocks of 64, aligned to position 0, with the formulas of numerics.cuh but for m,
//           which raised() gives: s is one f32 accumulator, 16 columns per MMA, ascending; o the same over 16 keys per
//           MMA; the sum of p adds the numbers of a lane in ascending order, then the lanes of a quad, then the four
//           groups of 16 keys. Splits are merged in ascending order. All plans have the same bits.
// PDL       none.
// Limits    R a multiple of 8 up to 512, W a multiple of 8 up to 576; rows 16-byte aligned.
#include "kernels/attention/latent/plans.cuh"

namespace hone::attention {

// What the weights of a row are relative to, after a block whose largest score is `most`: numerics.cuh's m. It is
// raised only if weights would exceed 2^8, so sums are seldom rescaled.
__device__ inline float raised(float m, float most, float c) { return (most - m) * c > 8.0f ? most : m; }

// One launch. In turns: a thread block computes whole tiles and keeps the total of earlier splits in its own part of
// `totals`. Else an item is one split of a tile; it writes its part to `totals` and `stats`, and the sum kernel merges.
struct LatentWork {
  bool in_turns;
  float* totals;  // [thread blocks or tiles * splits, partial_floats]
  float* stats;   // [tiles * splits, 2, rows]: m and l
  int tiles, splits;
  int tiles_per_sequence;  // 0: the numbering of tile_at() (call.cuh)
  __device__ int num_items() const { return in_turns ? tiles : tiles * splits; }
};

// A tile of query rows [tile.first_row, end_row), and the key blocks [begin, end) that they see.
struct LatentSpan {
  Tile tile;
  Sequence sequence;
  int end_row, begin, end;
  __device__ int first_split() const { return begin / latent_split_blocks; }
  __device__ int num_splits() const { return (end - 1) / latent_split_blocks - first_split() + 1; }
};

template <class P>
__device__ inline LatentSpan span_of(const AttentionCall<Bf16>& of, const LatentWork& work, int index) {
  LatentSpan span{};
  const int per = work.tiles_per_sequence;
  span.tile =
      per > 0 ? Tile{index / per, index % per * P::rows} : tile_at(of.offsets, of.sequences, of.group, P::rows, index);
  span.sequence = sequence_of(of, span.tile.sequence);
  span.end_row = min(span.tile.first_row + P::rows, span.sequence.tokens * of.group);
  if (span.tile.first_row >= span.end_row) return span;  // no rows
  const int first = span.sequence.position + span.tile.first_row / of.group,
            last = span.sequence.position + (span.end_row - 1) / of.group;
  span.begin = first_seen(first, of.window) / latent_keys;
  span.end = last / latent_keys + 1;
  return span;
}

// What a thread block computes at a time: the key blocks [begin, end) of a tile.
struct LatentItem {
  LatentSpan span;
  int begin, end;
  int64_t place;  // of its part in scratch memory
  bool complete;  // all splits of the tile
};

// Item `index`; full warps call it. Last tiles of a sequence come first, since they have the most keys. Items that do
// not exist, in short sequences, come last: the blocks of a grid share the others evenly. False: there is nothing to
// compute.
template <class P>
__device__ inline bool item_at(const AttentionCall<Bf16>& of, const LatentWork& work, int index, LatentItem& item) {
  const int tile = work.tiles - 1 - index % work.tiles, number = index / work.tiles;
  const LatentSpan& span = item.span = span_of<P>(of, work, tile);
  if (span.tile.first_row >= span.end_row || number >= span.num_splits()) return false;
  const int first_block = (span.first_split() + number) * latent_split_blocks;
  item.complete = work.in_turns || span.num_splits() == 1;
  item.begin = work.in_turns ? span.begin : max(span.begin, first_block);
  item.end = work.in_turns ? span.end : min(span.end, first_block + latent_split_blocks);
  item.place = work.in_turns ? int64_t{blockIdx.x} : int64_t{tile} * work.splits + number;
  return true;
}

// The state of a thread block that computes a tile.
template <class P>
struct LatentTile {
  static constexpr int F = P::sum_fragments, N = P::sum_tiles;
  const LatentCall<Bf16>& call;
  LatentItem item;
  uint32_t base;                             // shared memory
  float *maxima, *sums, *m, *m_new, *alpha;  // in shared memory
  int thread, warp, lane;
  int units, padded_units;                // 16-byte units of a row; up to a multiple of 4, the step of the scores
  float o[F][N][4];                       // of the split in progress; the result after run()
  float l = 0, total_m = 0, total_l = 0;  // of row `thread`

  __device__ LatentTile(const LatentCall<Bf16>& of_call, unsigned char* shared)
      : call(of_call),
        base(shared_address(shared)),
        maxima(reinterpret_cast<float*>(shared + P::stats_at)),
        sums(maxima + P::rows * P::key_warps),
        m(sums + P::rows * 4),
        m_new(m + P::rows),
        alpha(m_new + P::rows),
        thread(static_cast<int>(threadIdx.x)),
        warp(thread / 32),
        lane(thread % 32),
        units(of_call.of.dim / 8),
        padded_units((of_call.of.dim + 31) / 32 * 4) {}

  __device__ uint32_t stage_at(int stage) const {
    return base + P::q_bytes + static_cast<uint32_t>(stage) * P::stage_bytes;
  }
  // The row of elements 2 r and 2 r + 1 of a sum's fragment f.
  __device__ int row_of(int f, int r) const { return P::first_row(warp) + 16 * f + lane / 4 + 8 * r; }

  // Copies a row to a tile; zeros if it is not `real`, and after its last unit.
  __device__ void copy_row(uint32_t tile, int row, const Bf16* from, bool real) const {
    for (int unit = thread % 8; unit < padded_units; unit += 8) {
      const bool inside = real && unit < units;
      cp_async(unit_at<latent_units>(tile, row, unit), from + (inside ? unit * 8 : 0), inside);
    }
  }
  __device__ void copy_queries() const {
    const AttentionCall<Bf16>& of = call.of;
    for (int r = thread / 8; r < P::rows; r += P::threads / 8) {
      const bool real = item.span.tile.first_row + r < item.span.end_row;
      const int row = real ? item.span.tile.first_row + r : item.span.tile.first_row;
      copy_row(
          base, r,
          of.q + (int64_t{item.span.sequence.begin} + row / of.group) * of.q_stride + int64_t{row % of.group} * of.dim,
          real);
    }
  }
  __device__ void copy_block(int block, int stage) const {
    for (int r = thread / 8; r < latent_keys; r += P::threads / 8) {
      const int key = block * latent_keys + r;
      const bool real = key < item.span.sequence.length;
      const int64_t slot = real ? slot_of(call.of, item.span.sequence, item.span.tile.sequence, key) : 0;
      copy_row(stage_at(stage), r, call.of.k + slot * call.of.k_stride, real);
    }
    cp_async_commit();
  }

  __device__ void reset() {
#pragma unroll
    for (int f = 0; f < F; ++f)
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) o[f][n][i] = 0;
    l = 0;
    if (thread < P::rows) m[thread] = -INFINITY;
  }

  // Scores of a block and their weights: p in shared memory, and alpha, the new m and the sums of each row.
  __device__ void weigh(int block, uint32_t stage) const {
    constexpr int K = P::warp_keys / 8;
    const AttentionCall<Bf16>& of = call.of;
    const int group = warp % P::fragments, part = warp / P::fragments, first_key = part * P::warp_keys;
    const bool active = P::key_warps * P::fragments == P::threads / 32 || part < P::key_warps;
    const auto score_row = [&](int r) { return 16 * group + lane / 4 + 8 * r; };
    float s[K][4];
    if (active) {
      P::scores(s, base, stage, group, first_key, padded_units, lane);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = min(item.span.tile.first_row + score_row(r), item.span.end_row - 1);
        const int last = item.span.sequence.position + row / of.group, first = first_seen(last, of.window);
        float most = -INFINITY;
#pragma unroll
        for (int n = 0; n < K; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int key = block * latent_keys + first_key + 8 * n + 2 * (lane % 4) + i;
            float& score = s[n][2 * r + i];
            if (key > last || key < first) score = -INFINITY;
            most = fmaxf(most, score);
          }
        most = quad_max(most);
        if (lane % 4 == 0) maxima[score_row(r) * P::key_warps + part] = most;
      }
    }
    __syncthreads();  // the maxima of all key warps are complete
    if (!active) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = score_row(r);
      const float before = m[row];
      float most = -INFINITY;
#pragma unroll
      for (int i = 0; i < P::key_warps; ++i) most = fmaxf(most, maxima[row * P::key_warps + i]);
      const float now = raised(before, most, of.c), from = base_of(now), shift = shift_of(from, of.c);
#pragma unroll
      for (int n = 0; n < K; n += 2) {
        float sum = 0;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const float low = weight(s[n + j][2 * r], of.c, shift), high = weight(s[n + j][2 * r + 1], of.c, shift);
          sum = j == 0 ? low + high : sum + low + high;
          const uint32_t at =
              unit_at<8>(base + P::p_at, row, first_key / 8 + n + j) + static_cast<uint32_t>(lane % 4) * 4;
          asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(pack_bf16(low, high)) : "memory");
        }
        sum = quad_sum(sum);
        if (lane % 4 == 0) sums[row * 4 + first_key / 16 + n / 2] = sum;
      }
      if (part == 0 && lane % 4 == 0) {
        m_new[row] = now;
        alpha[row] = rescaling(before, from, of.c);
      }
    }
  }

  // Rescales o and l, then adds p . v of a block.
  __device__ void add(uint32_t stage) {
    if (thread < P::rows) {
      const float* const of_row = sums + thread * 4;
      l = fmaf(l, alpha[thread], of_row[0] + of_row[1] + of_row[2] + of_row[3]);
      m[thread] = m_new[thread];
    }
    if (!P::has_values(warp, call.rank)) return;
    float factor[F][2];
    bool changes = false;
#pragma unroll
    for (int f = 0; f < F; ++f)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        factor[f][r] = alpha[row_of(f, r)];
        changes |= factor[f][r] != 1.0f;
      }
    if (__any_sync(0xffffffffu, changes)) {
#pragma unroll
      for (int f = 0; f < F; ++f)
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) o[f][n][i] *= factor[f][i / 2];
    }
    P::add_values(o, base + P::p_at, stage, call.rank, warp, lane);
  }

  // Row statistics of a merge: the factors go to alpha (of the total) and m_new (of the split).
  __device__ void merge_stats(float split_m, float split_l) {
    const MergeFactors factors = merge_factors(total_m, split_m, call.of.c);
    alpha[thread] = factors.total;
    m_new[thread] = factors.split;
    total_l = merged(total_l, split_l, factors);
    total_m = factors.m;
  }
  __device__ float4* place(float* totals, int f, int n) const {
    return reinterpret_cast<float4*>(totals) + (f * N + n) * P::threads + thread;
  }
  __device__ void store_parts(float* totals) const {
#pragma unroll
    for (int f = 0; f < F; ++f)
#pragma unroll
      for (int n = 0; n < N; ++n) *place(totals, f, n) = make_float4(o[f][n][0], o[f][n][1], o[f][n][2], o[f][n][3]);
  }
  // o becomes the merge of the total, which memory holds, and the split.
  __device__ void merge_parts(const float* totals) {
#pragma unroll
    for (int f = 0; f < F; ++f)
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const float4 total = *place(const_cast<float*>(totals), f, n);
        const float x[4] = {total.x, total.y, total.z, total.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = row_of(f, i / 2);
          const MergeFactors factors{0, alpha[row], m_new[row]};
          o[f][n][i] = merged(x[i], o[f][n][i], factors);
        }
      }
  }

  // Moves the finished split to the total, whose o is in memory. All warps have finished the block before.
  __device__ void close_split(float* totals, bool first) {
    if (thread < P::rows) {
      if (first) {
        total_m = m[thread];
        total_l = l;
      } else {
        merge_stats(m[thread], l);
      }
    }
    __syncthreads();  // the factors are complete
    if (!first) merge_parts(totals);
    store_parts(totals);
    reset();
  }

  // The blocks of the item, with the total of earlier splits in `totals`. Afterwards o is the result before the
  // division, and total_m and total_l are its statistics.
  __device__ void run(float* totals) {
    const int begin = item.begin, end = item.end;
    reset();
    copy_queries();
    if constexpr (P::stages == 2) copy_block(begin, 0);
    bool closed = false;
#pragma unroll 1
    for (int block = begin; block < end; ++block) {
      const int stage = P::stages == 2 ? (block - begin) % 2 : 0;
      if constexpr (P::stages == 1) {
        __syncthreads();  // all warps have read the stage
        copy_block(block, 0);
      }
      cp_async_wait<0>();
      __syncthreads();  // the stage has landed; all warps have finished the block before
      if (P::stages == 2 && block + 1 < end) copy_block(block + 1, 1 - stage);
      if (block > begin && block % latent_split_blocks == 0) {
        close_split(totals, !closed);
        closed = true;
      }
      weigh(block, stage_at(stage));
      __syncthreads();  // weights and factors are complete
      add(stage_at(stage));
    }
    __syncthreads();  // all warps have read the factors
    if (thread < P::rows) {
      if (closed) {
        merge_stats(m[thread], l);
      } else {
        total_m = m[thread];
        total_l = l;
      }
    }
    if (!closed) return;
    __syncthreads();  // the factors are complete
    merge_parts(totals);
    __syncthreads();  // all warps have read them
  }

  // Writes out and lse.
  __device__ void store() {
    const AttentionCall<Bf16>& of = call.of;
    if (thread < P::rows) {
      alpha[thread] = reciprocal(total_l);
      const int row = item.span.tile.first_row + thread;
      if (of.lse && row < item.span.end_row)
        of.lse[(int64_t{item.span.sequence.begin} + row / of.group) * of.lse_stride + row % of.group] =
            log_sum(total_m, total_l, of.scale);
    }
    __syncthreads();  // the divisors are complete
#pragma unroll
    for (int f = 0; f < F; ++f)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = item.span.tile.first_row + row_of(f, r);
        if (row >= item.span.end_row) continue;
        const float factor = alpha[row_of(f, r)];
        Bf16* const out = of.out + (int64_t{item.span.sequence.begin} + row / of.group) * of.out_stride +
                          int64_t{row % of.group} * call.rank;
#pragma unroll
        for (int n = 0; n < N; ++n) {
          const int column = P::first_column(warp) + 8 * n + 2 * (lane % 4);
          if (column < call.rank)
            *reinterpret_cast<uint32_t*>(out + column) =
                pack_bf16(o[f][n][2 * r] * factor, o[f][n][2 * r + 1] * factor);
        }
      }
    __syncthreads();  // all warps have read the divisors
  }
};

template <class P>
__global__ void __launch_bounds__(P::threads, 1)
    latent_tiles_kernel(const __grid_constant__ LatentCall<Bf16> call, const __grid_constant__ LatentWork work) {
  extern __shared__ __align__(1024) unsigned char shared[];
  LatentTile<P> tile(call, shared);
  for (int index = static_cast<int>(blockIdx.x); index < work.num_items(); index += static_cast<int>(gridDim.x)) {
    if (!item_at<P>(call.of, work, index, tile.item)) continue;
    __syncthreads();  // all warps have finished the item before
    const int64_t place = tile.item.place;
    float* const totals = work.totals + place * P::partial_floats;
    tile.run(totals);
    if (tile.item.complete) {
      tile.store();
      continue;
    }
    tile.store_parts(totals);
    if (tile.thread < P::rows) {
      work.stats[(place * 2) * P::rows + tile.thread] = tile.total_m;
      work.stats[(place * 2 + 1) * P::rows + tile.thread] = tile.total_l;
    }
  }
}

// Merges the splits of a tile in ascending order and writes out and lse. The grid is tiles x the sums of a thread.
template <class P>
__global__ void __launch_bounds__(P::threads)
    latent_sum_kernel(const __grid_constant__ LatentCall<Bf16> call, const __grid_constant__ LatentWork work) {
  const AttentionCall<Bf16>& of = call.of;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32,
            fragment = static_cast<int>(blockIdx.y) / P::sum_tiles, n = static_cast<int>(blockIdx.y) % P::sum_tiles;
  const LatentSpan span = span_of<P>(of, work, static_cast<int>(blockIdx.x));
  const int column = P::first_column(warp) + 8 * n + 2 * (lane % 4),
            row = P::first_row(warp) + 16 * fragment + lane / 4;
  if (span.tile.first_row >= span.end_row || span.num_splits() == 1 || column >= call.rank) return;
  float sum[4], m[2], l[2];
  for (int number = 0; number < span.num_splits(); ++number) {
    const int64_t place = int64_t{blockIdx.x} * work.splits + number;
    const float4 part =
        reinterpret_cast<const float4*>(work.totals + place * P::partial_floats)[blockIdx.y * P::threads + threadIdx.x];
    const float x[4] = {part.x, part.y, part.z, part.w};
    const float* const stats = work.stats + place * 2 * P::rows + row;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float split_m = stats[8 * r], split_l = stats[P::rows + 8 * r];
      if (number == 0) {
        m[r] = split_m;
        l[r] = split_l;
        sum[2 * r] = x[2 * r];
        sum[2 * r + 1] = x[2 * r + 1];
        continue;
      }
      const MergeFactors factors = merge_factors(m[r], split_m, of.c);
      l[r] = merged(l[r], split_l, factors);
      m[r] = factors.m;
      sum[2 * r] = merged(sum[2 * r], x[2 * r], factors);
      sum[2 * r + 1] = merged(sum[2 * r + 1], x[2 * r + 1], factors);
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int at = span.tile.first_row + row + 8 * r;
    if (at >= span.end_row) continue;
    const int64_t token = int64_t{span.sequence.begin} + at / of.group;
    const int head = at % of.group;
    const float factor = reciprocal(l[r]);
    if (of.lse && column == 0) of.lse[token * of.lse_stride + head] = log_sum(m[r], l[r], of.scale);
    *reinterpret_cast<uint32_t*>(of.out + token * of.out_stride + int64_t{head} * call.rank + column) =
        pack_bf16(sum[2 * r] * factor, sum[2 * r + 1] * factor);
  }
}

}  // namespace hone::attention
