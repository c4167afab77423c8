#pragma once
// Hopper instructions of the GEMM kernels: mbarriers, TMA copies, cluster exchange, wgmma. Compute capability 9.0 only.
// Only .cu and .cuh files include it.
//
// 128-byte swizzle. A tile has rows of 64 bf16 (128 bytes) in groups of 8 rows that are aligned to 1024 bytes. TMA
// stores 16-byte unit u of row r at unit u ^ (r % 8) of the row. Eight rows of one unit, or eight units of one row,
// then touch each bank once. Wider tiles are stored as several such tiles of 64 columns.
//
// wgmma accumulator d [64, N] over the 128 threads of a warpgroup: warp w holds rows 16 w .. 16 w + 15. Lane l holds
// rows 16 w + l / 4 and 16 w + l / 4 + 8. Register i is column i / 4 * 8 + l % 4 * 2 + i % 2; the second row if
// i / 2 % 2 is 1.
#include <cuda.h>

#include "kernels/cuda/mbarrier.cuh"
#include "kernels/cuda/pdl.cuh"

namespace hone::hopper {

using hone::named_barrier_sync;

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// mbarrier in shared memory. A phase completes when all its arrivals and all expected bytes have come.
struct Barrier : Mbarrier {
  // Arrives at the same barrier of another thread block of the cluster.
  __device__ void arrive_at(uint32_t block) {
    asm volatile(
        "{\n.reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(address()),
        "r"(block)
        : "memory");
  }
  __device__ void arrive_expect_tx(uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes) : "memory");
  }
};
__device__ inline void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline uint32_t block_rank_in_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// Maps a shared-memory address of this thread block to the same address of thread block `block` of the cluster.
__device__ inline uint32_t map_to_cluster_block(uint32_t block, uint32_t address) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}
// Stores x to the shared memory of a thread block of the cluster; `to` and `barrier` come from map_to_cluster_block().
// The bytes count at that barrier, whose completion makes them visible. No fence is needed. Earlier accesses of the
// thread are not ordered.
__device__ inline void send(uint32_t to, float x, uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
               "r"(__float_as_uint(x)), "r"(barrier)
               : "memory");
}
__device__ inline void send(uint32_t to, uint4 x, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(barrier)
      : "memory");
}
// True in one lane of a full warp. The compiler knows that it is a single lane, so TMA copies need no loop over lanes.
__device__ inline bool elect() {
  uint32_t yes;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(yes)::"memory");
  return yes != 0;
}
// TMA load of the box at (column, row) into shared memory. Its bytes count at the barrier.
__device__ inline void tma_load(void* to, const CUtensorMap& map, Barrier& barrier, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          shared_address(to)),
      "l"(&map), "r"(shared_address(&barrier.word)), "r"(column), "r"(row)
      : "memory");
}
// The same for a tensor of three dimensions; coordinates from the innermost dimension outward.
__device__ inline void tma_load(void* to, const CUtensorMap& map, Barrier& barrier, int first, int second, int third) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&barrier.word)), "r"(first), "r"(second), "r"(third)
      : "memory");
}
// TMA load to the same address of every thread block in `mask`; the bytes count at the barrier of each.
__device__ inline void tma_load_multicast(void* to, const CUtensorMap& map, Barrier& barrier, int column, int row,
                                          uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, "
      "%4}], [%2], %5;" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&barrier.word)), "r"(column), "r"(row), "h"(mask)
      : "memory");
}
// TMA store of a box in shared memory to (column, row). It joins the thread's current bulk group.
__device__ inline void tma_store(const CUtensorMap& map, const void* from, int column, int row) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(column), "r"(row)
               : "memory");
}
__device__ inline void tma_store(const CUtensorMap& map, const void* from, int first, int second, int third) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(first), "r"(second), "r"(third)
               : "memory");
}
__device__ inline void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Returns when the thread's TMA stores have read shared memory; it may then be overwritten.
__device__ inline void tma_store_wait() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ inline void prefetch_tensor_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// Orders earlier ordinary accesses to shared memory before later accesses of TMA and wgmma (the async proxy).
__device__ inline void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

template <int Registers>
__device__ inline void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ inline void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

// wgmma descriptor of a tile with the 128-byte swizzle (see above). leading: bytes between adjacent tiles of 64 columns
// if columns are the operand's outer dimension (MN-major); unused otherwise.
__device__ inline uint64_t smem_descriptor(uint32_t tile, uint32_t leading = 16) {
  return uint64_t{1} << 62 | uint64_t{1024 >> 4} << 32 | uint64_t{leading >> 4} << 16 | (tile >> 4 & 0x3fff);
}
__device__ inline uint64_t smem_descriptor(const void* tile, uint32_t leading = 16) {
  return smem_descriptor(shared_address(tile), leading);
}
// The descriptor `bytes` further into the tile.
__device__ inline uint64_t further(uint64_t descriptor, uint32_t bytes) {
  return (descriptor & 0xffffffff00000000) | (static_cast<uint32_t>(descriptor) + (bytes >> 4));
}
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
// Keeps the compiler from moving accesses of these registers across: wgmma reads and writes them asynchronously.
template <int N>
__device__ inline void wgmma_fence_registers(float (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

// d [64, N] = (add ? d : 0) + a [64, 16] . b [N, 16]^T, both in shared memory; N / 2 accumulator registers a thread.
// Operands are K-major. The widths 128 and 192 also take MN-major ones (rows of K contiguous along the other
// dimension).
#define HONE_R8(i)                                                                                            \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define HONE_R32(i) HONE_R8(i), HONE_R8(i + 8), HONE_R8(i + 16), HONE_R8(i + 24)
__device__ inline void wgmma_ss(float (&d)[8], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\nwgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7"
      "}, %8, %9, p, 1, 1, 0, 0;\n}"
      : HONE_R8(0)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}
__device__ inline void wgmma_ss(float (&d)[16], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
      "}, %16, %17, p, 1, 1, 0, 0;\n}"
      : HONE_R8(0), HONE_R8(8)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}
__device__ inline void wgmma_ss(float (&d)[32], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%"
      "30,%31"
      "}, %32, %33, p, 1, 1, 0, 0;\n}"
      : HONE_R32(0)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}
template <bool a_mn_major = false, bool b_mn_major = false>
__device__ inline void wgmma_ss(float (&d)[64], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%"
      "30,%31,%32,%33,%34,%35,%36,%37,"
      "%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
      "}, %64, %65, p, 1, 1, %67, %68;\n}"
      : HONE_R32(0), HONE_R32(32)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(static_cast<int>(a_mn_major)),
        "n"(static_cast<int>(b_mn_major)));
}
__device__ inline void wgmma_ss(float (&d)[80], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %82, 0;\nwgmma.mma_async.sync.aligned.m64n160k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%"
      "30,%31,%32,%33,%34,%35,%36,"
      "%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,"
      "%65,%66,%67,%68,%69,%70,"
      "%71,%72,%73,%74,%75,%76,%77,%78,%79"
      "}, %80, %81, p, 1, 1, 0, 0;\n}"
      : HONE_R32(0), HONE_R32(32), HONE_R8(64), HONE_R8(72)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}
template <bool a_mn_major = false, bool b_mn_major = false>
__device__ inline void wgmma_ss(float (&d)[96], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\nwgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%"
      "30,%31,%32,%33,%34,%35,%36,%37,"
      "%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,"
      "%66,%67,%68,%69,%70,%71,%72,%"
      "73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
      "}, %96, %97, p, 1, 1, %99, %100;\n}"
      : HONE_R32(0), HONE_R32(32), HONE_R32(64)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(static_cast<int>(a_mn_major)),
        "n"(static_cast<int>(b_mn_major)));
}
#undef HONE_R32
#undef HONE_R8

// Four 8 x 8 matrices of bf16 between a warp's fragments and shared memory; lane l passes
// the address of row l % 8 of matrix l / 8.
__device__ inline void stmatrix_x4(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}
__device__ inline void ldmatrix_x4(uint32_t from, uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(from)
               : "memory");
}
// Rounds two f32 to bf16; `low` goes to the lower half.
__device__ inline uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ inline float low_bf16(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float high_bf16(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

}  // namespace hone::hopper
