#pragma once
// Tensor core instructions of compute capability 8.0 and later for one warp. Only .cu and .cuh files include it.
//
// mma_bf16 multiplies 16 x 16 by 16 x 8 bf16 and adds to f32. A lane holds rows lane / 4 (elements 0, 1) and
// lane / 4 + 8 (elements 2, 3) of columns 2 (lane % 4) and 2 (lane % 4) + 1 of the accumulator.
// ldmatrix_x4 loads four 8 x 8 matrices of bf16. Lanes 8 i to 8 i + 7 pass the addresses of the rows of matrix i.
#include "kernels/cuda/cuda.cuh"

namespace hone::mma {

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ inline void ldmatrix_x4(uint32_t from, uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(from)
               : "memory");
}
// The same with each matrix transposed.
__device__ inline void ldmatrix_x4_transposed(uint32_t from, uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(from)
               : "memory");
}
// d += a . b over a K step of 16.
__device__ inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace hone::mma
