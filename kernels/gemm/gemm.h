#pragma once
// Matrix products of a linear layer with weight w [N, K] (Hugging Face's [out_features, in_features]).
//
// Forward is row-invariant: y[m, n] depends on x[m, :] and w[n, :] alone, bit for bit, whatever M is. Bias and then
// residual are added last. On the CPU the sum is one chain of f32 fused multiply-adds in ascending k, so each body has
// the specification's bits on each machine. A term that is zero changes no bit of the chain: without the columns of x
// and w that are zero, y has the same bits (model/prune/ relies on it).
// Backward is deterministic: its bits depend on the body and the shapes, not on the number of threads.
// Row strides may exceed the row size (column views).
#include "kernels/grad_target.h"
#include "kernels/op.h"

namespace hone {

// On a GPU K is cut into chunks of one fixed size. Each chunk is summed from zero in f32, and the sums are added in
// ascending order. In bf16 a chunk is one accumulator of the tensor cores, fed in ascending steps of 16 along k. Bodies
// may differ in their tiles and in mma.sync or wgmma, which give the same bits. Bias and residual are added in f32
// before the one rounding to y's dtype.
inline constexpr int64_t gemm_cuda_chunk = 512;

// y = x . w^T (+ bias) (+ residual)
struct GemmForward {
  Tensor y;           // [M, N], written
  Tensor x;           // [M, K]
  Tensor w;           // [N, K]; on a GPU the op queued right before must not write it
  Tensor bias{};      // [N] or empty
  Tensor residual{};  // [M, N] or empty; may be y itself
  static constexpr auto access = op_access(written(&GemmForward::y), prefetched(&GemmForward::w),
                                           read(&GemmForward::x, &GemmForward::bias, &GemmForward::residual));
};
inline constinit Op<GemmForward> gemm_forward{"gemm_forward"};
// dx [M, K] = dy [M, N] . w [N, K]; dx is written.
inline constinit Op<void(Tensor dx, Tensor dy, Tensor w)> gemm_backward_input{"gemm_backward_input"};
// dw [N, K] = or += dy [M, N]^T . x [M, K]; dbias [N] += column sums of dy; dbias may be empty.
inline constinit Op<void(GradTarget dw, Tensor dbias, Tensor dy, Tensor x)> gemm_backward_weight{
    "gemm_backward_weight"};

}  // namespace hone
