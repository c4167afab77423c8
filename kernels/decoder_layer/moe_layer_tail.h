#pragma once
// The ops of a layer with experts from its attention to the next one's, for passes that keep nothing for a backward
// pass: what decoder_layer_tail (decoder_layer.h) is for a layer with a gated MLP.
#include "kernels/decoder_layer/decoder_layer.h"
#include "kernels/moe/routed_experts.h"

namespace hone {

//   x = gemm_forward(mixed, output) + x
//   logits, normed = rmsnorm_gemm(x, norm, router)
//   x = routed_experts(normed, logits) + x
//   qkv_rope_cache(x, next), unless next.q is empty
// It equals this sequence of ops, bit for bit. T tokens, width D, E experts of inner width F.
struct MoeLayerTail {
  Tensor x;      // [T, D], updated in place
  Tensor mixed;  // [T, H * d]: the output of attention
  GemmWeights output;
  RmsNormWeights norm;
  GemmWeights router;      // [E, D]
  ExpertMatrices gate_up;  // [E, 2F, D]: gate rows, then up rows
  ExpertMatrices down;     // [E, D, F]
  RouterRule rule{};
  int64_t num_choices = 1;  // k
  Activation activation = Activation::silu;
  std::optional<ClampedGlu> clamped{};  // computed in place of `activation` if set
  QkvProjection next{};
  static constexpr auto access = op_access(updated(&MoeLayerTail::x), read(&MoeLayerTail::mixed),
                                           parts(&MoeLayerTail::output, &MoeLayerTail::norm, &MoeLayerTail::router,
                                                 &MoeLayerTail::gate_up, &MoeLayerTail::down, &MoeLayerTail::next));
};
inline constinit Op<MoeLayerTail> moe_layer_tail{"moe_layer_tail"};

// Runs the ops one after the other.
void moe_layer_tail_steps(Context& context, const MoeLayerTail& args);
// The bytes of scratch memory that the steps or the fused kernel take, at most.
size_t moe_layer_tail_scratch(const MoeLayerTail& args);
// routed_experts as part of the op.
RoutedExperts routed_experts_of(const MoeLayerTail& args, Tensor normed, Tensor logits);

}  // namespace hone
