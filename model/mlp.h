#pragma once
// MLPs of decoder layers.
#include "model/layer.h"

namespace hone {

// down(silu(gate(x)) * up(x)), gate and up in one matrix (Shazeer 2020).
struct GatedMlp final : Sublayer {
  Linear gate_up, down;

  void forward(Context&, const LayerPass&, Tensor out, Tensor x, Tensor residual, Frame&) const override;
  void backward(Context&, const LayerPass&, Tensor dx, Tensor dout, Tensor x, Saved& saved) const override;
  void add_to(ModuleList& list) override;
  std::optional<FusedMlp> fused_mlp() const override;
};

// down(gelu(up(x))), with the tanh form of GELU.
struct GeluMlp final : Sublayer {
  Linear up, down;

  void forward(Context&, const LayerPass&, Tensor out, Tensor x, Tensor residual, Frame&) const override;
  void backward(Context&, const LayerPass&, Tensor dx, Tensor dout, Tensor x, Saved& saved) const override;
  void add_to(ModuleList& list) override;
};

}  // namespace hone
