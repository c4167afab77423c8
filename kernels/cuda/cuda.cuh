#pragma once
// What CUDA bodies share. .cu files alone include it.
//
// A body checks its arguments as the CPU's do, launches on cuda_stream(context), and ends with check_launch(op). It
// takes temporary memory from context.scratch() under a ScratchScope, never synchronizes, and uses no floating-point
// atomics: sums have an order that shapes alone decide. Storage is f32 or bf16 (with_storage() picks the
// instantiation), arithmetic f32.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "core/device/cuda_check.h"
#include "kernels/op.h"

namespace hone {

inline cudaStream_t cuda_stream(Context& context) { return static_cast<cudaStream_t>(context.stream()); }

inline void check_launch(const OpBase& op) {
  const cudaError_t code = cudaGetLastError();
  HONE_CHECK(code == cudaSuccess, "op ", op.name(), ": CUDA: ", cudaGetErrorString(code), " (", cudaGetErrorName(code),
             ")");
}

// Of the current device; read once.
inline int num_sms() {
  static const int count = [] {
    int device = 0, value = 0;
    HONE_CUDA_CHECK(cudaGetDevice(&device));
    HONE_CUDA_CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device));
    return value;
  }();
  return count;
}

// Lets a kernel have more than 48 KB of dynamic shared memory; once for each kernel is enough, more often does no harm.
template <class Kernel>
void allow_shared_memory(Kernel* kernel, size_t bytes) {
  HONE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

// Calls body(float{}) or body(__nv_bfloat16{}).
template <class Body>
void with_storage(const OpBase& op, DType dtype, Body body) {
  if (dtype == DType::f32) return body(float{});
  HONE_CHECK(dtype == DType::bf16, "op ", op.name(), ": numbers are f32 or bf16 on cuda, not ", name_of(dtype));
  body(__nv_bfloat16{});
}

// A tensor's numbers as a kernel takes them.
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

// N numbers moved at once; N * sizeof(T) is at most 16 and the address a multiple of it.
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
// Numbers of a pack as 32-bit words, the first of them at `from`.
__device__ inline uint32_t packed_word(const float* from, float) { return __float_as_uint(*from); }
__device__ inline uint32_t packed_word(const float* from, __nv_bfloat16) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(from[0], from[1]);
  return static_cast<uint32_t>(__bfloat16_as_ushort(two.y)) << 16 | __bfloat16_as_ushort(two.x);
}
// To global memory. Spelt out, since the compiler splits most stores of a Pack into words.
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

// Asynchronous copies of 16 bytes from global to shared memory (cp.async). Both addresses are multiples of 16. The
// thread's copies since the last cp_async_commit() form a group; cp_async_wait<N>() returns when all groups but the
// latest N have arrived.
__device__ inline void cp_async(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Writes zeros and reads nothing unless `inside`.
__device__ inline void cp_async(uint32_t to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
// For weights that are read once: fetches 256 bytes into L2. Reads the first `bytes` of 16 and writes zeros for the
// others.
__device__ inline void cp_async_streaming(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Whether rows can be read in packs of 16 bytes: base, stride and length agree.
template <class T>
bool packs(const Tensor& x) {
  return x.row_size() % vec_size<T> == 0 && x.row_stride % vec_size<T> == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

// Every lane of the warp has the result; a butterfly, so that all lanes have the same bits.
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

// Every thread of a one-dimensional block (whole warps) has the result: warps are added in ascending order. `shared`
// holds 32 floats and is free again after the next __syncthreads().
__device__ inline float block_sum(float x, float* shared) {
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) sum += shared[w];
  return sum;
}
__device__ inline float block_max(float x, float* shared) {
  x = warp_max(x);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  float most = shared[0];
  for (unsigned w = 1; w < blockDim.x / 32; ++w) most = fmaxf(most, shared[w]);
  return most;
}

// 2^x, one instruction; results below the smallest normal number are 0. The same in every kernel, so that sampler and
// learner agree.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float exp_approx(float x) { return exp2_approx(x * 1.44269504f); }

}  // namespace hone
