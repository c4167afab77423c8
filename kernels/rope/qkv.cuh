#pragma once
// How lanes hold heads in qkv_forward and qkv_backward on a GPU. A head is spread over adjacent lanes in items of P
// elements. An item of the rotated part also holds its partners: half a rotary_dim further, or every other one of 2 P
// adjacent elements if pairs are interleaved. Dtypes and dimensions alone decide the layout, and so the bits.
#include "kernels/cuda/cuda.cuh"
#include "kernels/rope/qkv.h"

namespace hone {

struct HeadLayout {
  int dim = 0, half = 0;         // half: rotary_dim / 2
  int pairs = 0, items = 0;      // items of the rotated part; items of the head
  int lanes = 1, lane_bits = 0;  // lanes per head, a power of two
  bool packed = false;           // items can be moved as 16-byte vectors
  bool interleaved = false;      // pairs are (2i, 2i + 1)
  __device__ int lane() const { return static_cast<int>(threadIdx.x) & (lanes - 1); }
  __device__ int group() const { return static_cast<int>(threadIdx.x) >> lane_bits; }
  __host__ __device__ int groups() const;  // lane groups per block
  __device__ bool is_pair(int item) const { return item < pairs; }
  template <int P>
  __device__ int element(int item) const {
    if (item >= pairs) return 2 * half + (item - pairs) * P;
    return interleaved ? 2 * item * P : item * P;
  }
  // From the first vector of an item of the rotated part to the second.
  template <int P>
  __device__ int second() const {
    return interleaved ? P : half;
  }
};

constexpr int qkv_threads = 256;
__host__ __device__ inline int HeadLayout::groups() const { return qkv_threads >> lane_bits; }

// One lane's part of a head: [item][first or partner][element].
template <int P, int N>
using HeadPart = float[N][2][P];

// The same as stored in memory. A lane loads everything before it converts anything: a conversion between two loads
// would wait for the first.
template <class T, int P, int N>
struct StoredPart {
  Pack<T, P> item[N][2];
};

template <class T, int P>
__device__ inline Pack<T, P> load_item(const T* from, bool packed) {
  if (P > 1 && packed) return *reinterpret_cast<const Pack<T, P>*>(from);
  Pack<T, P> out;
#pragma unroll
  for (int i = 0; i < P; ++i) out.value[i] = from[i];
  return out;
}
template <int P, class T>
__device__ inline void store_item(T* to, const float (&from)[P], bool packed) {
  if (P > 1 && packed) {
    store_vec(to, from);
  } else {
#pragma unroll
    for (int i = 0; i < P; ++i) to[i] = from_f32<T>(from[i]);
  }
}

// Elements that this lane does not hold are zero.
template <int P, int N, class T>
__device__ inline StoredPart<T, P, N> load_head(const T* from, const HeadLayout& layout, int lane, bool inside) {
  StoredPart<T, P, N> out{};
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const int item = lane + n * layout.lanes;
    const T* const first = from + layout.element<P>(item);
    if (inside && item < layout.items) out.item[n][0] = load_item<T, P>(first, layout.packed);
    if (inside && layout.is_pair(item)) out.item[n][1] = load_item<T, P>(first + layout.second<P>(), layout.packed);
  }
  return out;
}
// Between two vectors as stored and the first elements and partners of pairs. Nothing to do unless the item has
// interleaved pairs.
template <int P>
__device__ inline void split_pairs(float (&first)[P], float (&second)[P]) {
  float all[2 * P];
#pragma unroll
  for (int i = 0; i < P; ++i) {
    all[i] = first[i];
    all[P + i] = second[i];
  }
#pragma unroll
  for (int i = 0; i < P; ++i) {
    first[i] = all[2 * i];
    second[i] = all[2 * i + 1];
  }
}
template <int P>
__device__ inline void join_pairs(float (&first)[P], float (&second)[P]) {
  float all[2 * P];
#pragma unroll
  for (int i = 0; i < P; ++i) {
    all[2 * i] = first[i];
    all[2 * i + 1] = second[i];
  }
#pragma unroll
  for (int i = 0; i < P; ++i) {
    first[i] = all[i];
    second[i] = all[P + i];
  }
}

template <int P, int N, class T>
__device__ inline void convert(HeadPart<P, N>& to, const StoredPart<T, P, N>& from, const HeadLayout& layout,
                               int lane) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int side = 0; side < 2; ++side)
#pragma unroll
      for (int i = 0; i < P; ++i) to[n][side][i] = to_f32(from.item[n][side].value[i]);
    if (P > 1 && layout.interleaved && layout.is_pair(lane + n * layout.lanes)) split_pairs(to[n][0], to[n][1]);
  }
}
// A copy of one item as it is stored.
template <int P>
struct StoredItem {
  float first[P], second[P];
  __device__ StoredItem(const float (&item)[2][P], const HeadLayout& layout, bool is_pair) {
#pragma unroll
    for (int i = 0; i < P; ++i) {
      first[i] = item[0][i];
      second[i] = item[1][i];
    }
    if (P > 1 && layout.interleaved && is_pair) join_pairs(first, second);
  }
};
template <int P, int N, class T>
__device__ inline void store_head(T* to, const HeadPart<P, N>& from, const HeadLayout& layout, int lane) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const int item = lane + n * layout.lanes;
    const StoredItem<P> stored(from[n], layout, layout.is_pair(item));
    T* const at = to + layout.element<P>(item);
    if (item < layout.items) store_item<P>(at, stored.first, layout.packed);
    if (layout.is_pair(item)) store_item<P>(at + layout.second<P>(), stored.second, layout.packed);
  }
}

// Cosines and sines of the pairs that this lane holds. cos_sin: the position's row.
template <int P, int N>
struct Angles {
  float cos[N][P], sin[N][P];
};
template <int P, int N>
__device__ inline Angles<P, N> load_angles(const float* cos_sin, const HeadLayout& layout, int lane, bool inside) {
  constexpr int at_once = P < 4 ? P : 4;
  Angles<P, N> out;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const int item = lane + n * layout.lanes;
    if (!inside || !layout.is_pair(item)) continue;
#pragma unroll
    for (int c = 0; c < P; c += at_once) {
      const auto cos = load_item<float, at_once>(cos_sin + item * P + c, layout.packed);
      const auto sin = load_item<float, at_once>(cos_sin + layout.half + item * P + c, layout.packed);
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        out.cos[n][c + i] = cos.value[i];
        out.sin[n][c + i] = sin.value[i];
      }
    }
  }
  return out;
}
__device__ inline void rotate(float& a, float& b, float cos, float sin) {
  const float first = a, second = b;
  a = fmaf(first, cos, -second * sin);
  b = fmaf(second, cos, first * sin);
}
// Rotates pairs by +angle (sign 1), or by -angle (sign -1), the transpose, for backward.
template <int P, int N>
__device__ inline void rotate_head(HeadPart<P, N>& x, const Angles<P, N>& angles, const HeadLayout& layout, int lane,
                                   float sign) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
    if (!layout.is_pair(lane + n * layout.lanes)) continue;
#pragma unroll
    for (int i = 0; i < P; ++i) rotate(x[n][0][i], x[n][1][i], angles.cos[n][i], sign * angles.sin[n][i]);
  }
}

// Sum over the lanes of a head; all lanes of the warp call it.
__device__ inline float head_sum(float x, int lanes) {
  for (int l = lanes / 2; l > 0; l /= 2) x += __shfl_xor_sync(0xffffffffu, x, l);
  return x;
}

// Heads of one token that a lane group computes at once, with the same angles.
template <int N>
constexpr int heads_at_once = N == 1 ? 2 : 1;

// The heads of blockIdx.x: chunks of q heads, then k heads, then v heads.
struct HeadChunk {
  int first, count;  // head indices among those of their kind
  int column;        // index of the first one among all heads of a token
  bool is_query, is_value;
  __device__ HeadChunk(int heads, int kv_heads, int at_once) {
    const int q_chunks = (heads + at_once - 1) / at_once, kv_chunks = (kv_heads + at_once - 1) / at_once;
    int chunk = static_cast<int>(blockIdx.x);
    is_query = chunk < q_chunks;
    is_value = chunk >= q_chunks + kv_chunks;
    if (!is_query) chunk -= is_value ? q_chunks + kv_chunks : q_chunks;
    first = chunk * at_once;
    count = min((is_query ? heads : kv_heads) - first, at_once);
    column = first + (is_query ? 0 : is_value ? heads + kv_heads : heads);
  }
};
// Adjacent blocks compute adjacent heads of the same tokens. kv: 1 for k, 2 for k and v.
inline dim3 chunk_grid(const HeadLayout& layout, const QkvShape& shape, int at_once, int kv, int tokens) {
  const auto chunks = [&](int64_t heads) { return static_cast<unsigned>((heads + at_once - 1) / at_once); };
  return dim3(chunks(shape.num_heads) + static_cast<unsigned>(kv) * chunks(shape.num_kv_heads),
              static_cast<unsigned>((tokens - 1) / layout.groups() + 1));
}
inline int num_tokens(const OpBase& op, const Tensor& qkv) {
  HONE_CHECK(qkv.dim(0) < 65536 * 8, "op ", op.name(), ": ", qkv.dim(0), " tokens; the maximum on cuda is ",
             65536 * 8 - 1);
  return static_cast<int>(qkv.dim(0));
}

inline bool on_16_bytes(const Tensor& x) {
  return !x || (reinterpret_cast<uintptr_t>(x.data) % 16 == 0 &&
                static_cast<size_t>(x.row_stride) * size_of(x.dtype) % 16 == 0);
}

inline HeadLayout head_layout(const QkvShape& shape, int per_item, bool packed) {
  HeadLayout out;
  out.dim = static_cast<int>(shape.head_dim);
  out.half = static_cast<int>(shape.rotary_dim / 2);
  out.packed = packed;
  out.interleaved = shape.interleaved;
  out.pairs = out.half / per_item;
  out.items = out.pairs + (out.dim - 2 * out.half) / per_item;
  while (out.lanes < 32 && out.lanes < out.items) out.lanes = 1 << ++out.lane_bits;
  return out;
}

// Calls body(T{}, P, N, layout) with P and N as integral constants. Items are 16 bytes if the head dimension and the
// rotated part are multiples of them, else one element.
template <class Body>
void with_head_layout(const OpBase& op, DType dtype, const QkvShape& shape, bool packed, Body body) {
  with_storage(op, dtype, [&](auto type) {
    constexpr int pack = vec_size<decltype(type)>;
    if (shape.head_dim % pack == 0 && shape.rotary_dim % (2 * pack) == 0) {
      const HeadLayout layout = head_layout(shape, pack, packed);
      if (layout.items <= 32)
        return body(type, std::integral_constant<int, pack>(), std::integral_constant<int, 1>(), layout);
      if (layout.items <= 64)
        return body(type, std::integral_constant<int, pack>(), std::integral_constant<int, 2>(), layout);
    }
    const HeadLayout layout = head_layout(shape, 1, false);
    HONE_CHECK(layout.items <= 32 * 8, "op ", op.name(), ": head dimension ", shape.head_dim, " with rotary_dim ",
               shape.rotary_dim, " is too large for cuda");
    body(type, std::integral_constant<int, 1>(), std::integral_constant<int, 8>(), layout);
  });
}

}  // namespace hone
