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
void forward(Context& context, const GemmRmsnorm& args) {
  const GemmForward gemm = gemm_of(args);
  check_gemm_forward_cuda(gemm);
  const int64_t M = args.x.dim(0), N = args.product.w.dim(0);
  check_shape(gemm_rmsnorm, "normed", args.normed, {M, N}, DType::bf16);
  check_shape(gemm_rmsnorm, "norm", args.norm.weight, {N}, DType::bf16);
  if (args.y.size() > 0 && M <= 512 && !is_small_m(M, args.product.w.dim(1)) && context.numerics() == Numerics::exact) {
    const NormedCall call{gemm_forward_call(context, gemm),
                          {numbers<__nv_bfloat16>(args.normed), numbers<const __nv_bfloat16>(args.norm.weight),
                           args.normed.row_stride, args.norm.eps, RmsNormRows::shape(N, vec_size<__nv_bfloat16>)}};
    const GemmChoice<NormedCall> plan = gemm_forward_plan(call);
    if (plan.splits > 1) {
      plan.run(call, plan.splits);
      return check_launch(gemm_rmsnorm);
    }
  }
  gemm_rmsnorm_steps(context, args);
}

bool supports(const GemmRmsnorm& args) {
  const auto vector = [](const Tensor& v) {
    return !v || (v.dtype == DType::bf16 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0);
  };
  return gemm_forward_sm90_supports(args.x, args.product.w) && joins_norm(args.product.w.dim(0)) &&
         tma_compatible(args.y) && tma_compatible(args.normed) && (!args.residual || tma_compatible(args.residual)) &&
         vector(args.product.bias) && vector(args.norm.weight);
}

[[maybe_unused]] const bool added = gemm_rmsnorm.add({"sm90", DeviceKind::cuda, forward, 10, supports});

}  // namespace
}  // namespace hone
