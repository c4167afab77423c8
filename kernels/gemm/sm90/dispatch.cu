// gemm_forward on Hopper (dispatch.cuh chooses the kernel).
#include "kernels/gemm/sm90/dispatch.cuh"

namespace hone {
namespace {

bool supports(const Tensor&, const Tensor& x, const Tensor& w, const Tensor&, const Tensor&) {
  return gemm_forward_sm90_supports(x, w);
}

void forward(Context& context, Tensor y, Tensor x, Tensor w, Tensor bias, Tensor residual) {
  check_gemm_forward_cuda(y, x, w, bias, residual);
  if (y.size() == 0 || run_gemm_forward_fast(context, y, x, w, bias, residual)) return;
  const GemmForwardCall call = gemm_forward_call(context, y, x, w, bias, residual);
  if (is_small_m(x.dim(0), w.dim(1))) return launch_gemm_small_m(cuda_stream(context), x, w, call.output);
  const GemmChoice<GemmForwardCall> plan = gemm_forward_plan(call);
  plan.run(call, plan.splits);
  check_launch(gemm_forward);
}

[[maybe_unused]] const bool added = gemm_forward.add({"sm90", DeviceKind::cuda, forward, 10, supports});

}  // namespace
}  // namespace hone
