#pragma once
// Epilogue of gemm_forward, the same in all CUDA bodies: total + bias + residual in f32, rounded once. Only .cu and
// .cuh files include it.
#include "kernels/cuda/cuda.cuh"

namespace hone {

struct GemmEpilogue {
  void* y = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;
  int64_t y_stride = 0, residual_stride = 0;
  bool y_bf16 = false, bias_bf16 = false, residual_bf16 = false;

  GemmEpilogue() = default;
  GemmEpilogue(const Tensor& y_, const Tensor& bias_, const Tensor& residual_)
      : y(y_.data),
        bias(bias_ ? bias_.data : nullptr),
        residual(residual_ ? residual_.data : nullptr),
        y_stride(y_.row_stride),
        residual_stride(residual_.row_stride),
        y_bf16(y_.dtype == DType::bf16),
        bias_bf16(bias_.dtype == DType::bf16),
        residual_bf16(residual_.dtype == DType::bf16) {}

  static __device__ float load(const void* from, bool from_bf16, int64_t i) {
    return from_bf16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(from)[i])
                     : static_cast<const float*>(from)[i];
  }
  // What is added to an element. It may be loaded before the element's total is complete.
  struct Extra {
    float bias, residual;
  };
  __device__ Extra fetch(int64_t m, int64_t n) const {
    return {bias ? load(bias, bias_bf16, n) : 0, residual ? load(residual, residual_bf16, m * residual_stride + n) : 0};
  }
  __device__ float finish(float total, Extra extra) const {
    if (bias) total += extra.bias;
    if (residual) total += extra.residual;
    return total;
  }
  __device__ void put(float x, int64_t m, int64_t n) const {
    if (y_bf16)
      static_cast<__nv_bfloat16*>(y)[m * y_stride + n] = __float2bfloat16_rn(x);
    else
      static_cast<float*>(y)[m * y_stride + n] = x;
  }
  __device__ void store(float total, int64_t m, int64_t n) const { put(finish(total, fetch(m, n)), m, n); }
  // Stores columns n and n + 1, unless they lie past N. `pairs`: y can be written two elements at a time, and n is
  // even.
  __device__ void store_pair(float first, float second, int64_t m, int64_t n, int64_t N, bool pairs) const {
    const bool both = n + 1 < N;
    if (n >= N) return;
    first = finish(first, fetch(m, n));
    if (both) second = finish(second, fetch(m, n + 1));
    if (!both || !pairs) {
      put(first, m, n);
      if (both) put(second, m, n + 1);
    } else if (y_bf16) {
      *reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(y) + m * y_stride + n) =
          __floats2bfloat162_rn(first, second);
    } else {
      *reinterpret_cast<float2*>(static_cast<float*>(y) + m * y_stride + n) = make_float2(first, second);
    }
  }
};

}  // namespace hone
