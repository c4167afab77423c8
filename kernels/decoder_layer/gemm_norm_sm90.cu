// gemm_rmsnorm on Hopper: gemm_forward and rmsnorm_forward. The norm is fused with the reduction if the GEMM uses
// split-K.
#include "kernels/check_shape.h"
#include "kernels/decoder_layer/internal.h"
#include "kernels/decoder_layer/join_norm.cuh"
#include "kernels/gemm/sm90/dispatch.cuh"

namespace hone {
namespace {

struct NormedCall : GemmForwardCall {
  RmsNormOutput norm;
  void join(cudaStream_t stream, const SplitKPartials& partials) const {
    reduce_split_k_norm(stream, partials, output.to, norm);
  }
};

// Fuses the norm with the split-K reduction if there is one; else runs the two steps.
void forward(Context& context, Tensor y, Tensor normed, Tensor x, Tensor w, Tensor bias, Tensor residual,
             RmsNormWeights norm) {
  check_gemm_forward_cuda(y, x, w, bias, residual);
  const int64_t M = x.dim(0), N = w.dim(0);
  check_shape(gemm_rmsnorm, "normed", normed, {M, N}, DType::bf16);
  check_shape(gemm_rmsnorm, "norm", norm.weight, {N}, DType::bf16);
  if (y.size() > 0 && M <= 512 && !is_small_m(M, w.dim(1)) && context.numerics() == Numerics::exact) {
    const NormedCall call{gemm_forward_call(context, y, x, w, bias, residual),
                          {numbers<__nv_bfloat16>(normed), numbers<const __nv_bfloat16>(norm.weight), normed.row_stride,
                           norm.eps, RmsNormRows::shape(N, vec_size<__nv_bfloat16>)}};
    const GemmChoice<NormedCall> plan = gemm_forward_plan(call);
    if (plan.splits > 1) {
      plan.run(call, plan.splits);
      return check_launch(gemm_rmsnorm);
    }
  }
  gemm_norm_steps(context, y, normed, x, w, bias, residual, norm);
}

bool supports(const Tensor& y, const Tensor& normed, const Tensor& x, const Tensor& w, const Tensor& bias,
              const Tensor& residual, const RmsNormWeights& norm) {
  const auto vector = [](const Tensor& v) {
    return !v || (v.dtype == DType::bf16 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0);
  };
  return gemm_forward_sm90_supports(x, w) && joins_norm(w.dim(0)) && tma_compatible(y) && tma_compatible(normed) &&
         (!residual || tma_compatible(residual)) && vector(bias) && vector(norm.weight);
}

[[maybe_unused]] const bool added = gemm_rmsnorm.add({"sm90", DeviceKind::cuda, forward, 10, supports});

}  // namespace
}  // namespace hone
