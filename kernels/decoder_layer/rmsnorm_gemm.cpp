// rmsnorm_gemm as its steps: the CPU specification, and the GPU body for what the fused kernel does not support.
#include "kernels/decoder_layer/rmsnorm_gemm.h"

#include "kernels/gemm/gemm.h"
#include "kernels/norm/rmsnorm.h"

namespace hone {

void rmsnorm_gemm_steps(Context& context, const RmsnormGemm& args) {
  rmsnorm_forward(context, args.normed, {}, args.x, args.norm.weight, args.norm.eps, 0);
  gemm_forward(context, {.y = args.y, .x = args.normed, .w = args.product.w, .bias = args.product.bias});
}

namespace {

[[maybe_unused]] const bool added = rmsnorm_gemm.add({"specification", DeviceKind::cpu, rmsnorm_gemm_steps}) &&
                                    rmsnorm_gemm.add({"steps", DeviceKind::cuda, rmsnorm_gemm_steps});

}  // namespace
}  // namespace hone
