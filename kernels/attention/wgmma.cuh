#pragma once
// Hopper instructions of attention beyond hopper.cuh: rings of pipeline stages and wgmma
// variants with operands in registers or MN-major. Accumulators and swizzle: hopper.cuh.
#include "kernels/cuda/hopper.cuh"

namespace hone::sm90 {

using hone::RingPlace;
using hone::uniform;
using hopper::Barrier;
using hopper::fence_async_proxy;
using hopper::fence_mbarrier_init;
using hopper::further;
using hopper::griddep_launch_dependents;
using hopper::griddep_wait;
using hopper::pack_bf16;
using hopper::prefetch_tensor_map;
using hopper::setmaxnreg_dec;
using hopper::setmaxnreg_inc;
using hopper::shared_address;
using hopper::smem_descriptor;
using hopper::tma_load;
using hopper::wgmma_commit;
using hopper::wgmma_fence;
using hopper::wgmma_fence_registers;
using hopper::wgmma_ss;
using hopper::wgmma_wait;

// Named barriers. Id 0 is that of __syncthreads().
__device__ inline void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

template <int N>
__device__ inline void wgmma_fence_registers(uint32_t (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(x[i])::"memory");
}

#define HONE_R8(x, i)                                                                                         \
  "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3]), "+f"(x[i + 4]), "+f"(x[i + 5]), "+f"(x[i + 6]), \
      "+f"(x[i + 7])
#define HONE_R32(x, i) HONE_R8(x, i), HONE_R8(x, i + 8), HONE_R8(x, i + 16), HONE_R8(x, i + 24)
#define HONE_REGISTERS_32                                                                                              \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30," \
  "%31"
#define HONE_REGISTERS_64                                                                                              \
  HONE_REGISTERS_32                                                                                                    \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%" \
  "60,%61,%62,%63"

// c [64, 64] = (add ? c : 0) + a [16, 64]^T . b [16, 64]; both operands MN-major (rows contiguous).
__device__ inline void wgmma_k_major(float (&c)[32], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{" HONE_REGISTERS_32 "}, %32, %33, p, 1, 1, 1, 1;\n}"
      : HONE_R32(c, 0)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}
// c [64, 128] = (add ? c : 0) + a [64, 16] . b [128, 16]^T; a in registers, b K-major.
__device__ inline void wgmma_mn_major(float (&c)[64], const uint32_t* a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{" HONE_REGISTERS_64 "}, {%64,%65,%66,%67}, %68, p, 1, 1, 0;\n}"
      : HONE_R32(c, 0), HONE_R32(c, 32)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}
// c [64, 128 or 64] = (add ? c : 0) + a [64, 16] . b [16, 128 or 64]; a in registers, b MN-major (rows contiguous).
__device__ inline void wgmma_rs(float (&c)[64], const uint32_t* a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{" HONE_REGISTERS_64 "}, {%64,%65,%66,%67}, %68, p, 1, 1, 1;\n}"
      : HONE_R32(c, 0), HONE_R32(c, 32)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}
__device__ inline void wgmma_rs(float (&c)[32], const uint32_t* a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{" HONE_REGISTERS_32 "}, {%32,%33,%34,%35}, %36, p, 1, 1, 1;\n}"
      : HONE_R32(c, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}

#undef HONE_REGISTERS_64
#undef HONE_REGISTERS_32
#undef HONE_R32
#undef HONE_R8

// Loads four 8 x 8 matrices of bf16 from shared memory; lane l passes the address of row l % 8 of matrix l / 8.
__device__ inline void ldmatrix_x4(uint32_t* to, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
}  // namespace hone::sm90
