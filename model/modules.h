#pragma once
// Layers as plain structs with explicit forward and backward.
//
// Kept is what a layer's forward leaves for its backward. keep() makes room for it (on the tape when training, in
// scratch otherwise), in the order in which take_back() pops it in reverse. Popped tensors stay valid until the next
// push, so a layer takes everything back first and computes then. Parameter gradients are added to, activation
// gradients are written unless said otherwise. An MLP's and attention's backward use up what was kept.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/decoder_layer/decoder_layer.h"
#include "kernels/quant/quantize.h"
#include "model/lora.h"
#include "model/model.h"

namespace hone {

// Rows of a fused matrix: the Hugging Face module (without ".weight") and how many.
using FusedModules = std::vector<std::pair<std::string, int64_t>>;

// y = x . weight^T + bias, and what its adapters add.
struct Linear {
  Param weight;                   // [out, in]; without a gradient where it is frozen
  Param bias;                     // [out], or without a shape: none
  std::optional<LoraLayer> lora;  // Model::add_lora's
  QuantizedMatrix quantized;      // what forward multiplies by instead, where it is there (QuantizedModel's)

  Linear() = default;
  Linear(const FusedModules& rows, int64_t inputs, bool with_bias, double init_std);
  int64_t num_outputs() const { return weight.shape[0]; }
  // Whether forward is gemm_forward and nothing else, so that an op that fuses it may take its place.
  bool is_plain_gemm() const { return !lora && !quantized; }
  GemmWeights product() const { return {weight.value, bias.value}; }
  // y [T, out] = x [T, in] . weight^T + bias + residual [T, out] (or empty).
  void forward(Context&, Tensor y, Tensor x, Tensor residual = {}) const;
  // dx may be x.
  void backward(Context&, Tensor dx, Tensor dy, Tensor x) const;
  // Its two halves.
  void backward_input(Context&, Tensor dx, Tensor dy) const;
  void backward_weight(Context&, Tensor dy, Tensor x) const;
  void add_params(std::vector<Param*>& out);
};

struct RmsNorm {
  Param weight;
  float eps = 0;
  struct Saved {
    Tensor rstd;
  };
  RmsNormWeights row_norm() const { return {weight.value, eps}; }

  RmsNorm() = default;
  RmsNorm(const std::string& module, int64_t width, double norm_eps);
  Saved save(Tape*, int64_t num_rows) const;
  Saved restore(Tape&) const;
  void forward(Context&, Tensor y, Tensor x, const Saved&) const;
  // dx is added to when accumulate.
  void backward(Context&, Tensor dx, Tensor dy, Tensor x, const Saved&, bool accumulate) const;
  void add_params(std::vector<Param*>& out);
};

struct LayerNorm {
  Param weight, bias;
  float eps = 0;
  struct Saved {
    Tensor mean, rstd;
  };

  LayerNorm() = default;
  LayerNorm(const std::string& module, int64_t width, double norm_eps);
  Saved save(Tape*, int64_t num_rows) const;
  Saved restore(Tape&) const;
  void forward(Context&, Tensor y, Tensor x, const Saved&) const;
  void backward(Context&, Tensor dx, Tensor dy, Tensor x, const Saved&, bool accumulate) const;
  void add_params(std::vector<Param*>& out);
};

// down(silu(gate(x)) * up(x)), gate and up in one matrix (Shazeer 2020).
struct GatedMlp {
  Linear gate_up, down;
  struct Saved {
    Tensor gate_up, activated;
  };

  Saved save(Context&, Tape*, int64_t num_tokens) const;
  Saved restore(Tape&) const;
  void forward(Context&, Tensor out, Tensor x, Tensor residual, const Saved&) const;
  void backward(Context&, Tensor dx, Tensor dout, Tensor x, Saved) const;
  void add_params(std::vector<Param*>& out);
  void add_linears(std::vector<Linear*>& out);
};

// down(gelu(up(x))), the tanh form.
struct GeluMlp {
  Linear up, down;
  struct Saved {
    Tensor up, activated;
  };

  Saved save(Context&, Tape*, int64_t num_tokens) const;
  Saved restore(Tape&) const;
  void forward(Context&, Tensor out, Tensor x, Tensor residual, const Saved&) const;
  void backward(Context&, Tensor dx, Tensor dout, Tensor x, Saved) const;
  void add_params(std::vector<Param*>& out);
  void add_linears(std::vector<Linear*>& out);
};

}  // namespace hone
