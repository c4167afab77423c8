#pragma once
// wgmma with the left operand in registers. Compute capability 9.0 only. Only .cu and .cuh files include it.
#include "kernels/cuda/hopper.cuh"

namespace hone::hopper {

// d [64, N] = (add ? d : 0) + a [64, 16] . b [N, 16]^T. a is in registers: warp w has rows 16 w .. 16 w + 15 in the A
// fragment layout of mma.sync m16n8k16. b is in shared memory (smem_descriptor()). d as in wgmma_ss().
#define HONE_R8(i)                                                                                            \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define HONE_R32(i) HONE_R8(i), HONE_R8(i + 8), HONE_R8(i + 16), HONE_R8(i + 24)
#define HONE_LEFT "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add))
__device__ inline void wgmma_rs(float (&d)[8], const uint32_t* a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\nwgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7"
      "}, {%8,%9,%10,%11}, %12, p, 1, 1, 0;\n}"
      : HONE_R8(0)
      : HONE_LEFT);
}
__device__ inline void wgmma_rs(float (&d)[16], const uint32_t* a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
      "}, {%16,%17,%18,%19}, %20, p, 1, 1, 0;\n}"
      : HONE_R8(0), HONE_R8(8)
      : HONE_LEFT);
}
__device__ inline void wgmma_rs(float (&d)[32], const uint32_t* a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%"
      "30,%31"
      "}, {%32,%33,%34,%35}, %36, p, 1, 1, 0;\n}"
      : HONE_R32(0)
      : HONE_LEFT);
}
__device__ inline void wgmma_rs(float (&d)[64], const uint32_t* a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%"
      "30,%31,%32,%33,%34,%35,%36,%37,"
      "%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
      "}, {%64,%65,%66,%67}, %68, p, 1, 1, 0;\n}"
      : HONE_R32(0), HONE_R32(32)
      : HONE_LEFT);
}
#undef HONE_LEFT
#undef HONE_R32
#undef HONE_R8

template <int N>
__device__ inline void wgmma_fence_registers(uint32_t (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(x[i])::"memory");
}

}  // namespace hone::hopper
