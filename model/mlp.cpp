#include "model/mlp.h"

namespace hone {

void GatedMlp::forward(Context& context, const LayerPass&, Tensor out, Tensor x, Tensor residual, Frame& frame) const {
  const int64_t num_tokens = x.dim(0);
  const Tensor both = frame.save(x.dtype, {num_tokens, gate_up.num_outputs()});
  const Tensor activated = frame.save_cheap(x.dtype, {num_tokens, gate_up.num_outputs() / 2});
  gate_up.forward(context, both, x);
  glu_forward(context, activated, both, activation);
  down.forward(context, out, activated, residual);
}

void GatedMlp::backward(Context& context, const LayerPass&, Tensor dx, Tensor dout, Tensor x, Saved& saved) const {
  const ScratchScope scope(context);
  const Tensor both = saved.next(), activated = saved.next(), dboth = both;
  if (activated) {
    const Tensor dactivated = activated;
    down.backward(context, dactivated, dout, activated);
    glu_backward(context, dboth, {}, dactivated, both, activation);
  } else {
    const Tensor dactivated = context.scratch().take(both.dtype, {x.dim(0), down.weight.shape[1]}),
                 recomputed = dactivated;
    down.backward_input(context, dactivated, dout);
    glu_backward(context, dboth, recomputed, dactivated, both, activation);
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
  if (!first || !second || activation != Activation::silu) return {};
  return FusedMlp{*first, *second};
}

void PlainMlp::forward(Context& context, const LayerPass&, Tensor out, Tensor x, Tensor residual, Frame& frame) const {
  const int64_t num_tokens = x.dim(0);
  const Tensor projected = frame.save(x.dtype, {num_tokens, up.num_outputs()});
  const Tensor activated = frame.save_cheap(x.dtype, {num_tokens, up.num_outputs()});
  up.forward(context, projected, x);
  activation_forward(context, activated, projected, activation);
  down.forward(context, out, activated, residual);
}

void PlainMlp::backward(Context& context, const LayerPass&, Tensor dx, Tensor dout, Tensor x, Saved& saved) const {
  const ScratchScope scope(context);
  const Tensor projected = saved.next();
  Tensor activated = saved.next();
  if (!activated) {
    activated = context.scratch().take(projected.dtype, projected.dims());
    activation_forward(context, activated, projected, activation);
  }
  const Tensor dactivated = activated, dprojected = projected;
  down.backward(context, dactivated, dout, activated);
  activation_backward(context, dprojected, dactivated, projected, activation);
  up.backward(context, dx, dprojected, x);
}

void PlainMlp::add_to(ModuleList& list) {
  list.add(up);
  list.add(down);
}

}  // namespace hone
