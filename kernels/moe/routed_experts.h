#pragma once
// A mixture of experts from the router's logits to its output, for passes that keep nothing for a backward pass: one
// op, so that a GPU body for few tokens may fuse the steps.
//
// It equals this sequence of ops, bit for bit, and drops nothing:
//   router_forward, moe_dispatch, moe_gather, product with gate_up, glu_forward or clamped_glu_forward, product with
//   down, moe_combine
//
// The products are those of ExpertMatrices::multiply. Only the matrices of experts that a token chose are read.
#include <optional>

#include "kernels/elementwise/activation.h"
#include "kernels/elementwise/clamped_glu.h"
#include "kernels/moe/grouped_gemm_quantized.h"
#include "kernels/moe/router.h"

namespace hone {

// T tokens, width D, E experts of inner width F.
struct RoutedExperts {
  Tensor y;                // [T, D], written; shares no memory with x
  Tensor x;                // [T, D]
  Tensor logits;           // [T, E] f32
  Tensor bias{};           // [E] f32 or empty, as in router_forward
  ExpertMatrices gate_up;  // [E, 2F, D]: gate rows, then up rows
  ExpertMatrices down;     // [E, D, F]
  Tensor residual{};       // [T, D] or empty; may be y
  RouterRule rule{};
  int64_t num_choices = 1;  // k
  Activation activation = Activation::silu;
  std::optional<ClampedGlu> clamped{};  // computed in place of `activation` if set
  static constexpr auto access =
      op_access(written(&RoutedExperts::y), parts(&RoutedExperts::gate_up, &RoutedExperts::down),
                read(&RoutedExperts::x, &RoutedExperts::logits, &RoutedExperts::bias, &RoutedExperts::residual));
};
inline constinit Op<RoutedExperts> routed_experts{"routed_experts"};

// Throws Error if shapes or dtypes do not fit: for the bodies.
void check_routed_experts(const RoutedExperts& args);
// Runs the ops one after the other; and the bytes of scratch memory that they take.
void routed_experts_steps(Context& context, const RoutedExperts& args);
size_t routed_experts_scratch(const RoutedExperts& args);

}  // namespace hone
