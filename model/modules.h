#pragma once
// Modules as plain structs with explicit forward and backward.
//
// Saved holds the tensors that forward leaves for backward. save() allocates them (on the tape when training, else in
// scratch); restore() pops them in reverse order. Popped tensors are valid until the next push, so a module restores
// everything before it computes. Parameter gradients are added to; activation gradients are written unless a comment
// says otherwise. The backward of MLP and attention overwrites the saved tensors.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/decoder_layer/decoder_layer.h"
#include "kernels/quant/quantized_matrix.h"
#include "model/lora.h"
#include "model/model.h"

namespace hone {

// The modules of a fused matrix, in row order: Hugging Face name (without ".weight") and number of rows.
using FusedModules = std::vector<std::pair<std::string, int64_t>>;

// y = x . weight^T + bias, plus the output of its adapters.
struct Linear {
  Param weight;                   // [out, in]
  Param bias;                     // [out]; an empty shape means none
  std::optional<LoraLayer> lora;  // set by Model::add_lora()
  QuantizedMatrix quantized;      // if set, forward multiplies by it instead (set by QuantizedModel)

  Linear() = default;
  Linear(const FusedModules& rows, int64_t inputs, bool with_bias, double init_std);
  int64_t num_outputs() const { return weight.shape[0]; }
  // True if forward is gemm_forward alone, so that a fused op may replace it.
  bool is_plain_gemm() const { return !lora && !quantized; }
  GemmWeights product() const { return {weight.value, bias.value}; }
  // y [T, out] = x [T, in] . weight^T + bias + residual [T, out] (or empty).
  void forward(Context&, Tensor y, Tensor x, Tensor residual = {}) const;
  // Writes dx (which may be x) and adds to the parameters' gradients.
  void backward(Context&, Tensor dx, Tensor dy, Tensor x) const;
  // The two halves of backward().
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
  // accumulate: adds to dx instead of writing it.
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

// down(gelu(up(x))), with the tanh form of GELU.
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
