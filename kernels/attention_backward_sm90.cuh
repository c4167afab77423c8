#pragma once
// What attention's backward on Hopper is made of: what a call is, products of whole tiles, and how results leave.
#include "kernels/attention_sm90.cuh"

namespace hone::attention_gradients {

using namespace sm90;
using Value = __nv_bfloat16;

inline constexpr int tile_rows = 128;        // keys that a block owns
inline constexpr int threads = 3 * 128;      // a warpgroup that moves data, two that compute
inline constexpr int box_rows = 64;          // of a copy; its columns are 64 too
inline constexpr int column_bytes = 64 * 2;  // a row of a box

// 128 tokens of a sequence: as keys, those with rank - 1 tiles behind them; as queries, those with rank - 1 tiles before them. length is 0 where a
// list has no more.
struct Tile {
  int begin, length;  // tokens of the sequence
  int rank;
  int row;  // of the sequence's first token among padded rows
};

struct Call {
  const Tile* tiles;         // by descending rank
  const float *lse, *delta;  // [H, padded]: log2(e) * lse, and dout . out; infinity and 0 behind a sequence's end, up to a multiple of 128
  int64_t padded;            // rows of a head; a sequence starts at a multiple of 128
  Value *dq, *dk, *dv;
  int64_t dq_stride, dk_stride, dv_stride;
  int group, kv_heads, window;
  float scale, exponent_scale;
  float* dq_sums;  // [H, padded, dim] in blocks of the walk's queries, a block's numbers as threads hold them
  int* turns;      // tiles of keys that have been added to each block of dq_sums
  int* next;       // places taken by blocks of threads
};

// A tile of rows [rows, dim] in shared memory: dim / 64 blocks of rows * 128 bytes.
template <int rows, int dim>
__device__ inline void load_tile(unsigned char* to, const CUtensorMap& map, Barrier& barrier, int head, int token) {
#pragma unroll
  for (int column = 0; column < dim; column += 64)
#pragma unroll
    for (int row = 0; row < rows; row += box_rows) load_box(to + (column / 64 * rows + row) * column_bytes, map, barrier, column, head, token + row);
}

// Bytes from device memory to shared memory, both aligned to 16.
__device__ inline void load_bytes(void* to, const void* from, uint32_t bytes, Barrier& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from),
               "r"(bytes), "r"(shared_address(&barrier.word))
               : "memory");
}

// c [64, N] = a [64, dim] . b [N, dim]^T; a is 64 rows of a tile of a_rows.
template <int dim, int a_rows, int b_rows, int N>
__device__ inline void multiply_rows(float (&c)[N], uint64_t a, uint64_t b) {
#pragma unroll
  for (int k = 0; k < dim / 16; ++k)
    product(c, further(a, k / 4 * a_rows * column_bytes + k % 4 * 32), further(b, k / 4 * b_rows * column_bytes + k % 4 * 32), k > 0);
}
// c [64, dim] += a [64, rows] . b [rows, dim], a in registers.
template <int N, int A>
__device__ inline void multiply_add(float (&c)[N], const uint32_t (&a)[A], uint64_t b) {
#pragma unroll
  for (int k = 0; k < A / 4; ++k) product(c, a + 4 * k, further(b, k * 16 * column_bytes), true);
}

__device__ inline float unpack_bf16(uint32_t pair, int i) { return __uint_as_float(i ? pair & 0xffff0000u : pair << 16); }
// An accumulator as a product's left operand.
template <int N>
__device__ inline void pack(uint32_t (&to)[N / 2], const float (&from)[N]) {
#pragma unroll
  for (int i = 0; i < N / 2; ++i) to[i] = pack_bf16(from[2 * i], from[2 * i + 1]);
}

// Rows [0, count) of an accumulator [64, dim] to `to`, by way of the warpgroup's 64 rows of a tile of 128 in shared memory.
template <int dim>
__device__ inline void store_rows(Value* to, int64_t stride, int count, const float (&from)[dim / 2], float scale, unsigned char* tile, int group) {
  const int thread = threadIdx.x % 128;
  const auto at = [&](int row, int chunk) { return tile + (chunk / 8 * tile_rows + group * 64 + row) * column_bytes + (chunk % 8 ^ row % 8) * 16; };
#pragma unroll
  for (int j = 0; j < dim / 8; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e)
      *reinterpret_cast<uint32_t*>(at(thread / 32 * 16 + thread % 32 / 4 + e * 8, j) + thread % 4 * 4) =
          pack_bf16(from[4 * j + 2 * e] * scale, from[4 * j + 2 * e + 1] * scale);
  named_sync(1 + group, 128);
  constexpr int chunks = dim / 8;
#pragma unroll
  for (int i = thread; i < 64 * chunks; i += 128)
    if (i / chunks < count)
      *reinterpret_cast<uint4*>(to + i / chunks * stride + i % chunks * 8) = *reinterpret_cast<const uint4*>(at(i / chunks, i % chunks));
}

}  // namespace hone::attention_gradients
