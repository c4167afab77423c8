// rmsnorm_gemm for up to 8 rows in one launch: the small-M GEMM (gemm/mma/small_m.cuh) with the norm before it; its
// first thread block stores the normed rows.
#include "kernels/check_shape.h"
#include "kernels/decoder_layer/few_rows.cuh"
#include "kernels/decoder_layer/rmsnorm_gemm.h"

namespace hone {
namespace {

bool in_vectors(const Tensor& x) {
  return x.row_stride % 8 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.dtype == DType::bf16;
}

void forward(Context& context, const RmsnormGemm& args) {
  const int64_t M = args.x.dim(0), N = args.product.w.dim(0), K = args.product.w.dim(1);
  check_shape(rmsnorm_gemm, "x", args.x, {M, K}, DType::bf16);
  check_shape(rmsnorm_gemm, "normed", args.normed, {M, K}, DType::bf16);
  check_shape(rmsnorm_gemm, "norm", args.norm.weight, {K}, DType::bf16);
  check_shape(rmsnorm_gemm, "y", args.y, {M, N}, args.y.dtype == DType::f32 ? DType::f32 : DType::bf16);
  check_optional(rmsnorm_gemm, "bias", args.product.bias, {N}, args.product.bias.dtype);
  if (M == 0 || N == 0) return;
  if (!is_small_m(M, K, false) || context.numerics() == Numerics::fast) return rmsnorm_gemm_steps(context, args);
  GemmSmallMNorm norm{};
  norm.weight = numbers<const __nv_bfloat16>(args.norm.weight);
  norm.eps = args.norm.eps;
  norm.shape = RmsNormRows::shape(K, vec_size<__nv_bfloat16>);
  norm.normed = numbers<__nv_bfloat16>(args.normed);
  norm.normed_stride = args.normed.row_stride;
  LinearEpilogue output{};
  output.to = GemmEpilogue(args.y, args.product.bias, Tensor());
  output.N = static_cast<int>(N);
  launch_gemm_small_m<false>(cuda_stream(context), args.x, args.product.w, output, norm);
  check_launch(rmsnorm_gemm);
}

bool supports(const RmsnormGemm& args) {
  const int64_t K = args.product.w.dim(1);
  return in_vectors(args.x) && in_vectors(args.normed) && in_vectors(args.product.w) && K > 0 && few_rows_norm(K) &&
         args.norm.weight.dtype == DType::bf16 && reinterpret_cast<uintptr_t>(args.norm.weight.data) % 16 == 0;
}

[[maybe_unused]] const bool added = rmsnorm_gemm.add({"mma", DeviceKind::cuda, forward, 5, supports});

}  // namespace
}  // namespace hone
