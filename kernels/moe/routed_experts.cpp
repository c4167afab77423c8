// routed_experts as its steps: the CPU specification, and the GPU body for what no fused kernel supports.
#include "kernels/moe/routed_experts.h"

#include "kernels/check_shape.h"
#include "kernels/moe/dispatch.h"
#include "kernels/scratch_bytes.h"

namespace hone {
namespace {

// What the steps hand on. `take` gives memory: (dtype, dims).
struct RoutedSteps {
  Tensor experts, weights, order, places, offsets, gathered, both, activated, results;

  template <class Take>
  RoutedSteps(const RoutedExperts& args, Take take) {
    const int64_t T = args.x.dim(0), D = args.x.dim(1), F = args.down.num_inputs(), k = args.num_choices;
    const DType dtype = args.x.dtype;
    experts = take(DType::i32, {T, k});
    weights = take(DType::f32, {T, k});
    order = take(DType::i32, {T * k});
    places = take(DType::i32, {T, k});
    offsets = take(DType::i32, {args.logits.dim(1) + 1});
    gathered = take(dtype, {T * k, D});
    both = take(dtype, {T * k, 2 * F});
    activated = take(dtype, {T * k, F});
    results = take(dtype, {T * k, D});
  }
};

void check_matrices(const char* name, const ExpertMatrices& matrices, DType dtype, int64_t E, int64_t N, int64_t K) {
  check_optional(routed_experts, concat(name, ".bias").c_str(), matrices.bias, {E, N}, dtype);
  if (!matrices.quantized) return check_shape(routed_experts, name, matrices.w, {E, N, K}, dtype);
  check_shape(routed_experts, name, matrices.quantized.values, {E, N, K}, DType::u8);
  check_shape(routed_experts, name, matrices.quantized.scales, {E, N});
}

}  // namespace

void check_routed_experts(const RoutedExperts& args) {
  const int64_t T = args.x.dim(0), D = args.x.dim(1), E = args.logits.dim(1), F = args.down.num_inputs();
  const DType dtype = args.x.dtype;
  check_shape(routed_experts, "y", args.y, {T, D}, dtype);
  check_shape(routed_experts, "x", args.x, {T, D}, dtype);
  check_shape(routed_experts, "logits", args.logits, {T, E});
  check_optional(routed_experts, "bias", args.bias, {E});
  check_optional(routed_experts, "residual", args.residual, {T, D}, dtype);
  check_matrices("gate_up", args.gate_up, dtype, E, 2 * F, D);
  check_matrices("down", args.down, dtype, E, D, F);
}

void routed_experts_steps(Context& context, const RoutedExperts& args) {
  check_routed_experts(args);
  if (args.x.dim(0) == 0) return;
  const ScratchScope scope(context);
  const RoutedSteps to(
      args, [&](DType dtype, std::initializer_list<int64_t> dims) { return context.scratch().take(dtype, dims); });
  router_forward(
      context,
      {.experts = to.experts, .weights = to.weights, .logits = args.logits, .bias = args.bias, .rule = args.rule});
  moe_dispatch(context, {.order = to.order, .places = to.places, .offsets = to.offsets, .experts = to.experts});
  moe_gather(context, {.y = to.gathered, .x = args.x, .order = to.order});
  args.gate_up.multiply(context, to.both, to.gathered, to.offsets);
  if (args.clamped)
    clamped_glu_forward(context, to.activated, to.both, *args.clamped);
  else
    glu_forward(context, to.activated, to.both, args.activation);
  args.down.multiply(context, to.results, to.activated, to.offsets);
  moe_combine(context,
              {.y = args.y, .x = to.results, .places = to.places, .weights = to.weights, .residual = args.residual});
}

// The steps' own tensors, and what the op that takes most takes beside them: the products of 8-bit matrices.
size_t routed_experts_scratch(const RoutedExperts& args) {
  size_t bytes = 0;
  const auto take = [&](DType dtype, std::initializer_list<int64_t> dims) {
    const Tensor out(nullptr, dtype, DeviceKind::meta, dims);
    bytes += scratch_bytes(out.bytes());
    return out;
  };
  const RoutedSteps steps(args, take);
  constexpr int64_t panel = 256;  // rows that gemm_quantized decodes at a time
  if (args.gate_up.quantized)
    take(DType::f32, {panel, args.x.dim(0) + std::max(args.x.dim(1), args.down.num_inputs())});
  return bytes;
}

namespace {

[[maybe_unused]] const bool added =
    routed_experts.add({"specification", DeviceKind::cpu, routed_experts_steps, 0, nullptr, routed_experts_scratch}) &&
    routed_experts.add({"steps", DeviceKind::cuda, routed_experts_steps, 0, nullptr, routed_experts_scratch});

}  // namespace
}  // namespace hone
