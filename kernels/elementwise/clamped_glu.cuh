#pragma once
// The clamped SwiGLU in f32. All CUDA kernels use it, so that they have the same bits. Only .cu and .cuh files include
// it.
#include "kernels/elementwise/activation.cuh"
#include "kernels/elementwise/clamped_glu.h"

namespace hone {

// The clamped operands and sigmoid(alpha * gate). Comparisons let a NaN pass.
struct ClampedPoint {
  float gate, up, s;
  bool gate_moves, up_moves;
  __device__ ClampedPoint(float g, float u, ClampedGlu rule)
      : gate_moves(!(g > rule.limit)), up_moves(!(fabsf(u) > rule.limit)) {
    gate = gate_moves ? g : rule.limit;
    up = up_moves ? u : copysignf(rule.limit, u);
    s = sigmoid(rule.alpha * gate);
  }
  __device__ float value() const { return (up + 1.0f) * (gate * s); }
};

}  // namespace hone
