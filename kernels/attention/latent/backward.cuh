#pragma once
// Backward pass of latent attention with mma.sync: dq from tiles of query rows that visit keys, drows from tiles of
// keys that visit query rows. Formulas: latent_attention.cpp. Both are one kernel: an own side, whose rows stay in
// shared memory, and an other side in steps.
//
// Use       backward.cu, which chooses a plan by the device's shared memory.
// Tile      16 * fragments own rows (query rows are numbered as in call.cuh) by steps of `others` rows. Grid: own tiles
//           x splits of the other side.
// Roles     8 warps. Scores: a warp has 16 own rows and its share of a step. Sums: a warp has all own rows and 72
//           of the 576 columns. All threads copy.
// Pipeline  one smem stage (cp.async). Three __syncthreads() per step: stage free, stage landed, ds complete.
// Smem      dynamic, LatentGradientPlan::bytes: rows of 1152 bytes (q or latents) and of 1024 bytes (dout), ds and p,
//           statistics.
// Numerics  p = exp2(s * c - lse * log2(e)) and ds in f32, rounded to bf16 for the sums, which are f32 accumulators
//           over the steps in ascending order: ds . q and then p . dout of a step for drows. Splits are added in
//           ascending order.
// PDL       none.
// Limits    as tiles.cuh.
#include "kernels/attention/latent/call.cuh"
#include "kernels/attention/mma.cuh"

namespace hone::attention {

template <bool OfKeys, int Fragments, int Others>
struct LatentGradientPlan {
  static constexpr bool of_keys = OfKeys;
  static constexpr int fragments = Fragments, own = 16 * Fragments, others = Others, threads = 256;
  static constexpr int parts = 8 / Fragments < Others / 16 ? 8 / Fragments : Others / 16,  // warps that share 16 rows
      part_rows = Others / parts;
  static constexpr int row_units = 72, grad_units = 64, warp_tiles = 9;  // warp_tiles: of 8 columns
  static constexpr uint32_t row_bytes = row_units * 16, grad_bytes = grad_units * 16;
  static constexpr uint32_t own_dout_at = own * row_bytes, other_at = own_dout_at + (OfKeys ? 0 : own * grad_bytes),
                            other_dout_at = other_at + Others * row_bytes,
                            ds_at = other_dout_at + (OfKeys ? Others * grad_bytes : 0), p_at = ds_at + own * 128,
                            stats_at = p_at + (OfKeys ? own * 128 : 0);
  static constexpr int queries = OfKeys ? Others : own;
  static constexpr size_t bytes = stats_at + sizeof(float) * 2 * queries, static_bytes = 0;
};

struct LatentGradientWork {
  float* parts;  // [splits, T, W] f32: drows of each split; nullptr: one split, which is stored as the result
  int splits;
};

// A thread block's own rows and the rows of the other side that it visits; all are indices within the sequence.
struct LatentGradientSpan {
  Sequence sequence;
  int own, own_end, other, other_end;
};

template <class P>
struct LatentGradient {
  static constexpr int F = P::fragments, N = P::warp_tiles;
  const LatentBackwardCall<Bf16>& call;
  LatentGradientSpan span;
  uint32_t base;  // shared memory
  float* stats;   // lse * log2(e), then delta, of the query rows in shared memory
  int thread, warp, lane, row_units, grad_units;
  float sum[F][N][4];

  __device__ LatentGradient(const LatentBackwardCall<Bf16>& of_call, unsigned char* shared)
      : call(of_call),
        base(shared_address(shared)),
        stats(reinterpret_cast<float*>(shared + P::stats_at)),
        thread(static_cast<int>(threadIdx.x)),
        warp(thread / 32),
        lane(thread % 32),
        row_units(of_call.forward.of.dim / 8),
        grad_units(of_call.forward.rank / 8) {}

  // Steps of 32 columns are zero after the last unit.
  static __device__ int padded(int units) { return (units + 3) / 4 * 4; }

  template <int U>
  __device__ void copy_row(uint32_t tile, int row, const Bf16* from, int units, bool real) const {
    for (int unit = thread % 8; unit < padded(units); unit += 8) {
      const bool inside = real && unit < units;
      cp_async(unit_at<U>(tile, row, unit), from + (inside ? unit * 8 : 0), inside);
    }
  }
  // Copies `count` query rows from `first` with their dout and statistics.
  __device__ void copy_queries(uint32_t rows_at, uint32_t dout_at, int first, int end, int count) const {
    const AttentionCall<Bf16>& of = call.forward.of;
    for (int r = thread / 8; r < count; r += P::threads / 8) {
      const bool real = first + r < end;
      const int row = real ? first + r : first, head = row % of.group;
      const int64_t token = int64_t{span.sequence.begin} + row / of.group;
      copy_row<P::row_units>(base + rows_at, r, of.q + token * of.q_stride + int64_t{head} * of.dim, row_units, real);
      copy_row<P::grad_units>(base + dout_at, r,
                              call.dout + token * call.dout_stride + int64_t{head} * call.forward.rank, grad_units,
                              real);
      if (thread % 8 == 0) {
        stats[r] = real ? call.lse[token * call.lse_stride + head] * 1.44269504f : 0.0f;
        stats[count + r] = real ? call.delta[token * of.group + head] : 0.0f;
      }
    }
  }
  __device__ void copy_keys(uint32_t rows_at, int first, int end, int count) const {
    const AttentionCall<Bf16>& of = call.forward.of;
    for (int r = thread / 8; r < count; r += P::threads / 8) {
      const bool real = first + r < end;
      const int64_t token = int64_t{span.sequence.begin} + (real ? first + r : first);
      copy_row<P::row_units>(base + rows_at, r, of.k + token * of.k_stride, row_units, real);
    }
  }

  // Products of 16 own rows with a warp's part of the other rows, over `units` of both.
  template <int OwnUnits, int OtherUnits, int K>
  __device__ void multiply(float (&to)[K][4], uint32_t own_tile, uint32_t other_tile, int own_row, int other_row,
                           int units) const {
#pragma unroll
    for (int n = 0; n < K; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) to[n][i] = 0;
#pragma unroll 2
    for (int unit = 0; unit < padded(units); unit += 4) {
      uint32_t first[4], second[4];
      ldmatrix_x4(first, left_at<OwnUnits>(own_tile, own_row, unit, lane));
      ldmatrix_x4(second, left_at<OwnUnits>(own_tile, own_row, unit + 2, lane));
#pragma unroll
      for (int n = 0; n < K; ++n) {
        uint32_t other[4];
        ldmatrix_x4(other, unit_at<OtherUnits>(other_tile, other_row + 8 * n + lane % 8, unit + lane / 8));
        mma_m16n8k16(to[n], first, other[0], other[1]);
        mma_m16n8k16(to[n], second, other[2], other[3]);
      }
    }
  }

  __device__ void store_weights(uint32_t tile, int row, int column, float low, float high) const {
    const uint32_t at = unit_at<8>(base + tile, row, column / 8) + static_cast<uint32_t>(column % 8) * 2;
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(pack_bf16(low, high)) : "memory");
  }

  // Writes ds of a step, and p for drows, to shared memory. other: the first row of the step.
  __device__ void weigh(int other) const {
    constexpr int K = P::part_rows / 8;
    const AttentionCall<Bf16>& of = call.forward.of;
    const int group = warp % F, part = warp / F, first = part * P::part_rows;
    if (part >= P::parts) return;
    float s[K][4], dp[K][4];
    multiply<P::row_units, P::row_units>(s, base, base + P::other_at, 16 * group, first, row_units);
    if constexpr (P::of_keys)
      multiply<P::row_units, P::grad_units>(dp, base, base + P::other_dout_at, 16 * group, first, grad_units);
    else
      multiply<P::grad_units, P::row_units>(dp, base + P::own_dout_at, base + P::other_at, 16 * group, first,
                                            grad_units);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int own_row = 16 * group + lane / 4 + 8 * r, own_index = span.own + own_row;
#pragma unroll
      for (int n = 0; n < K; ++n) {
        const int column = first + 8 * n + 2 * (lane % 4);
        float p[2], ds[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int other_index = other + column + i, query_row = P::of_keys ? column + i : own_row;
          const int position = (P::of_keys ? other_index : own_index) / of.group,
                    key = P::of_keys ? own_index : other_index;
          const bool seen = own_index < span.own_end && other_index < span.other_end && key <= position &&
                            key >= first_seen(position, of.window);
          p[i] = seen ? exp2_approx(fmaf(s[n][2 * r + i], of.c, -stats[query_row])) : 0.0f;
          ds[i] = seen ? p[i] * (dp[n][2 * r + i] - stats[P::queries + query_row]) * of.scale : 0.0f;
        }
        store_weights(P::ds_at, own_row, column, ds[0], ds[1]);
        if constexpr (P::of_keys) store_weights(P::p_at, own_row, column, p[0], p[1]);
      }
    }
  }

  // sum += weights . rows over the rows of a step, for the warp's columns below `columns`.
  template <int U>
  __device__ void add(uint32_t weights, uint32_t rows, int columns) {
    const int first_unit = warp * N;
    if (first_unit * 8 >= columns) return;
#pragma unroll
    for (int k = 0; k < P::others / 16; ++k) {
      uint32_t a[F][4];
#pragma unroll
      for (int f = 0; f < F; ++f) ldmatrix_x4(a[f], left_at<8>(base + weights, 16 * f, 2 * k, lane));
#pragma unroll
      for (int n = 0; n < N; n += 2) {
        if ((first_unit + n) * 8 >= columns) break;
        const bool both = n + 1 < N && (first_unit + n + 1) * 8 < columns;
        uint32_t b[4];
        // A unit past the columns is not used; the last unit is read in its place.
        ldmatrix_x4_trans(b, unit_at<U>(base + rows, 16 * k + lane % 16, first_unit + n + (both ? lane / 16 : 0)));
#pragma unroll
        for (int f = 0; f < F; ++f) {
          mma_m16n8k16(sum[f][n], a[f], b[0], b[1]);
          if (n + 1 < N && both) mma_m16n8k16(sum[f][n + 1 < N ? n + 1 : n], a[f], b[2], b[3]);
        }
      }
    }
  }

  __device__ void run() {
#pragma unroll
    for (int f = 0; f < F; ++f)
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[f][n][i] = 0;
    if constexpr (P::of_keys)
      copy_keys(0, span.own, span.own_end, P::own);
    else
      copy_queries(0, P::own_dout_at, span.own, span.own_end, P::own);
#pragma unroll 1
    for (int other = span.other; other < span.other_end; other += P::others) {
      __syncthreads();  // all warps have read the stage and the weights
      if constexpr (P::of_keys)
        copy_queries(P::other_at, P::other_dout_at, other, span.other_end, P::others);
      else
        copy_keys(P::other_at, other, span.other_end, P::others);
      cp_async_commit();
      cp_async_wait<0>();
      __syncthreads();  // the stage has landed
      weigh(other);
      __syncthreads();  // ds and p are complete
      add<P::row_units>(P::ds_at, P::other_at, call.forward.of.dim);
      if constexpr (P::of_keys) add<P::grad_units>(P::p_at, P::other_dout_at, call.forward.rank);
    }
    cp_async_wait<0>();
  }

  // store(own row in the sequence, column, two numbers) for the results.
  template <class Store>
  __device__ void store(Store to) const {
#pragma unroll
    for (int f = 0; f < F; ++f)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = span.own + 16 * f + lane / 4 + 8 * r;
        if (row >= span.own_end) continue;
#pragma unroll
        for (int n = 0; n < N; ++n) {
          const int column = (warp * N + n) * 8 + 2 * (lane % 4);
          if (column < call.forward.of.dim) to(row, column, sum[f][n][2 * r], sum[f][n][2 * r + 1]);
        }
      }
  }
};

template <class P>
__global__ void __launch_bounds__(P::threads, 1)
    latent_dq_kernel(const __grid_constant__ LatentBackwardCall<Bf16> call) {
  extern __shared__ __align__(128) unsigned char shared[];
  const AttentionCall<Bf16>& of = call.forward.of;
  const Tile tile = tile_at(of.offsets, of.sequences, of.group, P::own, static_cast<int>(gridDim.x - 1 - blockIdx.x));
  LatentGradient<P> gradient(call, shared);
  LatentGradientSpan span{};
  span.sequence = sequence_of(of, tile.sequence);
  span.own = tile.first_row;
  span.own_end = min(tile.first_row + P::own, span.sequence.tokens * of.group);
  if (span.own >= span.own_end) return;
  span.other = first_seen(span.own / of.group, of.window) / P::others * P::others;
  span.other_end = (span.own_end - 1) / of.group + 1;
  gradient.span = span;
  gradient.run();
  gradient.store([&](int row, int column, float low, float high) {
    Bf16* const to =
        call.dq + (int64_t{span.sequence.begin} + row / of.group) * call.dq_stride + int64_t{row % of.group} * of.dim;
    *reinterpret_cast<uint32_t*>(to + column) = pack_bf16(low, high);
  });
}

template <class P>
__global__ void __launch_bounds__(P::threads, 1)
    latent_drows_kernel(const __grid_constant__ LatentBackwardCall<Bf16> call, const LatentGradientWork work) {
  extern __shared__ __align__(128) unsigned char shared[];
  const AttentionCall<Bf16>& of = call.forward.of;
  const Tile tile = tile_at(of.offsets, of.sequences, 1, P::own, static_cast<int>(blockIdx.x));
  LatentGradient<P> gradient(call, shared);
  LatentGradientSpan span{};
  span.sequence = sequence_of(of, tile.sequence);
  span.own = tile.first_row;
  span.own_end = min(tile.first_row + P::own, span.sequence.tokens);
  if (span.own >= span.own_end) return;
  // The steps of all query rows that see the keys; this split has an even share of them.
  const int first = span.own * of.group,
            end = (of.window > 0 ? min(span.sequence.tokens, span.own_end - 1 + of.window) : span.sequence.tokens) *
                  of.group,
            steps = (end - first + P::others - 1) / P::others, split = static_cast<int>(blockIdx.y);
  const auto step_of = [&](int i) { return static_cast<int>(int64_t{steps} * i / work.splits); };
  span.other = first + step_of(split) * P::others;
  span.other_end = min(end, first + step_of(split + 1) * P::others);
  gradient.span = span;
  gradient.run();
  gradient.store([&](int row, int column, float low, float high) {
    const int64_t token = int64_t{span.sequence.begin} + row;
    if (work.parts)
      *reinterpret_cast<float2*>(work.parts + (int64_t{split} * of.tokens + token) * of.dim + column) =
          make_float2(low, high);
    else
      *reinterpret_cast<uint32_t*>(call.drows + token * call.drows_stride + column) = pack_bf16(low, high);
  });
}

}  // namespace hone::attention
