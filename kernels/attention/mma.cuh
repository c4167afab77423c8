#pragma once
// Tensor core instructions of one warp (mma.sync m16n8k16, bf16 operands, f32 accumulators) and their shared-memory
// tiles.
//
// Accumulator layout: a lane holds rows lane / 4 (elements 0, 1) and lane / 4 + 8 (elements 2, 3) of columns
// 2 (lane % 4) and 2 (lane % 4) + 1.
// Tile layout: rows of U units of 16 bytes, U a multiple of 8. Unit u of row r lies at unit u ^ (r % 8). Eight rows of
// one unit, or eight units of one row, touch each bank once.
#include "kernels/attention/call.cuh"

namespace hone::attention {

using Bf16 = __nv_bfloat16;

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

template <int U>
__device__ inline uint32_t unit_at(uint32_t tile, int row, int unit) {
  return tile + static_cast<uint32_t>(row * U + (unit ^ (row & 7))) * 16;
}

__device__ inline void ldmatrix_x4(uint32_t (&to)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
__device__ inline void ldmatrix_x4(uint32_t (&to)[2], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(from)
               : "memory");
}
__device__ inline void ldmatrix_x4_trans(uint32_t (&to)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
__device__ inline void mma_m16n8k16(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Addresses that each lane passes to ldmatrix_x4.
// 16 rows x 16 columns as the left operand:
template <int U>
__device__ inline uint32_t left_at(uint32_t tile, int row, int unit, int lane) {
  return unit_at<U>(tile, row + lane % 16, unit + lane / 16);
}
// 16 rows x 16 columns whose rows are output columns (keys in q . k): registers 0, 1 are rows 0 to 7, registers 2, 3
// rows 8 to 15:
template <int U>
__device__ inline uint32_t right_at(uint32_t tile, int row, int unit, int lane) {
  return unit_at<U>(tile, row + lane % 8 + lane / 16 * 8, unit + lane / 8 % 2);
}
// 16 rows x 16 columns whose rows are the reduction dimension (keys in p . v), transposed: registers 0, 1 are columns
// 0 to 7, registers 2, 3 columns 8 to 15:
template <int U>
__device__ inline uint32_t summed_at(uint32_t tile, int row, int unit, int lane) {
  return unit_at<U>(tile, row + lane % 16, unit + lane / 16);
}

// `low` goes to the lower half.
__device__ inline uint32_t pack_bf16(float low, float high) {
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// The four lanes of an accumulator row exchange words: before, word i of lane t is word t of the row's unit i (16
// bytes); after, lane t has the four words of unit t.
__device__ inline void exchange_quad(uint32_t (&x)[4], int lane) {
#pragma unroll
  for (int step = 1; step < 4; step *= 2)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (!(i & step)) {
        const bool high = lane & step;
        const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? x[i] : x[i | step], step);
        (high ? x[i] : x[i | step]) = got;
      }
}

// mbarriers of capability 8.0, by shared-memory address. A phase ends when `count` arrivals have come; await_phase()
// returns when the phase of this parity has ended.
__device__ inline void init_barrier(uint32_t at, uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
__device__ inline void arrive_at(uint32_t at) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(at) : "memory");
}
// Arrives when the thread's cp.async copies so far have landed.
__device__ inline void arrive_with_copies(uint32_t at) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at) : "memory");
}
__device__ inline void await_phase(uint32_t at, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nwait:\nmbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n@!done bra wait;\n}" ::"r"(at),
      "r"(parity)
      : "memory");
}

// Calls body(P{}) with the first plan P whose shared memory a thread block of the device may have; the last plan fits
// every device.
template <class P, class... Rest, class Body>
void with_fitting_plan(const DeviceLimits& limits, Body body) {
  if constexpr (sizeof...(Rest) > 0)
    if (P::bytes + P::static_bytes > limits.shared_per_block) return with_fitting_plan<Rest...>(limits, body);
  body(P{});
}

// Rounds the head dimension up to 64, 128 or 256 and calls body(width). Shared memory is padded with zeros, which
// change no sum.
template <class Body>
void with_width(int dim, Body body) {
  if (dim <= 64) return body(std::integral_constant<int, 64>{});
  if (dim <= 128) return body(std::integral_constant<int, 128>{});
  body(std::integral_constant<int, 256>{});
}

inline bool reads_in_units(const Tensor& x) {
  return x.row_stride % 8 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}
inline bool has_units(const Tensor& q) { return q.dtype == DType::bf16 && q.dim(2) % 8 == 0 && q.dim(2) <= 256; }

// True if a sequence with this many tokens of a paged call is decoded (decode.cuh), false if it is computed in query
// tiles (tiles.cu). Both give the same bits.
__host__ __device__ inline int decoded_rows(int group) { return (group + 15) / 16 * 16; }
__host__ __device__ inline bool decodes(int tokens, int group) { return tokens * group <= decoded_rows(group); }

void launch_tiles(Context& context, const AttentionCall<Bf16>& call);

}  // namespace hone::attention
