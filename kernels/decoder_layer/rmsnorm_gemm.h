#pragma once
// A GEMM after a norm whose result is needed, too: the router of a mixture of experts.
#include "kernels/decoder_layer/decoder_layer.h"

namespace hone {

// normed = rmsnorm_forward(x) and y = gemm_forward(normed, w, bias), bit for bit.
struct RmsnormGemm {
  Tensor y;       // [T, N], written; f32, or the dtype of x
  Tensor normed;  // [T, K], written; shares no memory with x
  Tensor x;       // [T, K]
  RmsNormWeights norm;
  GemmWeights product;
  static constexpr auto access = op_access(written(&RmsnormGemm::y, &RmsnormGemm::normed), read(&RmsnormGemm::x),
                                           parts(&RmsnormGemm::norm, &RmsnormGemm::product));
};
inline constinit Op<RmsnormGemm> rmsnorm_gemm{"rmsnorm_gemm"};

void rmsnorm_gemm_steps(Context& context, const RmsnormGemm& args);

}  // namespace hone
