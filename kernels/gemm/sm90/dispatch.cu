// gemm_forward on Hopper (dispatch.cuh chooses the kernel).
#include "kernels/gemm/sm90/dispatch.cuh"

namespace hone {
namespace {

bool supports(const GemmForward& args) { return gemm_forward_sm90_supports(args.x, args.w); }

void forward(Context& context, const GemmForward& args) {
  check_gemm_forward_cuda(args);
  if (args.y.size() == 0 || run_gemm_forward_fast(context, args)) return;
  const GemmForwardCall call = gemm_forward_call(context, args);
  if (is_small_m(args.x.dim(0), args.w.dim(1)))
    return launch_gemm_small_m(cuda_stream(context), args.x, args.w, call.output);
  const GemmChoice<GemmForwardCall> plan = gemm_forward_plan(call);
  plan.run(call, plan.splits);
  check_launch(gemm_forward);
}

[[maybe_unused]] const bool added = gemm_forward.add({"sm90", DeviceKind::cuda, forward, 10, supports});

}  // namespace
}  // namespace hone
