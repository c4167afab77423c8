#pragma once
// What the CUDA bodies of the matrix products share: the check of their arguments and the entry points that cross
// files.
//
// x and w have one dtype, f32 or bf16; y is f32, or bf16 where x is. bias and residual may each be f32 or bf16.
#include "kernels/gemm/gemm.h"

namespace hone {

void check_gemm_forward_cuda(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                             const Tensor& residual);

// gemm_forward by cuBLASLt, which chooses by the number of rows: for Numerics::fast. Returns false, having done
// nothing, where the numerics are exact, the product is empty, or cuBLASLt has no such product.
bool run_gemm_forward_fast(Context& context, Tensor y, Tensor x, Tensor w, Tensor bias, Tensor residual);

// sums [N] f32 += column sums of x [M, N], in an order that the shape decides.
void add_column_sums(Context& context, const OpBase& op, Tensor sums, Tensor x);

}  // namespace hone
