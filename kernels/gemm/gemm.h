#pragma once
// Matrix products of a linear layer with weight w [N, K] (Hugging Face's [out_features, in_features]).
// On a GPU what is queued right before gemm_forward must not write w, which is read ahead of it.
//
// Forward is row-invariant: y[m, n] depends on x[m, :], w[n, :] alone, bit for bit, whatever M is. K is cut into chunks
// of one fixed size, each summed from zero, and the fp32 partial sums are added in ascending order; bias and then
// residual are added last. On the CPU a chunk is one chain of fused multiply-adds in ascending k, so that every body
// has the specification's bits, on every machine. Backward is deterministic only: its bits depend on the body and the
// shapes, not on the number of threads. fp32 accumulation. Row strides may exceed the row size (column views).
#include "kernels/op.h"

namespace hone {

inline constexpr int64_t gemm_chunk = 256;
// On a GPU in bf16 a chunk is one accumulator of the tensor cores, fed in steps of 16 along k, ascending; bodies may
// differ in their tiles and in mma.sync or wgmma, which give the same bits. bias and residual are added in fp32 before
// the one rounding to y's dtype.
inline constexpr int64_t gemm_cuda_chunk = 512;

// y [M, N] = x [M, K] . w [N, K]^T (+ bias [N]) (+ residual [M, N]); y is written. bias and residual may be empty;
// residual may be y itself.
inline constinit Op<void(Tensor y, Tensor x, Tensor w, Tensor bias, Tensor residual)> gemm_forward{"gemm_forward"};
// dx [M, K] = dy [M, N] . w [N, K]; dx is written.
inline constinit Op<void(Tensor dx, Tensor dy, Tensor w)> gemm_backward_input{"gemm_backward_input"};
// dw [N, K] += dy [M, N]^T . x [M, K]; dbias [N] += column sums of dy; dbias may be empty.
inline constinit Op<void(Tensor dw, Tensor dbias, Tensor dy, Tensor x)> gemm_backward_weight{"gemm_backward_weight"};

}  // namespace hone
