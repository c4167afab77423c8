#pragma once
// What the fused bodies of experts share: the activation, the matrices that they read, and their checks. Only .cu files
// include it.
#include "kernels/elementwise/activation.cuh"
#include "kernels/elementwise/clamped_glu.cuh"
#include "kernels/moe/routed_experts.h"

namespace hone::moe {

// SwiGLU, plain or clamped.
struct ExpertActivation {
  bool clamped = false;
  ClampedGlu rule{};
  ExpertActivation() = default;
  explicit ExpertActivation(const std::optional<ClampedGlu>& of)
      : clamped(of.has_value()), rule(of.value_or(ClampedGlu())) {}
  __device__ float operator()(float gate, float up) const {
    return clamped ? ClampedPoint(gate, up, rule).value() : swiglu(gate, up);
  }
};
inline bool has_expert_activation(Activation activation, const std::optional<ClampedGlu>& clamped) {
  return clamped || activation == Activation::silu;
}

// True if 16-byte copies can read the rows of w, and scales and biases have no gaps.
inline bool streams(const ExpertMatrices& matrices) {
  const Tensor& w = matrices.numbers();
  const int64_t unit = matrices.quantized ? 16 : 8;
  return w.dim(2) > 0 && w.dim(2) % unit == 0 && w.row_stride % unit == 0 &&
         reinterpret_cast<uintptr_t>(w.data) % 16 == 0 &&
         (!matrices.quantized || matrices.quantized.scales.contiguous()) &&
         (!matrices.bias || matrices.bias.contiguous());
}

// Throws Error if router_forward would refuse the routing, or shapes or dtypes do not fit.
inline void check_fused_experts(const RoutedExperts& args) {
  check_routed_experts(args);
  const Tensor experts(nullptr, DType::i32, args.x.device, {args.x.dim(0), args.num_choices}),
      weights(nullptr, DType::f32, args.x.device, {args.x.dim(0), args.num_choices});
  RouterForward routing{};
  routing.experts = experts;
  routing.weights = weights;
  routing.logits = args.logits;
  routing.bias = args.bias;
  routing.rule = args.rule;
  check_router_forward(routing);
}

}  // namespace hone::moe
