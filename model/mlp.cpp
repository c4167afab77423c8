#include "model/mlp.h"

#include "kernels/elementwise/activation.h"

namespace hone {

void GatedMlp::forward(Context& context, const LayerPass&, Tensor out, Tensor x, Tensor residual, Frame& frame) const {
  const int64_t num_tokens = x.dim(0);
  const Tensor both = frame.save(x.dtype, {num_tokens, gate_up.num_outputs()});
  const Tensor activated = frame.save_cheap(x.dtype, {num_tokens, gate_up.num_outputs() / 2});
  gate_up.forward(context, both, x);
  swiglu_forward(context, activated, both);
  down.forward(context, out, activated, residual);
}

void GatedMlp::backward(Context& context, const LayerPass&, Tensor dx, Tensor dout, Tensor x, Saved& saved) const {
  const ScratchScope scope(context);
  const Tensor both = saved.next(), activated = saved.next(), dboth = both;
  if (activated) {
    const Tensor dactivated = activated;
    down.backward(context, dactivated, dout, activated);
    swiglu_backward(context, dboth, {}, dactivated, both);
  } else {
    const Tensor dactivated = context.scratch().take(both.dtype, {x.dim(0), down.weight.shape[1]}),
                 recomputed = dactivated;
    down.backward_input(context, dactivated, dout);
    swiglu_backward(context, dboth, recomputed, dactivated, both);
    down.backward_weight(context, dout, recomputed);
  }
  gate_up.backward(context, dx, dboth, x);
}

void GatedMlp::add_to(ModuleList& list) {
  list.add(gate_up);
  list.add(down);
}

std::optional<FusedMlp> GatedMlp::fused_mlp() const {
  const std::optional<GemmWeights> first = gate_up.gemm(), second = down.gemm();
  if (!first || !second) return {};
  return FusedMlp{*first, *second};
}

void GeluMlp::forward(Context& context, const LayerPass&, Tensor out, Tensor x, Tensor residual, Frame& frame) const {
  const int64_t num_tokens = x.dim(0);
  const Tensor projected = frame.save(x.dtype, {num_tokens, up.num_outputs()});
  const Tensor activated = frame.save_cheap(x.dtype, {num_tokens, up.num_outputs()});
  up.forward(context, projected, x);
  gelu_forward(context, activated, projected);
  down.forward(context, out, activated, residual);
}

void GeluMlp::backward(Context& context, const LayerPass&, Tensor dx, Tensor dout, Tensor x, Saved& saved) const {
  const ScratchScope scope(context);
  const Tensor projected = saved.next();
  Tensor activated = saved.next();
  if (!activated) {
    activated = context.scratch().take(projected.dtype, projected.dims());
    gelu_forward(context, activated, projected);
  }
  const Tensor dactivated = activated, dprojected = projected;
  down.backward(context, dactivated, dout, activated);
  gelu_backward(context, dprojected, dactivated, projected);
  up.backward(context, dx, dprojected, x);
}

void GeluMlp::add_to(ModuleList& list) {
  list.add(up);
  list.add(down);
}

}  // namespace hone
