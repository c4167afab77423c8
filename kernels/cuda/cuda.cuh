#pragma once
// Common parts of all CUDA bodies. Only .cu and .cuh files include it.
//
// A body checks its arguments like the CPU bodies, launches on cuda_stream(context) and ends with check_launch(op). It
// takes temporary memory from context.scratch() under a ScratchScope. It never synchronizes the device and uses no
// floating-point atomics: shapes alone decide the order of a sum. Storage is f32 or bf16 (with_storage() picks the
// instantiation); arithmetic is f32.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "core/device/cuda_check.h"
#include "kernels/cuda/limits.h"
#include "kernels/op.h"

namespace hone {

inline cudaStream_t cuda_stream(Context& context) { return static_cast<cudaStream_t>(context.stream()); }

inline void check_launch(const OpBase& op) {
  const cudaError_t code = cudaGetLastError();
  HONE_CHECK(code == cudaSuccess, "op ", op.name(), ": CUDA: ", cudaGetErrorString(code), " (", cudaGetErrorName(code),
             ")");
}

// The number of SMs of the current device.
inline int num_sms() { return device_limits().num_sms; }

// Bytes of shared memory that a thread block of the current device may have.
inline int max_shared_bytes() { return static_cast<int>(device_limits().shared_per_block); }

// Allows a kernel more than 48 KB of dynamic shared memory. Call it before the launch; repeated calls do no harm. A
// launch that may need more than 48 KB declares its plan (kernels/cuda/launch_plan.h).
template <class Kernel>
void allow_shared_memory(Kernel* kernel, size_t bytes) {
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (code == cudaErrorInvalidValue) {
    cudaGetLastError();
    fail("cuda: a kernel needs ", bytes, " bytes of dynamic shared memory; a thread block of ", device_limits().name,
         " may have ", device_limits().shared_per_block);
  }
  HONE_CUDA_CHECK(code);
}

// Calls body(float{}) or body(__nv_bfloat16{}). Throws for any other dtype.
template <class Body>
void with_storage(const OpBase& op, DType dtype, Body body) {
  if (dtype == DType::f32) return body(float{});
  HONE_CHECK(dtype == DType::bf16, "op ", op.name(), ": dtype is ", name_of(dtype), "; it must be f32 or bf16 on cuda");
  body(__nv_bfloat16{});
}

// The data pointer of a tensor as T*. The caller has checked the dtype.
template <class T>
T* numbers(const Tensor& x) {
  return static_cast<T*>(x.data);
}

__device__ inline float to_f32(float x) { return x; }
__device__ inline float to_f32(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T>
__device__ T from_f32(float x);
template <>
__device__ inline float from_f32<float>(float x) {
  return x;
}
template <>
__device__ inline __nv_bfloat16 from_f32<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// A vector of N elements that one instruction moves. N * sizeof(T) is at most 16 and divides the address.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T value[N];
};
template <class T>
inline constexpr int vec_size = 16 / sizeof(T);

template <int N, class T>
__device__ inline void load_vec(float (&to)[N], const T* from) {
  const auto pack = *reinterpret_cast<const Pack<T, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = to_f32(pack.value[i]);
}
// Packs the next elements at `from` into a 32-bit word: one f32, or two bf16 with the first in the low half.
__device__ inline uint32_t packed_word(const float* from, float) { return __float_as_uint(*from); }
__device__ inline uint32_t packed_word(const float* from, __nv_bfloat16) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(from[0], from[1]);
  return static_cast<uint32_t>(__bfloat16_as_ushort(two.y)) << 16 | __bfloat16_as_ushort(two.x);
}
// Stores to global memory. The assembly is explicit because the compiler splits most stores of a Pack into words.
template <int N, class T>
__device__ inline void store_vec(T* to, const float (&from)[N]) {
  constexpr int words = N * sizeof(T) / 4, n = 4 / sizeof(T);
  if constexpr (words == 4)
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(packed_word(from, T{})),
                 "r"(packed_word(from + n, T{})), "r"(packed_word(from + 2 * n, T{})),
                 "r"(packed_word(from + 3 * n, T{}))
                 : "memory");
  else if constexpr (words == 2)
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(packed_word(from, T{})),
                 "r"(packed_word(from + n, T{}))
                 : "memory");
  else if constexpr (words == 1)
    *reinterpret_cast<uint32_t*>(to) = packed_word(from, T{});
  else
    *to = from_f32<T>(*from);
}

// Asynchronous 16-byte copies from global to shared memory (cp.async). Both addresses are multiples of 16. The copies
// of a thread since its last cp_async_commit() form a group. cp_async_wait<N>() returns when all but the latest N
// groups of this thread have arrived.
__device__ inline void cp_async(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Copies if `inside`; else writes zeros and reads nothing.
__device__ inline void cp_async(uint32_t to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
// Copies the first `bytes` of 16 and writes zeros to the rest.
__device__ inline void cp_async_bytes(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
// For weights that are read once: the L2 prefetch size is 256 bytes. Copies the first `bytes` of 16 and writes zeros
// to the rest.
__device__ inline void cp_async_streaming(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// True if rows can be read as 16-byte vectors: base address, row stride and row length are multiples of 16 bytes.
template <class T>
bool packs(const Tensor& x) {
  return x.row_size() % vec_size<T> == 0 && x.row_stride % vec_size<T> == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

// Returns the sum of a warp in all lanes. The butterfly gives all lanes the same bits.
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
  return x;
}
__device__ inline float warp_max(float x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
  return x;
}

// Returns the sum of a one-dimensional thread block (full warps) in all threads. Warps are added in ascending order.
// `shared` holds 32 floats; it may be reused after the next __syncthreads().
__device__ inline float block_sum(float x, float* shared) {
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();  // the sums of all warps are in `shared`
  float sum = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) sum += shared[w];
  return sum;
}
__device__ inline float block_max(float x, float* shared) {
  x = warp_max(x);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();  // the maxima of all warps are in `shared`
  float most = shared[0];
  for (unsigned w = 1; w < blockDim.x / 32; ++w) most = fmaxf(most, shared[w]);
  return most;
}

// 2^x in one instruction. Results below the smallest normal number are 0. All kernels use it, so that sampler and
// learner have the same bits.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float exp_approx(float x) { return exp2_approx(x * 1.44269504f); }

}  // namespace hone
