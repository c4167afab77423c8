#pragma once
// MLPs of decoder layers.
#include "kernels/elementwise/activation.h"
#include "model/layer.h"

namespace hone {

// down(activation(gate(x)) * up(x)), gate and up in one matrix (Shazeer 2020).
struct GatedMlp final : Sublayer {
  Linear gate_up, down;
  Activation activation = Activation::silu;

  void forward(Context&, const LayerPass&, Tensor out, Tensor x, Tensor residual, Frame&) const override;
  void backward(Context&, const LayerPass&, Tensor dx, Tensor dout, Tensor x, Saved& saved) const override;
  void add_to(ModuleList& list) override;
  std::optional<FusedMlp> fused_mlp() const override;
};

// down(activation(up(x))).
struct PlainMlp final : Sublayer {
  Linear up, down;
  Activation activation = Activation::gelu_tanh;

  void forward(Context&, const LayerPass&, Tensor out, Tensor x, Tensor residual, Frame&) const override;
  void backward(Context&, const LayerPass&, Tensor dx, Tensor dout, Tensor x, Saved& saved) const override;
  void add_to(ModuleList& list) override;
};

}  // namespace hone
