#pragma once
// mbarriers in shared memory, with the instructions of compute capability 8.0; hopper.cuh adds those of 9.0. A phase
// completes when all its arrivals have come. Only .cu and .cuh files include it.
#include "kernels/cuda/cuda.cuh"

namespace hone {

struct Mbarrier {
  uint64_t word;
  __device__ uint32_t address() const { return static_cast<uint32_t>(__cvta_generic_to_shared(&word)); }
  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  __device__ void arrive() { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address()) : "memory"); }
  // `times` arrivals; compute capability 9.0 has an instruction for them.
  __device__ void arrive(uint32_t times) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.shared.b64 _, [%0], %1;" ::"r"(address()), "r"(times) : "memory");
#else
    for (uint32_t i = 0; i < times; ++i) arrive();
#endif
  }
  // Arrives when the cp.async copies that this thread has issued have landed.
  __device__ void arrive_after_copies() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address()) : "memory");
  }
  __device__ bool done(uint32_t parity) {
    uint32_t yes;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(yes)
                 : "r"(address()), "r"(parity)
                 : "memory");
    return yes != 0;
  }
  // Returns once the phase of that parity has completed.
  __device__ void wait(uint32_t parity) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n.reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
        "@!done bra again;\n}" ::"r"(address()),
        "r"(parity)
        : "memory");
#else
    while (!done(parity)) {}
#endif
  }
};

// Position in a ring of pipeline stages, and the mbarrier parity of the current lap.
template <int Stages>
struct RingPlace {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void next() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Broadcasts lane 0's value, which all lanes already have. The compiler then knows that it is warp-uniform: descriptor
// arithmetic and branches need no vector instructions.
__device__ inline int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

// Barrier of `threads` threads of the thread block. Id 0 is that of __syncthreads().
__device__ inline void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace hone
