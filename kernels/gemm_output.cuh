#pragma once
// What becomes of the totals of a product with few rows of x. A tile is two runs of `half` rows of w each, and one thread finishes row r of both,
// for one row m of x (`count` neighbours r at a time), so that an output may need a pair. .cu files alone include it.
//
// An output is a struct that is passed to a kernel by value:
//   static constexpr bool neighbours;                     whether the second run follows the first, and nothing needs a pair
//   template <int half> int tiles() const;
//   template <int half> int2 runs(int tile) const;        the first rows of w of both runs; rows that w has not are never stored
//   template <int half, int count> Extra<count> fetch(m, tile, r) const;   what is added or needed beside, read ahead of the totals
//   template <int half, int count> void store(first, second, Extra<count>, m, tile, r) const;
#include "kernels/activation.cuh"
#include "kernels/gemm_epilogue.cuh"
#include "kernels/qkv.cuh"

namespace hone {

// y, as gemm_forward has it; count is 1.
struct GemmPlain {
  static constexpr bool neighbours = true;
  GemmEpilogue to;
  int N;
  bool pairs;  // y can be written two numbers at a time

  template <int>
  struct Extra {
    GemmEpilogue::Extra first{}, second{};
  };
  template <int half>
  __host__ __device__ int tiles() const {
    return (N + 2 * half - 1) / (2 * half);
  }
  template <int half>
  __device__ int2 runs(int tile) const {
    return {tile * 2 * half, tile * 2 * half + half};
  }
  template <int half, int count>
  __device__ Extra<count> fetch(int m, int tile, int r) const {
    const int2 n = runs<half>(tile);
    Extra<count> out;
    if (n.x + r < N) out.first = to.fetch(m, n.x + r);
    if (n.y + r < N) out.second = to.fetch(m, n.y + r);
    return out;
  }
  template <int half, int count>
  __device__ void store(const float (&first)[count], const float (&second)[count], const Extra<count>& extra, int m, int tile, int r) const {
    const int2 n = runs<half>(tile);
    if (n.x + r < N) to.put(to.finish(first[0], extra.first), m, n.x + r);
    if (n.y + r < N) to.put(to.finish(second[0], extra.second), m, n.y + r);
  }
};

// What the fused outputs share: totals + bias, rounded to bf16 as the product by itself would be.
template <int count>
struct PairBias {
  float first[count] = {}, second[count] = {};
  __device__ static PairBias fetch(const __nv_bfloat16* bias, int2 n, int r) {
    PairBias out;
    if (bias) load_pack(out.first, bias + n.x + r), load_pack(out.second, bias + n.y + r);
    return out;
  }
};
__device__ inline float rounded_sum(float total, float bias, bool has_bias) {
  return __bfloat162float(__float2bfloat16_rn(has_bias ? total + bias : total));
}

// y [M, F] = silu(gate) * up: rows of gate are run by run with their rows of up. F is a multiple of 8.
struct GemmGated {
  static constexpr bool neighbours = false;
  __nv_bfloat16* y;
  const __nv_bfloat16* bias;
  int64_t y_stride;
  int F;

  template <int count>
  using Extra = PairBias<count>;
  template <int half>
  __host__ __device__ int tiles() const {
    return (F + half - 1) / half;
  }
  template <int half>
  __device__ int2 runs(int tile) const {
    return {tile * half, F + tile * half};
  }
  template <int half, int count>
  __device__ Extra<count> fetch(int, int tile, int r) const {
    return Extra<count>::fetch(tile * half + r < F ? bias : nullptr, runs<half>(tile), r);
  }
  template <int half, int count>
  __device__ void store(const float (&first)[count], const float (&second)[count], const Extra<count>& extra, int m, int tile, int r) const {
    const int column = tile * half + r;
    if (column >= F) return;
    float out[count];
#pragma unroll
    for (int i = 0; i < count; ++i) out[i] = swiglu(rounded_sum(first[i], extra.first[i], bias), rounded_sum(second[i], extra.second[i], bias));
    store_pack(y + m * y_stride + column, out);
  }
};

// q [M, H, d], and k and v in the cache: the halves of a head that rotate together are a pair of runs. d is a multiple of 64, and all of it rotates.
struct GemmHeads {
  static constexpr bool neighbours = false;
  __nv_bfloat16 *q, *k, *v;  // k and v: the cache's
  const __nv_bfloat16* bias;
  const float* cos_sin;
  const int32_t *positions, *slots;
  int64_t q_stride, k_stride, v_stride, cos_sin_stride;
  int heads, kv_heads, dim;

  template <int count>
  struct Extra {
    PairBias<count> bias;
    float cos[count], sin[count];
    __nv_bfloat16* to = nullptr;  // the first of the pair; none beyond the last head
    int partner;                  // how far behind it the other is
    bool rotates;
  };
  template <int half>
  __host__ __device__ int tiles() const {
    return (heads + 2 * kv_heads) * (dim / (2 * half));
  }
  // A tile within its head.
  template <int half>
  struct Place {
    int head, column, partner;
    bool rotates;
    __device__ Place(const GemmHeads& of, int tile) {
      const int a_head = of.dim / (2 * half), j = tile % a_head;
      head = tile / a_head, rotates = head < of.heads + of.kv_heads;
      column = rotates ? j * half : j * 2 * half, partner = rotates ? of.dim / 2 : half;
    }
  };
  template <int half>
  __device__ int2 runs(int tile) const {
    const Place<half> at(*this, tile);
    return {at.head * dim + at.column, at.head * dim + at.column + at.partner};
  }
  template <int half, int count>
  __device__ Extra<count> fetch(int m, int tile, int r) const {
    const Place<half> at(*this, tile);
    Extra<count> out;
    if (at.head >= heads + 2 * kv_heads) return out;
    out.bias = PairBias<count>::fetch(bias, runs<half>(tile), r);
    if (at.rotates) {
      const float* angles = cos_sin + positions[m] * cos_sin_stride + at.column + r;
      load_pack(out.cos, angles), load_pack(out.sin, angles + at.partner);
    }
    if (at.head < heads)
      out.to = q + m * q_stride + at.head * dim;
    else if (at.rotates)
      out.to = k + slots[m] * k_stride + (at.head - heads) * dim;
    else
      out.to = v + slots[m] * v_stride + (at.head - heads - kv_heads) * dim;
    out.to += at.column + r, out.partner = at.partner, out.rotates = at.rotates;
    return out;
  }
  template <int half, int count>
  __device__ void store(const float (&first)[count], const float (&second)[count], const Extra<count>& extra, int, int, int) const {
    if (!extra.to) return;
    float a[count], b[count];
#pragma unroll
    for (int i = 0; i < count; ++i) {
      a[i] = rounded_sum(first[i], extra.bias.first[i], bias), b[i] = rounded_sum(second[i], extra.bias.second[i], bias);
      if (extra.rotates) rotate(a[i], b[i], extra.cos[i], extra.sin[i]);
    }
    store_pack(extra.to, a);
    store_pack(extra.to + extra.partner, b);
  }
};

}  // namespace hone
