#pragma once
// What the CUDA bodies of gemm_quantized share.
#include "kernels/quant/gemm_quantized.h"

namespace hone {

void check_gemm_quantized_cuda(const Tensor& y, const Tensor& x, const QuantizedMatrix& w, const Tensor& bias,
                               const Tensor& residual);

}  // namespace hone
