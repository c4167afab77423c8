// moe_layer_tail as its steps: the CPU specification, and the GPU body for what the fused kernel does not support.
#include "kernels/decoder_layer/moe_layer_tail.h"

#include <algorithm>

#include "kernels/decoder_layer/internal.h"
#include "kernels/decoder_layer/rmsnorm_gemm.h"
#include "kernels/gemm/gemm.h"
#include "kernels/scratch_bytes.h"

namespace hone {

RoutedExperts routed_experts_of(const MoeLayerTail& args, Tensor normed, Tensor logits) {
  return {.y = args.x,
          .x = normed,
          .logits = logits,
          .gate_up = args.gate_up,
          .down = args.down,
          .residual = args.x,
          .rule = args.rule,
          .num_choices = args.num_choices,
          .activation = args.activation,
          .clamped = args.clamped};
}

void moe_layer_tail_steps(Context& context, const MoeLayerTail& args) {
  {
    const ScratchScope scope(context);
    const Tensor normed = context.scratch().take(args.x.dtype, args.x.dims()),
                 logits = context.scratch().take(DType::f32, {args.x.dim(0), args.router.w.dim(0)});
    gemm_forward(context,
                 {.y = args.x, .x = args.mixed, .w = args.output.w, .bias = args.output.bias, .residual = args.x});
    rmsnorm_gemm(context, {.y = logits, .normed = normed, .x = args.x, .norm = args.norm, .product = args.router});
    routed_experts(context, routed_experts_of(args, normed, logits));
  }
  if (args.next.q) qkv_rope_cache(context, {.x = args.x, .to = args.next});
}

size_t moe_layer_tail_scratch(const MoeLayerTail& args) {
  const int64_t T = args.x.dim(0), E = args.router.w.dim(0);
  const auto planned = [&](DType dtype, std::initializer_list<int64_t> dims) {
    return Tensor(nullptr, dtype, args.x.device, dims);
  };
  const Tensor row = planned(args.x.dtype, {T, args.x.dim(1)}), logits = planned(DType::f32, {T, E}),
               activated = planned(args.x.dtype, {T * args.num_choices, args.down.num_inputs()});
  // The fused kernel takes x after attention, logits and activations, and q, k and v of the next layer; the steps
  // normed rows, logits and what the experts take, and after these q, k and v.
  const size_t common = scratch_bytes(row.bytes()) + scratch_bytes(logits.bytes()),
               next = args.next.q ? qkv_rope_cache_scratch({.x = args.x, .to = args.next}) : 0;
  return std::max(common + scratch_bytes(activated.bytes()) + next,
                  common + routed_experts_scratch(routed_experts_of(args, row, logits)));
}

namespace {

[[maybe_unused]] const bool added =
    moe_layer_tail.add({"specification", DeviceKind::cpu, moe_layer_tail_steps, 0, nullptr, moe_layer_tail_scratch}) &&
    moe_layer_tail.add({"steps", DeviceKind::cuda, moe_layer_tail_steps, 0, nullptr, moe_layer_tail_scratch});

}  // namespace
}  // namespace hone
