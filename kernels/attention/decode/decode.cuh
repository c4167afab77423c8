#pragma once
// Common parts of the decode kernels (few queries per sequence). Keys, and columns of v, are the 16 rows of an MMA;
// queries are its 8 columns. The bits equal those of the transposed form. A thread block computes one split of keys of
// one sequence and KV head for 8 N of its rows.
#include "kernels/attention/mma.cuh"
#include "kernels/cuda/pdl.cuh"

namespace hone::attention {

// Partial results if a row has several splits: o [S, Hk, rows, splits, d]; m, l [S, Hk, rows, splits]. o is nullptr if
// there is one split: the kernel then writes the output.
struct SplitPartials {
  float *o, *m, *l;
  int rows, splits, table_keys;
  bool prefetchable;  // PagedKv::prefetchable
};

// Rows [first, end) of a sequence, and the keys [low, high] of the split that any of them sees. Keys and blocks are
// counted from the start of the split.
struct DecodeTile {
  Sequence sequence;
  int s, kv_head, split, split_begin, first, end, first_position, last_position, low, high, block_begin, num_blocks;

  __device__ int token_of(int row, int group) const { return sequence.tokens == 1 ? 0 : row / group; }
};
// The split of grid index z = split * row tiles + row tile.
__device__ inline int split_of(const SplitPartials& partials, int z, int rows) {
  return partials.rows <= rows ? z : z / ((partials.rows + rows - 1) / rows);
}
// Keys before this index of the split may be read before hopper::griddep_wait(); later ones may be written by the
// kernel before.
__device__ inline int prefetchable_end(const SplitPartials& partials, const DecodeTile& tile) {
  const int own = tile.sequence.position - tile.split_begin;
  return partials.prefetchable && tile.low < own ? own : 0;  // masked keys are replaced by key `low`
}
// Returns false if the thread block has nothing to compute.
__device__ inline bool find_tile(DecodeTile& tile, const AttentionCall<Bf16>& call, const SplitPartials& partials,
                                 const Sequence& sequence, int kv_head, int s, int z, int rows) {
  tile.sequence = sequence;
  tile.kv_head = kv_head;
  tile.s = s;
  tile.split = split_of(partials, z, rows);
  tile.first = (z - tile.split * ((partials.rows + rows - 1) / rows)) * rows;
  tile.split_begin = tile.split * split_keys;
  const int num_rows = tile.sequence.tokens * call.group;
  if (tile.first >= num_rows || !decodes(tile.sequence.tokens, call.group)) return false;
  tile.end = min(tile.first + rows, num_rows);
  tile.first_position = tile.sequence.position + tile.token_of(tile.first, call.group);
  tile.last_position = tile.sequence.position + tile.token_of(tile.end - 1, call.group);
  tile.high = min(tile.last_position - tile.split_begin, split_keys - 1);
  tile.low = max(first_seen(tile.first_position, call.window) - tile.split_begin, 0);
  tile.block_begin = tile.low / block_keys;
  tile.num_blocks = tile.high / block_keys + 1 - tile.block_begin;
  return tile.low <= tile.high;
}

// Loads rows lane / 4 (+ 8 e) as the B operand of k . q.
template <int D, int N>
__device__ inline void load_queries(uint32_t (&q)[N][D / 16][2], const AttentionCall<Bf16>& call,
                                    const DecodeTile& tile, uint32_t lane) {
#pragma unroll
  for (int e = 0; e < N; ++e) {
    const int row = tile.first + 8 * e + static_cast<int>(lane / 4), token = tile.token_of(row, call.group);
    const Bf16* const from = call.q + int64_t{tile.sequence.begin + token} * call.q_stride +
                             (tile.kv_head * call.group + row - token * call.group) * call.dim;
#pragma unroll
    for (int d = 0; d < D / 16; ++d)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        q[e][d][i] = row < tile.end && 16 * d + 8 * i < call.dim
                         ? *reinterpret_cast<const uint32_t*>(from + 16 * d + 8 * i + lane % 4 * 2)
                         : 0;
  }
}

// Adjacent lane groups exchange scores. Afterwards a lane has one row, row_of(lane), and of every eight keys the two
// that lane `lane / 8` of an accumulator row would have. The row's sum then has the order of numerics.cuh.
__device__ inline uint32_t row_of(uint32_t lane) { return 2 * (lane % 4) + lane / 4 % 2; }
template <int N>
__device__ inline void exchange(float (&score)[N][4], uint32_t lane) {
  const bool even = lane / 4 % 2 == 0;
#pragma unroll
  for (int e = 0; e < N; ++e)
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      float &a = score[e][i], &b = score[e][i + 1];
      const float other = __shfl_xor_sync(0xffffffffu, even ? b : a, 4);
      a = even ? a : other;
      b = even ? other : b;
    }
}
// Sets masked scores to -inf. score[n] holds 16 keys, starting at `key_begin` + 16 n of the sequence.
template <int n_keys, int N>
__device__ inline void mask_keys(float (&score)[n_keys][N][4], int key_begin, const AttentionCall<Bf16>& call,
                                 const DecodeTile& tile, uint32_t lane) {
  if (key_begin >= first_seen(tile.last_position, call.window) && key_begin + 16 * n_keys - 1 <= tile.first_position)
    return;
#pragma unroll
  for (int e = 0; e < N; ++e) {
    const int position =
        tile.sequence.position + tile.token_of(tile.first + 8 * e + static_cast<int>(row_of(lane)), call.group);
    const int last = position - key_begin - static_cast<int>(lane / 8 * 2),
              first = first_seen(position, call.window) - position + last;
#pragma unroll
    for (int n = 0; n < n_keys; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = 16 * n + i / 2 * 8 + i % 2;
        if (key < first || key > last) score[n][e][i] = -INFINITY;
      }
  }
}
// Reductions over the lanes of a row.
__device__ inline float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 8));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 16));
}
__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 8);
  return x + __shfl_xor_sync(0xffffffffu, x, 16);
}

template <int columns, int N>
__device__ inline void rescale(float (&o)[columns / 16][N][4], const float* alpha, uint32_t lane) {
#pragma unroll
  for (int e = 0; e < N; ++e) {
    const float2 factor = *reinterpret_cast<const float2*>(alpha + 8 * e + 2 * (lane % 4));
#pragma unroll
    for (int t = 0; t < columns / 16; ++t) {
      o[t][e][0] *= factor.x;
      o[t][e][1] *= factor.y;
      o[t][e][2] *= factor.x;
      o[t][e][3] *= factor.y;
    }
  }
}

// Writes the output of the rows, or the partial result of the split. m_of(row) and l_of(row) are those of the split;
// `column` is the warp's first column.
template <int columns, int N, class M, class L>
__device__ inline void write_rows(const float (&o)[columns / 16][N][4], const AttentionCall<Bf16>& call,
                                  const SplitPartials& partials, const DecodeTile& tile, int column, uint32_t lane,
                                  M m_of, L l_of) {
#pragma unroll
  for (int e = 0; e < N; ++e)
#pragma unroll 1  // instruction fetch of code that runs once costs more than its execution
    for (int r = 0; r < 2; ++r) {
      const int in_tile = 8 * e + 2 * static_cast<int>(lane % 4) + r, row = tile.first + in_tile,
                token = tile.token_of(row, call.group);
      if (row >= tile.end) continue;
      const int head = tile.kv_head * call.group + row - token * call.group;
      const float l = l_of(in_tile), inverse = call.sinks && !partials.o
                                                   ? end_of_row(call, head, m_of(in_tile), l).inverse
                                                   : reciprocal(l);
      const int64_t place =
          ((int64_t{tile.s} * call.kv_heads + tile.kv_head) * partials.rows + row) * partials.splits + tile.split;
      Bf16* const out = call.out + int64_t{tile.sequence.begin + token} * call.out_stride + head * call.dim;
#pragma unroll
      for (int i = 0; i < columns / 8; ++i) {
        const int at = column + 8 * i + static_cast<int>(lane / 4);
        const float x = r == 0 ? o[i / 2][e][i % 2 * 2] : o[i / 2][e][i % 2 * 2 + 1];
        if (at >= call.dim) continue;
        if (partials.o)
          partials.o[place * call.dim + at] = x;
        else
          out[at] = __float2bfloat16_rn(x * inverse);
      }
      if (partials.o && column == 0 && lane < 4) {
        partials.m[place] = m_of(in_tile);
        partials.l[place] = l;
      }
    }
}

// Returns how many groups of eight rows a thread block computes: 1 or 2. Two leave few warps per SM. In a call that
// also prefills, most decoded sequences have one token.
inline int num_key_octets(const SplitPartials& partials, const AttentionCall<Bf16>& call, int most_tokens) {
  return partials.rows <= 8 || (call.group <= 8 && !decodes(most_tokens, call.group)) ? 1 : 2;
}
// Computes the decoded sequences of a call, up to SplitPartials. octets: num_key_octets().
using LaunchDecode = void (*)(cudaStream_t stream, const AttentionCall<Bf16>& call, const SplitPartials& partials,
                              const PagedKv& cache, int octets);
// attention_paged with this kernel for decoded sequences, and query tiles for the others.
void run_attention_paged(Context& context, const AttentionPaged& args, LaunchDecode launch);

// decode_cluster_sm90.cu.
void launch_decode_cluster(cudaStream_t stream, const AttentionCall<Bf16>& call, const SplitPartials& partials,
                           int octets);

}  // namespace hone::attention
