#pragma once
// Parts of attention's backward on Hopper: the arguments of a call, GEMMs of whole tiles, and stores of results.
#include "kernels/attention/wgmma.cuh"

namespace hone::attention_gradients {

using namespace sm90;
using hopper::high_bf16;
using hopper::low_bf16;
using hopper::stmatrix_x4;
using Value = __nv_bfloat16;

inline constexpr int tile_rows = 128;    // keys of a thread block
inline constexpr int threads = 3 * 128;  // one producer warpgroup, two consumer warpgroups
inline constexpr int compute_warps = 8;
inline constexpr int box_rows = 64;          // rows of a TMA box; it has 64 columns, too
inline constexpr int column_bytes = 64 * 2;  // bytes of a box row

// 128 tokens of a sequence. As keys, rank - 1 tiles of the sequence follow them; as queries, rank - 1 tiles precede
// them. length is 0 past the end of the list.
struct Tile {
  int begin, length;  // tokens of the sequence
  int rank;
  int row;  // padded row of the sequence's first token
};

struct GradientCall {
  const Tile* tiles;         // in descending order of rank
  const float *lse, *delta;  // [H, padded]: log2(e) * lse, and dout . out; infinity and 0 past a sequence's end, up
                             // to a multiple of 128
  int64_t padded;            // padded rows per head; a sequence starts at a multiple of 128
  Value *dq, *dk, *dv;
  int64_t dq_stride, dk_stride, dv_stride;
  int num_tiles, group, kv_heads, window;
  int splits;  // work items that share the heads of a group
  float scale, exponent_scale;
  float* dq_sums;   // [H, padded, dim] in blocks of Memory::queries rows, each in the accumulator layout
  int* turns;       // per block of dq_sums: number of key tiles that have been added
  int* next;        // number of work items that thread blocks have claimed
  float* key_sums;  // if splits > 1: [splits, dk and dv, Hk, padded, dim] in blocks of 128 rows, each in the
                    // accumulator layout

  __device__ float4* key_parts(int split, int value, int kv_head, int64_t tile, int dim) const {
    return reinterpret_cast<float4*>(key_sums) +
           ((int64_t{split * 2 + value} * kv_heads + kv_head) * (padded / tile_rows) + tile) * (tile_rows * dim / 4);
  }
};

// Loads a tile [rows, dim] as dim / 64 blocks of rows * 128 bytes, each with the 128-byte swizzle.
template <int rows, int dim>
__device__ inline void load_tile(unsigned char* to, const CUtensorMap& map, Barrier& barrier, int head, int token) {
#pragma unroll
  for (int column = 0; column < dim; column += 64)
#pragma unroll
    for (int row = 0; row < rows; row += box_rows)
      tma_load(to + (column / 64 * rows + row) * column_bytes, map, barrier, column, head, token + row);
}

// Bulk copy from global to shared memory; both addresses and `bytes` are multiples of 16.
__device__ inline void load_bytes(void* to, const void* from, uint32_t bytes, Barrier& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(&barrier.word))
               : "memory");
}

// c [64, N] = a [64, dim] . b [N, dim]^T. a is 64 rows of a tile of a_rows rows, b all rows of a tile of b_rows.
template <int dim, int a_rows, int b_rows, int N>
__device__ inline void multiply_rows(float (&c)[N], uint64_t a, uint64_t b) {
#pragma unroll
  for (int k = 0; k < dim / 16; ++k)
    wgmma_ss(c, further(a, k / 4 * a_rows * column_bytes + k % 4 * 32),
             further(b, k / 4 * b_rows * column_bytes + k % 4 * 32), k > 0);
}
// c [64, dim] += a [64, rows] . b [rows, dim], a in registers.
template <int N, int A>
__device__ inline void mma_m16n8k16(float (&c)[N], const uint32_t (&a)[A], uint64_t b) {
#pragma unroll
  for (int k = 0; k < A / 4; ++k) wgmma_rs(c, a + 4 * k, further(b, k * 16 * column_bytes), true);
}

// Converts an accumulator to the A operand of the next GEMM.
template <int N>
__device__ inline void pack(uint32_t (&to)[N / 2], const float (&from)[N]) {
#pragma unroll
  for (int i = 0; i < N / 2; ++i) to[i] = pack_bf16(from[2 * i], from[2 * i + 1]);
}

// Stores four elements with one instruction; the compiler splits most such stores.
__device__ inline void store_four(uint32_t shared, const float* x) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
               : "memory");
}
__device__ inline void store_four(float4* to, const float* x) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
               : "memory");
}
__device__ inline void store_four(Value* to, const uint32_t (&x)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}

// Stores a warpgroup's accumulator of 64 x 64 elements, times scale, to the first `rows` rows at `to`. The four lanes
// of a row exchange elements until each has 16 contiguous bytes.
__device__ inline void store_part(Value* to, int64_t stride, int rows, const float* from, float scale) {
  const int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4, lane = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int j = 0; j < 8; j += 4) {
      uint32_t x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        x[i] = pack_bf16(from[4 * (j + i) + 2 * r] * scale, from[4 * (j + i) + 2 * r + 1] * scale);
#pragma unroll
      for (int bit = 1; bit < 4; bit *= 2)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (!(i & bit)) {
            const bool high = lane & bit;
            const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? x[i] : x[i | bit], bit);
            (high ? x[i] : x[i | bit]) = got;
          }
      if (row + 8 * r < rows) store_four(to + (row + 8 * r) * stride + (j + lane) * 8, x);
    }
}

}  // namespace hone::attention_gradients
