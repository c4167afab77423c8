#pragma once
// Modules as plain structs with explicit forward and backward.
//
// Parameter gradients are added to, or written if they are undefined (Param::grad_target()). Activation gradients are
// written unless a comment says otherwise. What forward leaves for backward lies in a frame of the tape (model/tape.h).
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/decoder_layer/decoder_layer.h"
#include "kernels/moe/grouped_gemm_quantized.h"
#include "model/lora.h"
#include "model/model.h"

namespace hone {

// The modules of a fused matrix, in row order: Hugging Face name (without ".weight") and number of rows.
using FusedModules = std::vector<std::pair<std::string, int64_t>>;

// y = x . weight^T + bias, plus the output of its adapters. A mixture of experts keeps its matrices in one Linear, with
// a slice for each expert.
struct Linear {
  Param weight;                   // [out, in]
  Param bias;                     // [out]; an empty shape means none
  std::optional<LoraLayer> lora;  // set by Model::add_lora()
  QuantizedMatrix quantized;      // if set, forward multiplies by it instead (set by QuantizedModel)
  bool keeps_dtype = false;       // its users read weight.value itself, so it is never quantized
  int64_t num_experts = 0;  // above 0: weight [experts * out, in], bias [experts * out], for the functions that end in
                            // _experts only

  Linear() = default;
  Linear(const FusedModules& rows, int64_t inputs, bool with_bias, double init_std);
  int64_t num_outputs() const { return weight.shape[0]; }
  // The operands if forward is gemm_forward alone, so that a fused op may replace it.
  std::optional<GemmWeights> gemm() const;
  // y [T, out] = x [T, in] . weight^T + bias + residual [T, out] (or empty; may be y).
  void forward(Context&, Tensor y, Tensor x, Tensor residual = {}) const;
  // Writes dx (which may be x) and adds to the parameters' gradients.
  void backward(Context&, Tensor dx, Tensor dy, Tensor x) const;
  // The two halves of backward().
  void backward_input(Context&, Tensor dx, Tensor dy) const;
  void backward_weight(Context&, Tensor dy, Tensor x) const;
  // The matrices of the experts, [experts, out, in], with their biases.
  ExpertMatrices expert_matrices() const;
  // The same for experts: each row is multiplied by its expert's matrix. offsets: kernels/moe/grouped_gemm.h.
  void forward_experts(Context&, Tensor y, Tensor x, Tensor offsets) const;
  void backward_input_experts(Context&, Tensor dx, Tensor dy, Tensor offsets) const;
  void backward_weight_experts(Context&, Tensor dy, Tensor x, Tensor offsets) const;
  // Adds to the biases' gradient, if they have one. weights and order: kernels/moe/expert_bias.h.
  void backward_bias_experts(Context&, Tensor dy, Tensor offsets, Tensor weights = {}, Tensor order = {}) const;
  // The biases of the experts, [experts, out]; empty if there are none.
  Tensor expert_biases() const;
};

// The norm of each row: RMSNorm (Zhang and Sennrich 2019), or LayerNorm (Ba et al. 2016) with mean and bias.
struct Norm {
  enum class Kind : uint8_t { rms, layer };
  // What forward leaves for backward, of each row.
  struct Stats {
    Tensor mean, rstd;  // mean: LayerNorm's
  };
  Kind kind = Kind::rms;
  Param weight{}, bias{};  // bias: LayerNorm's
  float eps = 0;
  float offset = 0;  // added to RMSNorm's weight: 1 if the file stores it around zero (Gemma)

  static Norm rms(const std::string& module, int64_t width, double eps, double offset = 0);
  static Norm layer(const std::string& module, int64_t width, double eps);
  // The operands of fused ops that do this norm; nothing if they do not.
  std::optional<RmsNormWeights> fused() const;
  Stats save(Frame&, int64_t num_rows) const;
  Stats restore(Saved&) const;
  void forward(Context&, Tensor y, Tensor x, const Stats&) const;
  // accumulate: adds to dx instead of writing it.
  void backward(Context&, Tensor dx, Tensor dy, Tensor x, const Stats&, bool accumulate) const;
  void add_to(ModuleList& list);
};

}  // namespace hone
