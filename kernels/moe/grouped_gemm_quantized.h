#pragma once
// grouped_gemm_forward with experts whose weights have one byte per number (kernels/quant/quantize.h): for rollouts,
// never for training. A row of y has the bits of gemm_quantized with its expert's matrix.
#include "kernels/moe/grouped_gemm.h"
#include "kernels/quant/quantized_matrix.h"

namespace hone {

// y[r] = (x[r] . values_e^T) * scales_e for the rows of expert e; rows from offsets[E] on are 0. With `accumulate` y[r]
// is added, as the residual of gemm_quantized, and rows from offsets[E] on stay.
struct GroupedGemmQuantized {
  Tensor y;           // [P, N]; on a GPU f32, or bf16 if x is
  Tensor x;           // [P, K]; on a GPU f32 or bf16
  QuantizedMatrix w;  // values [E, N, K], scales [E, N]; on a GPU the op queued right before must not write it
  Tensor offsets;     // [E + 1] i32
  bool accumulate = false;
  static constexpr auto access =
      op_access(added_once_if(&GroupedGemmQuantized::accumulate, &GroupedGemmQuantized::y),
                parts(&GroupedGemmQuantized::w), read(&GroupedGemmQuantized::x, &GroupedGemmQuantized::offsets));
};
inline constinit Op<GroupedGemmQuantized> grouped_gemm_quantized{"grouped_gemm_quantized"};

// Throws Error if shapes or dtypes do not fit: for the bodies.
void check_grouped_gemm(const GroupedGemmQuantized& args);

// The matrices of all experts, or their 8-bit copies, and the biases of the experts.
struct ExpertMatrices {
  Tensor w{};                   // [E, N, K] in the dtype of the rows
  QuantizedMatrix quantized{};  // values [E, N, K], scales [E, N]; used in place of w if set
  Tensor bias{};                // [E, N] in the dtype of the rows, or empty

  const Tensor& numbers() const { return quantized ? quantized.values : w; }
  int64_t num_experts() const { return numbers().dim(0); }
  int64_t num_outputs() const { return numbers().dim(1); }
  int64_t num_inputs() const { return numbers().dim(2); }
  // y [P, N] = x [P, K] times the matrix of each row's expert, plus its bias. offsets: as in GroupedGemmForward.
  void multiply(Context& context, Tensor y, Tensor x, Tensor offsets) const;
  static constexpr auto access =
      op_access(read(&ExpertMatrices::w, &ExpertMatrices::bias), parts(&ExpertMatrices::quantized));
};

// The matrix of an expert.
inline QuantizedMatrix expert_matrix(const QuantizedMatrix& w, int64_t expert) {
  return {expert_matrix(w.values, expert), w.scales.rows(expert, 1).view({w.scales.dim(1)}), w.format};
}

}  // namespace hone
