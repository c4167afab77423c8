// moe_layer_tail as its steps: the CPU specification, and the GPU body for what the fused kernel does not support.
#include "kernels/decoder_layer/moe_layer_tail.h"

#include <algorithm>

#include "kernels/decoder_layer/internal.h"
#include "kernels/decoder_layer/rmsnorm_gemm.h"
#include "kernels/gemm/gemm.h"

namespace hone {
namespace {

RoutedExperts experts_of(const MoeLayerTail& args, Tensor normed, Tensor logits) {
  return {.y = args.x,
          .x = normed,
          .logits = logits,
          .bias = args.choice_bias,
          .gate_up = args.gate_up,
          .down = args.down,
          .residual = args.x,
          .rule = args.rule,
          .num_choices = args.num_choices,
          .activation = args.activation,
          .clamped = args.clamped};
}

}  // namespace

void moe_layer_tail_steps(Context& context, const MoeLayerTail& args) {
  {
    const ScratchScope scope(context);
    const Tensor normed = context.scratch().take(args.x.dtype, args.x.dims()),
                 logits = context.scratch().take(DType::f32, {args.x.dim(0), args.router.w.dim(0)});
    gemm_forward(context,
                 {.y = args.x, .x = args.mixed, .w = args.output.w, .bias = args.output.bias, .residual = args.x});
    rmsnorm_gemm(context, {.y = logits, .normed = normed, .x = args.x, .norm = args.norm, .product = args.router});
    routed_experts(context, experts_of(args, normed, logits));
  }
  if (args.next.q) qkv_rope_cache(context, {.x = args.x, .to = args.next});
}

size_t moe_layer_tail_scratch(const MoeLayerTail& args) {
  const int64_t T = args.x.dim(0), E = args.router.w.dim(0), F = args.down.num_inputs();
  const Tensor normed(nullptr, args.x.dtype, args.x.device, args.x.dims()),
      logits(nullptr, DType::f32, args.x.device, {T, E});
  const size_t width = size_of(args.x.dtype), row = static_cast<size_t>(T * args.x.dim(1)) * width;
  // The fused kernel takes x after attention, logits and activations; the steps normed rows, logits and those of the
  // experts.
  const size_t fused = row + static_cast<size_t>(T * E) * 4 + static_cast<size_t>(T * args.num_choices * F) * width,
               steps = row + static_cast<size_t>(T * E) * 4 + routed_experts_scratch(experts_of(args, normed, logits));
  const size_t next = args.next.q ? qkv_rope_cache_scratch({.x = args.x, .to = args.next}) : 0;
  return std::max({steps, fused + next, next});
}

namespace {

[[maybe_unused]] const bool added =
    moe_layer_tail.add({"specification", DeviceKind::cpu, moe_layer_tail_steps, 0, nullptr, moe_layer_tail_scratch}) &&
    moe_layer_tail.add({"steps", DeviceKind::cuda, moe_layer_tail_steps, 0, nullptr, moe_layer_tail_scratch});

}  // namespace
}  // namespace hone
