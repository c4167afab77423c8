#pragma once
// The gate of SwiGLU and GELU in f32. All CUDA kernels use it, so that they have the same bits. Only .cu and .cuh files
// include it.
#include "kernels/cuda/cuda.cuh"

namespace hone {

__device__ inline float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float sigmoid(float x) { return reciprocal_approx(1.0f + exp_approx(-x)); }
__device__ inline float swiglu(float gate, float up) { return up * (gate * sigmoid(gate)); }

}  // namespace hone
