#pragma once
// A row held in the registers of one or more warps: read once, reduced, written. The row's length and dtype alone
// decide which thread holds which element, and so the order of a row's sums.
#include "kernels/cuda/cuda.cuh"

namespace hone {

// `packs`: 16-byte vectors per thread. `warps`: warps per row, a power of two; rather two or more than five vectors.
struct RowShape {
  int packs = 0, warps = 0;
};
inline RowShape row_shape(const OpBase& op, int64_t dim, int numbers_a_pack, int most_packs, int most_warps) {
  const int64_t a_warp = int64_t{32} * numbers_a_pack,
                needed = (dim + a_warp - 1) / a_warp;  // vectors per lane if one warp had the row
  int warps = 1;
  while (warps < most_warps && (needed + warps - 1) / warps > 4) warps *= 2;
  const int64_t packs = (needed + warps - 1) / warps;
  HONE_CHECK(packs <= most_packs, "op ", op.name(), ": a row has ", dim, " elements; the maximum is ",
             a_warp * most_packs * most_warps);
  return {static_cast<int>(packs > 4 ? 6 : std::max<int64_t>(packs, 2)), warps};
}
// Calls body(packs, whole), both integral constants; packs is 2, 3, 4 or 6.
template <int most_packs, class Body>
void with_shape(RowShape shape, bool whole, Body body) {
  const auto with_packs = [&](auto constant) {
    if (shape.packs == 2) return body(std::integral_constant<int, 2>{}, constant);
    if (shape.packs == 3) return body(std::integral_constant<int, 3>{}, constant);
    if (shape.packs == 4) return body(std::integral_constant<int, 4>{}, constant);
    if constexpr (most_packs > 4) return body(std::integral_constant<int, 6>{}, constant);
  };
  whole ? with_packs(std::true_type{}) : with_packs(std::false_type{});
}

// True if a vector that all rows share can be read in 16-byte vectors as the rows are.
inline bool begins_pack(const Tensor& x) { return reinterpret_cast<uintptr_t>(x.data) % 16 == 0; }

// The thread's place: a block has one row for every `warps` adjacent warps.
struct RowThread {
  int row, thread, threads;
  __device__ explicit RowThread(int warps)
      : row(static_cast<int>(threadIdx.x) / (32 * warps)),
        thread(static_cast<int>(threadIdx.x) % (32 * warps)),
        threads(32 * warps) {}
};

__device__ inline uint32_t bits_of(float x) { return __float_as_uint(x); }
__device__ inline uint32_t bits_of(__nv_bfloat16 x) { return __bfloat16_as_ushort(x); }

// A row in global memory, accessed in 16-byte vectors. `whole`: each access moves 16 bytes, and dim is a multiple of N.
template <class T, bool whole>
struct NormRow {
  static constexpr int N = vec_size<T>;
  T* first;
  int dim;

  __device__ static uint32_t word(const float (&from)[N], int i) {
    return packed_word(from + i * (N / 4), std::remove_const_t<T>{});
  }
  // Elements from `column` on; zeros past the end.
  __device__ uint4 load(int column) const {
    if constexpr (whole) return column < dim ? *reinterpret_cast<const uint4*>(first + column) : uint4{};
    uint32_t word[4] = {};
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (column + j < dim) word[j * 4 / N] |= bits_of(first[column + j]) << (j % (N / 4) * 16);
    return {word[0], word[1], word[2], word[3]};
  }
  __device__ void store(int column, const float (&from)[N]) const {
    if constexpr (whole) {
      // No memory clobber: loads of the following vectors may be moved before the store.
      if (column < dim)
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(first + column), "r"(word(from, 0)),
                     "r"(word(from, 1)), "r"(word(from, 2)), "r"(word(from, 3)));
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j)
        if (column + j < dim) first[column + j] = from_f32<std::remove_const_t<T>>(from[j]);
    }
  }
};

__device__ inline void unpack(float (&to)[4], uint4 raw) {
  to[0] = __uint_as_float(raw.x);
  to[1] = __uint_as_float(raw.y);
  to[2] = __uint_as_float(raw.z);
  to[3] = __uint_as_float(raw.w);
}
__device__ inline void unpack(float (&to)[8], uint4 raw) {
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = __uint_as_float(words[i] << 16);
    to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

// A thread's part of a row: vectors thread, thread + threads, ...
template <class T, int P>
struct RowTile {
  static constexpr int N = vec_size<T>;
  uint4 pack[P];

  __device__ static int column(int p, RowThread at) { return (p * at.threads + at.thread) * N; }
  template <bool whole>
  __device__ void load(NormRow<const T, whole> row, RowThread at) {
#pragma unroll
    for (int p = 0; p < P; ++p) pack[p] = row.load(column(p, at));
  }
  __device__ void get(int p, float (&to)[N]) const { unpack(to, pack[p]); }
  // Makes the compiler unpack the elements again at their next use; packed they need half the registers.
  __device__ void forget_unpacked() {
    if constexpr (sizeof(T) < 4)
#pragma unroll
      for (int p = 0; p < P; ++p) asm volatile("" : "+r"(pack[p].x), "+r"(pack[p].y), "+r"(pack[p].z), "+r"(pack[p].w));
  }
};

// A thread's part of a row in shared memory. A thread reads only what it has copied, so it waits for its own copies and
// for no other thread.
template <class T, int P>
struct FetchedTile {
  static constexpr int N = vec_size<T>;
  uint4* first;  // first of P vectors, blockDim.x apart
  template <bool whole>
  __device__ void fetch(NormRow<const T, whole> row, RowThread at) const {
#pragma unroll
    for (int p = 0; p < P; ++p) {
      uint4* const to = first + p * blockDim.x;
      const int i = RowTile<T, P>::column(p, at);
      if constexpr (whole) {
        if (i < row.dim)
          cp_async(static_cast<uint32_t>(__cvta_generic_to_shared(to)), row.first + i);
        else
          *to = {};
      } else {
        *to = row.load(i);
      }
    }
  }
  __device__ void get(int p, float (&to)[N]) const { unpack(to, first[p * blockDim.x]); }
};
// Returns the sum over a row's threads in all of them; warps are added in ascending order. Rows of several warps use
// named barrier 1 + row. `shared` holds a float per warp of the block; it may be reused after the row's next barrier.
__device__ inline float row_sum(float x, RowThread at, float* shared) {
  x = warp_sum(x);
  if (at.threads == 32) return x;
  const int warp = static_cast<int>(threadIdx.x) / 32,
            first = static_cast<int>(threadIdx.x) / at.threads * (at.threads / 32);
  if (threadIdx.x % 32 == 0) shared[warp] = x;
  asm volatile("bar.sync %0, %1;" ::"r"(1 + at.row), "r"(at.threads) : "memory");
  float sum = 0;
  for (int w = 0; w < at.threads / 32; ++w) sum += shared[first + w];
  return sum;
}

}  // namespace hone
